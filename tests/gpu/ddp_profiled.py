# SPDX-License-Identifier: BSD-3-Clause
"""An unchanged PyTorch DDP job of GPT-2's size (124M parameters, 4 x 1024, autocast): prints its step time.

  torchrun --nproc_per_node N ddp_profiled.py [--tiny] [STEPS [die]]
  torchrun --nproc_per_node N ddp_profiled.py [--tiny] turns SOCKET SIDE

die: every rank kills itself at the end. turns: the job steps when profiler_turns.py asks for it, and reports the times.
--tiny: a small model in host memory, over gloo.
"""
import json
import os
import signal
import socket
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

TINY = "--tiny" in sys.argv
ARGUMENTS = [argument for argument in sys.argv[1:] if argument != "--tiny"]
WIDTH, HEADS, LAYERS, WORDS, LENGTH, BATCH = (16, 2, 2, 100, 8, 2) if TINY else (768, 12, 12, 50257, 1024, 4)
WARM, LIMIT = 10, 120  # steps; seconds without a word of profiler_turns.py


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.word = torch.nn.Embedding(WORDS, WIDTH)
        self.place = torch.nn.Embedding(LENGTH, WIDTH)
        layer = torch.nn.TransformerEncoderLayer(
            WIDTH, HEADS, 4 * WIDTH, dropout=0, activation="gelu", batch_first=True, norm_first=True)
        self.layers = torch.nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.register_buffer("mask", torch.nn.Transformer.generate_square_subsequent_mask(LENGTH), persistent=False)

    def forward(self, words):
        x = self.word(words) + self.place(torch.arange(LENGTH, device=words.device))
        x = self.layers(x, mask=self.mask, is_causal=True)
        return torch.nn.functional.linear(x, self.word.weight)


class Job:
    def __init__(self):
        self._device = torch.device("cpu") if TINY else torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        if not TINY:
            torch.cuda.set_device(self._device)
        dist.init_process_group("gloo" if TINY else "nccl")
        torch.manual_seed(1)
        # The mask is no state that ranks share: a broadcast of it would be one collective more in each step.
        self._model = DistributedDataParallel(
            Model().to(self._device), gradient_as_bucket_view=True, broadcast_buffers=False)
        self._optimizer = torch.optim.AdamW(self._model.parameters(), lr=1e-4, fused=not TINY or None)
        self._words = torch.randint(0, WORDS, (BATCH, LENGTH + 1), device=self._device)

    def _wait(self):
        if not TINY:
            torch.cuda.synchronize()

    def step(self):
        """Seconds of a step."""
        self._wait()
        begin = time.perf_counter()
        with torch.autocast(self._device.type, torch.bfloat16):
            out = self._model(self._words[:, :-1])
        loss = torch.nn.functional.cross_entropy(out.float().flatten(0, 1), self._words[:, 1:].flatten())
        loss.backward()
        self._optimizer.step()
        self._optimizer.zero_grad()
        self._wait()
        return time.perf_counter() - begin


def in_turns(job, path, side):
    """Step as often as each line of the socket wants it, until it ends; nothing runs on the GPU in between."""
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(LIMIT)
        link.connect(path)
        lines = link.makefile("rw")
        print(json.dumps({"side": side, "rank": dist.get_rank()}), file=lines, flush=True)
        for line in lines:
            print(json.dumps([job.step() for _ in range(json.loads(line))]), file=lines, flush=True)


def main():
    job = Job()
    for _ in range(WARM):
        job.step()
    if ARGUMENTS[:1] == ["turns"]:
        in_turns(job, ARGUMENTS[1], ARGUMENTS[2])
    else:
        steps = int(ARGUMENTS[0]) if ARGUMENTS else 30
        times = [job.step() for _ in range(steps)]
        if dist.get_rank() == 0:
            release = "gloo" if TINY else "NCCL " + ".".join(map(str, torch.cuda.nccl.version()))
            print(f"{release} steps {steps} median {statistics.median(times) * 1e3:.3f} ms", flush=True)
        if "die" in ARGUMENTS:
            os.kill(os.getpid(), signal.SIGKILL)
    dist.destroy_process_group()


main()
