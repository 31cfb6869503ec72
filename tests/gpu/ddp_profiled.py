# SPDX-License-Identifier: BSD-3-Clause
"""An unchanged PyTorch DDP job of GPT-2's size (124M parameters, 4 x 1024, autocast): prints its step time.

  torchrun --nproc_per_node N ddp_profiled.py [STEPS [die]]

die: every rank kills itself at the end.
"""
import os
import signal
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

WIDTH, HEADS, LAYERS, WORDS, LENGTH, BATCH = 768, 12, 12, 50257, 1024, 4


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.word = torch.nn.Embedding(WORDS, WIDTH)
        self.place = torch.nn.Embedding(LENGTH, WIDTH)
        layer = torch.nn.TransformerEncoderLayer(
            WIDTH, HEADS, 4 * WIDTH, dropout=0, activation="gelu", batch_first=True, norm_first=True)
        self.layers = torch.nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.mask = torch.nn.Transformer.generate_square_subsequent_mask(LENGTH, device="cuda")

    def forward(self, words):
        x = self.word(words) + self.place(torch.arange(LENGTH, device=words.device))
        x = self.layers(x, mask=self.mask, is_causal=True)
        return torch.nn.functional.linear(x, self.word.weight)


steps = int(sys.argv[1]) if len(sys.argv) > 1 else 30
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
torch.manual_seed(1)
model = DistributedDataParallel(Model().cuda(), gradient_as_bucket_view=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
words = torch.randint(0, WORDS, (BATCH, LENGTH + 1), device="cuda")
times = []
for step in range(steps + 10):
    torch.cuda.synchronize()
    begin = time.perf_counter()
    with torch.autocast("cuda", torch.bfloat16):
        out = model(words[:, :-1])
    loss = torch.nn.functional.cross_entropy(out.float().flatten(0, 1), words[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    torch.cuda.synchronize()
    if step >= 10:
        times.append(time.perf_counter() - begin)
if dist.get_rank() == 0:
    print(f"NCCL {'.'.join(map(str, torch.cuda.nccl.version()))} steps {steps} "
          f"median {statistics.median(times) * 1e3:.3f} ms", flush=True)
if "die" in sys.argv:
    os.kill(os.getpid(), signal.SIGKILL)
dist.destroy_process_group()
