#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""DataParallel where gradients are on two streams of a GPU: who waits for whom. muster run -n 1 torch_bucket_streams.py

CUDA is a fake that writes down its calls, so no GPU is needed. The pass's stream is the default one, whose number is 0.
"""
import torch
import torch.distributed as dist
from torch import nn

from muster.torch import DataParallel, buckets
from torch_current import Current

STEPS = []


class Stream:
    numbers = iter(range(2, 100))

    def __init__(self, name, number=None):
        self.name, self.cuda_stream = name, next(self.numbers) if number is None else number

    def wait_stream(self, other):
        STEPS.append(f"{self.name} waits for {other.name}")

    def record_event(self):
        pass


Current.streams.append(Stream("the pass's", 0))


class OnStreams(buckets.Buckets):
    def _hook(self, *arguments):
        self._stream_of = lambda _: Current.streams[-1].cuda_stream
        self._current_stream = lambda _: Current.streams[-1]
        return super()._hook(*arguments)


class Model(nn.Module):
    """The embedding's gradient is on a side stream, where the program goes on too."""

    def __init__(self):
        super().__init__()
        self.embedding, self.last = nn.Embedding(5, 4, sparse=True), nn.Linear(4, 1)

    def forward(self, x):
        hidden = self.embedding(x)
        hidden.register_hook(lambda _: Current.streams.append(Stream("side", 1)))
        return self.last(hidden)


def noted(label, function):
    def call(*arguments):
        STEPS.append(f"{label} on {Current.streams[-1].name}")
        return function(*arguments)

    return call


torch.cuda.stream, torch.cuda.ExternalStream = Current, lambda *_: Stream("a new one")  # 0 is no stream for PyTorch
torch.cuda.current_stream = lambda _: Current.streams[-1]
torch.Tensor.zero_ = noted("zeroed", torch.Tensor.zero_)

dist.init_process_group("muster")
buckets.Buckets = OnStreams
DataParallel(Model())(torch.tensor([1, 3])).sum().backward()
print(*STEPS, sep="\n", flush=True)
