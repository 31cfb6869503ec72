#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""muster.torch.DataParallel beside PyTorch's DDP over gloo, in one process: torch_buckets.py muster|gloo|nccl

Prints a line for each model, from rank 0: at two ranks in fp32 the weights are equal bit for bit, else to 1e-6. With
nccl DDP uses that too, on GPUs: to 1e-5.
"""
import contextlib
import copy
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import muster.torch
from muster.library import C
from muster.torch import DataParallel
from torch_models import (STEPS, WIDTH, Branches, Checkpointed, Frozen, Plain, Tied, Twice, ZeroSize, differ, loss_of, tell,
                          train, train_several_optimizers, train_two_passes)

UNUSED = {"find_unused_parameters": True}


class Mixed(nn.Module):
    """float32 and float64."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(WIDTH, 7), nn.Linear(7, 1).double()

    def forward(self, x):
        return self.last(torch.tanh(self.first(x)).double())


class Dictionary(Plain):
    def forward(self, x):
        return {"result": [super().forward(x)]}


class Strided(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(4, 8, 3).to(memory_format=torch.channels_last)

    def forward(self, x):
        return self.first(x[:, :, None, None].expand(-1, -1, 4, 4)[:, :4].contiguous()).mean((1, 2, 3))


class Outer(nn.Module):
    """All but the last layer is computed again in the backward pass, by a pass of its own."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 1)

    def forward(self, x):
        return self.last(checkpoint(lambda value: torch.relu(self.first(value)), x.requires_grad_(), use_reentrant=True))


class Rows(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.last = nn.Embedding(50, WIDTH), nn.Linear(WIDTH, 1)

    def forward(self, x):
        return self.last(self.embedding((x * 7).long() % 50).mean(1))


class Streams(nn.Module):
    """The gradients of the first layer are late, on a stream of their own."""
    side = None

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 1)

    def forward(self, x):
        if self.side is None:
            return self.last(torch.relu(self.first(x)))
        self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side):
            hidden = torch.relu(self.first(x))
            hidden.register_hook(lambda _: torch.cuda._sleep(5_000_000))
        torch.cuda.current_stream().wait_stream(self.side)
        return self.last(hidden)


def steps(model, optimizer, backward, set_to_none=True):
    for step in range(STEPS):
        optimizer.zero_grad(set_to_none=set_to_none)
        backward(step)
        optimizer.step()


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)


def train_zeroed(model):
    steps(model, sgd(model), lambda step: loss_of(model, step).backward(), set_to_none=False)


def train_zeroed_after_forward(model):
    optimizer = sgd(model)
    for step in range(STEPS):
        loss = loss_of(model, step)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def train_added_up(model):
    """Three micro-batches; the branches that they use differ."""
    def backward(step):
        for micro in range(3):
            with model.no_sync() if micro < 2 else contextlib.nullcontext():
                loss_of(model, 3 * step + micro).backward()

    steps(model, sgd(model), backward)


def train_never_zeroed(model):
    optimizer = sgd(model)
    for step in range(STEPS):
        loss_of(model, step).backward()
        optimizer.step()


def train_two_losses(model):
    """Two forward passes, then one backward pass."""
    steps(model, sgd(model), lambda step: (loss_of(model, 2 * step) + loss_of(model, 2 * step + 1)).backward())


def train_scaled(model):
    scaler = torch.amp.GradScaler(next(model.parameters()).device.type, init_scale=1024.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        optimizer.zero_grad()
        scaler.scale(loss_of(model, step)).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        scaler.step(optimizer)
        scaler.update()


def train_dictionary(model):
    steps(model, sgd(model), lambda step: loss_of(lambda x: model(x)["result"][0], step).backward())


def train_replaced(model):
    """What the program does to gradients: a copy in their place, none for a part, a part that is kept."""
    optimizer = sgd(model)
    for step in range(STEPS):
        for number, value in enumerate(model.parameters()):
            if value.grad is not None and number % 3 < 2:
                value.grad = value.grad.clone() if number % 3 else None
        loss_of(model, step).backward()
        optimizer.step()


def train_sparse(model):
    """DDP's are dense: NCCL does not add up sparse ones."""
    model.module.embedding.sparse = isinstance(model, DataParallel)
    train(model)


def train_on_streams(model):
    if isinstance(model, DataParallel) and model.device.type == "cuda":
        model.module.side = torch.cuda.Stream()
    train(model)


def train_evaluated(model):
    """Passes without gradients, and a gradient of something else, in between."""
    def backward(step):
        loss = loss_of(model, step)
        with torch.no_grad():
            loss_of(model, step + 1)
        torch.autograd.grad(loss, list(model.parameters())[:1], retain_graph=True)
        loss.backward()

    steps(model, sgd(model), backward)


CASES = [
    ("a plain model with batch norm", Plain, train, {}),
    ("a process group of backend muster", Plain, train, {}),
    ("small buckets", Plain, train, {"bucket_cap_mb": 0.001}),
    ("buffers of each rank", Plain, train, {"broadcast_buffers": False}),
    ("tied weights", Tied, train, {}),
    ("unused branches", Branches, train, UNUSED),
    ("unused branches, zeroed", Branches, train_zeroed, UNUSED),
    ("unused branches, added up", Branches, train_added_up, UNUSED),
    ("unused branches, never zeroed", Branches, train_never_zeroed, UNUSED),
    ("frozen parts", Frozen, train, {}),
    ("two backward passes", Twice, train_two_passes, {}),
    ("checkpointed activations", Checkpointed, train, {}),
    ("checkpointed activations, reentrant", Outer, train, {}),
    ("several optimizers, clipped", Plain, train_several_optimizers, {}),
    ("a parameter used twice", Twice, train, {}),
    ("a parameter of zero size", ZeroSize, train, {}),
    ("two dtypes", Mixed, train, {}),
    ("channels last", Strided, train, {}),
    ("a dictionary of results", Dictionary, train_dictionary, {}),
    ("zeroed between forward and backward pass", Plain, train_zeroed_after_forward, {}),
    ("one backward pass of two forward passes", Twice, train_two_losses, {}),
    ("a scaled loss", Twice, train_scaled, {}),
    ("passes in between", Twice, train_evaluated, {}),
    ("gradients that the program replaces", Plain, train_replaced, {}),
    ("sparse gradients", Rows, train_sparse, {}),
    ("two streams", Streams, train_on_streams, {}),
]


def compare(kind, trainer, options, groups):
    """What is wrong, or None."""
    reference, mine, device = groups
    torch.manual_seed(7 + dist.get_rank())  # rank 0's weights are taken
    model = kind()
    if device.type == "cuda":
        model, options = model.to(device), {**options, "device_ids": [device.index]}
    start = copy.deepcopy(model.state_dict())
    theirs = DistributedDataParallel(copy.deepcopy(model), process_group=reference, **options)
    ours = DataParallel(model, process_group=mine, **options)
    trainer(theirs)
    trainer(ours)
    if list(ours.state_dict()) != list(theirs.state_dict()):
        return "names in state_dict"
    for number, ((label, value), mate) in enumerate(zip(ours.named_parameters(), theirs.parameters())):
        if (value.grad is None) != (mate.grad is None):
            return f"{label} has {'no' if value.grad is None else 'a'} gradient"
        if value.numel() and value.grad is not None and value.grad.data_ptr() != C["ddp_grad"](ours._buckets._ddp, number):
            return f"the gradient of {label} is no view"
    if all(torch.equal(value, start[key]) for key, value in model.state_dict().items()):
        return "the weights did not change"
    if any(not value.abs().max() < 10 for value in model.parameters() if value.numel()):
        return "the training diverges, so that rounding decides"
    if device.type == "cuda":
        off = max((one - other).abs().max().item() for one, other in zip(model.parameters(), theirs.parameters())
                  if one.numel())
        return f"weights by {off:g}" if off > 1e-5 else None
    return differ(ours, theirs)


def main():
    device = torch.device("cpu")
    if sys.argv[1] == "nccl":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
        torch.cuda.set_device(device)
    dist.init_process_group(sys.argv[1])
    theirs = dist.group.WORLD if sys.argv[1] == "nccl" else dist.new_group(backend="gloo")
    ours = dist.new_group(backend="muster")
    failed = 0
    for name, *case in CASES:
        failed += tell(name, compare(*case, (theirs, ours if "group" in name else None, device)), "equal")
    return failed


if __name__ == "__main__":
    sys.exit(main())
