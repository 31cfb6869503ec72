#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Training steps over PyTorch's DDP and over libmuster, in turns: tests/gpu/torch starts it.

Contestants: DDP; muster, which is DDP over that backend; buckets, which is muster.torch.DataParallel beside PyTorch's
own backend; by row, which is muster with embeddings sent by row. Each step is timed without the exchange (no_sync) and
with it (whole); the ranks meet before. A row of the table has the medians of the slowest rank: alone is DDP's without
the exchange, exposed the difference of a contestant's own two. All trainings start alike. After some steps two
trainings over DDP are apart where kernels of PyTorch add in no fixed order; those over muster may be so far from DDP's,
twice.
"""
import argparse
import copy
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
import transformers
from torch.nn.parallel import DistributedDataParallel

import muster.torch

WARM, STEPS, FIRST_LOSSES = 4, 12, 3
ROUNDED = 1e-3  # of sums in another order: more than two ranks, embeddings by row


def language(config, model, batch, length, tiny):
    """Sizes of the tiny form, by the names that this configuration has."""
    if tiny:
        batch, length = 2, 8
    config = config(**(tiny or {}), use_cache=False)
    config.vocab_size = min(config.vocab_size, 1000) if tiny else config.vocab_size
    tokens = torch.randint(0, config.vocab_size, (batch, length))
    return model(config), {"input_ids": tokens, "labels": tokens}


def gpt2(tiny):
    return language(transformers.GPT2Config, transformers.GPT2LMHeadModel, 16, 1024,
                    tiny and {"n_layer": 2, "n_embd": 32, "n_head": 2})


def bert_large(tiny):
    size = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
    small = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    return language(lambda **more: transformers.BertConfig(**{**size, **more}),
                    lambda config: transformers.BertForMaskedLM(config), 16, 512, tiny and small)


def llama_1b(tiny):
    size = {"hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8,
            "intermediate_size": 8192, "vocab_size": 128256, "tie_word_embeddings": True}
    small = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2,
             "intermediate_size": 64}
    return language(lambda **more: transformers.LlamaConfig(**{**size, **more}),
                    lambda config: transformers.LlamaForCausalLM(config), 2, 1024, tiny and small)


def resnet50(tiny):
    small = {"hidden_sizes": [8, 16], "depths": [1, 1], "embedding_size": 8}
    config = transformers.ResNetConfig(num_labels=1000, **(small if tiny else {}))
    batch, side = (2, 32) if tiny else (64, 224)
    return transformers.ResNetForImageClassification(config), {
        "pixel_values": torch.randn(batch, 3, side, side), "labels": torch.randint(0, 1000, (batch,))}


MODELS = [("GPT-2 124M", gpt2), ("ResNet-50", resnet50), ("BERT-large", bert_large), ("Llama 1B", llama_1b)]


class Training:
    def __init__(self, model, inputs, group, device, compiled, parallel=DistributedDataParallel):
        self._ids = [device.index] if device.type == "cuda" else None
        self._device, self._inputs = device, inputs
        self._ddp = parallel(model, device_ids=self._ids, process_group=group)
        self._call = torch.compile(self._ddp) if compiled else self._ddp
        self._optimizer = torch.optim.SGD(model.parameters(), lr=0.02)

    def _pass(self):
        with torch.autocast(self._device.type, torch.bfloat16):
            loss = self._call(**self._inputs).loss
        loss.backward()
        return loss

    def weights(self):
        return [weight.detach() for weight in self._ddp.parameters()]

    def learn(self, step):
        torch.manual_seed(step)  # of dropout
        self._optimizer.zero_grad()
        loss = self._pass()
        self._optimizer.step()
        return loss.item()

    def timed(self, exchange):
        """Milliseconds of forward and backward pass."""
        self._optimizer.zero_grad()
        meet(self._device)
        start = time.perf_counter()
        if exchange:
            self._pass()
        else:
            with self._ddp.no_sync():
                self._pass()
        wait(self._device)
        return 1000 * (time.perf_counter() - start)


def wait(device):
    if device.type == "cuda":
        torch.cuda.synchronize()


def meet(device):
    wait(device)
    dist.all_reduce(torch.zeros(1, device=device))
    wait(device)


def slowest(value, device):
    value = torch.tensor(value, dtype=torch.float64, device=device)
    dist.all_reduce(value, dist.ReduceOp.MAX)
    return value.tolist()


def agreed(answer, device):
    """What rank 0 decides."""
    value = torch.tensor([int(answer)], device=device)
    dist.broadcast(value, 0)
    return bool(value.item())


def distance(some, others):
    return sum((one.double() - other.double()).pow(2).sum().item() for one, other in zip(some, others)) ** 0.5


def row(name, build, compiled, groups, device, tiny):
    """Print a row; True if both trainings learn the same."""
    torch.manual_seed(1 + dist.get_rank())  # DDP takes rank 0's weights
    model, inputs = build(tiny)
    model, inputs = model.to(device), {key: value.to(device) for key, value in inputs.items()}
    trainings = [Training(copy.deepcopy(model), inputs, group, device, compiled) for group in groups]
    trainings.append(Training(copy.deepcopy(model), inputs, groups[0], device, compiled, muster.torch.DataParallel))
    names = ["DDP", "muster", "buckets"]
    if any(isinstance(module, torch.nn.Embedding) for module in model.modules()):
        by_row = muster.torch.send_rows(copy.deepcopy(model))
        trainings.append(Training(by_row, inputs, groups[1], device, compiled))
        names.append("by row")
    again = Training(model, inputs, groups[0], device, compiled)
    start = [weight.clone() for weight in trainings[0].weights()]
    losses = [[training.learn(step) for step in range(FIRST_LOSSES)] for training in [*trainings, again]]
    learned = distance(trainings[0].weights(), start)
    apart = [[max(abs(one - other) / abs(one) for one, other in zip(losses[0], mine)),
              distance(trainings[0].weights(), training.weights()) / learned]
             for mine, training in zip(losses[1:], [*trainings[1:], again])]
    off = [max(values) for values in zip(*apart[:-1])] + apart[-1]
    del start, again
    times = [([], []) for _ in trainings]
    order = list(zip(trainings, times))
    for _ in range(WARM + STEPS):
        for training, (alone, together) in order:
            alone.append(training.timed(False))
            together.append(training.timed(True))
        order.append(order.pop(0))  # each is the first one in turn
    medians = slowest([statistics.median(values[WARM:]) for pair in times for values in pair], device)
    off = slowest(off, device)
    if dist.get_rank() == 0:
        exposed = [f"{who} {medians[2 * number + 1] - medians[2 * number]:7.2f}" for number, who in enumerate(names)]
        whole = [f"{who} {medians[2 * number + 1]:8.2f}" for number, who in enumerate(names)]
        print(f"{name:<11} {'compiled' if compiled else 'eager':<9} alone {medians[0]:8.2f} ms  exposed: "
              f"{'  '.join(exposed)}  whole: {'  '.join(whole)}  apart: losses {off[0]:.0e}, weights {off[1]:.0e}; DDP's own: {off[2]:.0e}, "
              f"{off[3]:.0e}", flush=True)
    return off[0] <= 2 * off[2] + ROUNDED and off[1] <= 2 * off[3] + ROUNDED


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--eager", action="store_true", help="no compiled models")
    parser.add_argument("--seconds", type=float, default=420)
    options = parser.parse_args()
    end = time.monotonic() + options.seconds
    device = torch.device("cpu")
    if not options.tiny:
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
        torch.cuda.set_device(device)
    dist.init_process_group("gloo" if options.tiny else "nccl")
    groups = [dist.group.WORLD, dist.new_group(backend="muster")]
    if dist.get_rank() == 0:
        print(f"# {dist.get_world_size()} ranks, {'CPUs' if options.tiny else torch.cuda.get_device_name()}, PyTorch "
              f"{torch.__version__}, transformers {transformers.__version__}, libmuster {muster.library.version()}")
    failed, longest = [], 0
    for compiled in (False,) if options.eager else (False, True):
        for name, build in MODELS:
            begin = time.monotonic()
            if not agreed(end - begin > longest, device):
                if dist.get_rank() == 0:
                    print(f"# SKIP no time left: {name}, {'compiled' if compiled else 'eager'}", flush=True)
                continue
            if not row(name, build, compiled, groups, device, options.tiny):
                failed.append(name)
            longest = max(longest, time.monotonic() - begin)
            if compiled:
                torch.compiler.reset()
    if dist.get_rank() == 0:
        print(f"{'not ok' if failed else 'ok'} 5 - losses and weights are those of DDP: {', '.join(failed) or 'all'}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
