#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Models that are awkward for DDP, trained over backend muster and over gloo in one process: equal weights.

Prints a line for each model, from rank 0. At two ranks in fp32 the weights are equal bit for bit, else to 1e-6.
"""
import copy
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import muster.torch  # noqa: F401

STEPS, BATCH, WIDTH = 4, 6, 16


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(WIDTH, 33), nn.BatchNorm1d(33), nn.Linear(33, 1)

    def forward(self, x):
        return self.last(torch.relu(self.norm(self.first(x))))


class Tied(nn.Module):
    """The embedding is the output layer too."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(50, WIDTH)
        self.output = nn.Linear(WIDTH, 50, bias=False)
        self.output.weight = self.embedding.weight

    def forward(self, x):
        tokens = (x * 7).long().abs() % 50
        return self.output(self.embedding(tokens).mean(1))


class Branches(nn.Module):
    """Rank and step decide which branch is used."""

    def __init__(self):
        super().__init__()
        self.branches = nn.ModuleList(nn.Linear(WIDTH, 1) for _ in range(4))
        self.step = 0

    def forward(self, x):
        self.step += 1
        return self.branches[(self.step + dist.get_rank()) % 3](x)


class Frozen(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 1)
        self.first.requires_grad_(False)

    def forward(self, x):
        return self.last(torch.tanh(self.first(x)))


class Checkpointed(Plain):
    def forward(self, x):
        hidden = checkpoint(lambda value: torch.relu(self.first(value)), x, use_reentrant=False)
        return self.last(hidden)

    def __init__(self):
        super().__init__()
        del self.norm


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.shared, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 1)

    def forward(self, x):
        return self.last(torch.tanh(self.shared(torch.tanh(self.shared(x)))))


class ZeroSize(Plain):
    def __init__(self):
        super().__init__()
        self.nothing = nn.Parameter(torch.empty(0, 3))

    def forward(self, x):
        return super().forward(x) + self.nothing.sum()


def data(step):
    generator = torch.Generator().manual_seed(1000 * step + dist.get_rank())
    return torch.randn(BATCH, WIDTH, generator=generator)


def loss_of(model, step):
    return (model(data(step)) - 0.5).pow(2).mean()


def train(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss_of(model, step).backward()
        optimizer.step()


def train_two_passes(model):
    """Gradients of two backward passes are added up; the first one is not exchanged."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for step in range(STEPS):
        optimizer.zero_grad()
        with model.no_sync():
            loss_of(model, 2 * step).backward()
        loss_of(model, 2 * step + 1).backward()
        optimizer.step()


def train_several_optimizers(model):
    parameters = list(model.parameters())
    optimizers = [torch.optim.SGD(parameters[:2], lr=0.1), torch.optim.Adam(parameters[2:], lr=0.01)]
    for step in range(STEPS):
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=step % 2 == 0)
        loss_of(model, step).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        for optimizer in optimizers:
            optimizer.step()


def train_join(model):
    """Rank r has r more batches than rank 0."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Join([model]):
        for step in range(STEPS + dist.get_rank()):
            optimizer.zero_grad()
            loss_of(model, step).backward()
            optimizer.step()


def train_fp16_hook(model):
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
    model.register_comm_hook(model.process_group, fp16_compress_hook)
    train(model)


CASES = [
    ("a plain model with batch norm", Plain, train, {}),
    ("small buckets", Plain, train, {"bucket_cap_mb": 0.001}),
    ("gradients as bucket views", Plain, train, {"gradient_as_bucket_view": True}),
    ("a static graph", Plain, train, {"static_graph": True}),
    ("tied weights", Tied, train, {}),
    ("unused branches", Branches, train, {"find_unused_parameters": True}),
    ("frozen parts", Frozen, train, {}),
    ("two backward passes", Twice, train_two_passes, {}),
    ("checkpointed activations", Checkpointed, train, {}),
    ("several optimizers, clipped", Plain, train_several_optimizers, {}),
    ("a parameter used twice", Twice, train, {}),
    ("a parameter of zero size", ZeroSize, train, {}),
    ("uneven inputs by join", Twice, train_join, {}),
    ("gradients sent as fp16", Plain, train_fp16_hook, {}),
]


def differ(one, other):
    """The first tensor that differs, None where the models are equal."""
    exact = dist.get_world_size() <= 2
    for name, value in one.state_dict().items():
        mate = other.state_dict()[name]
        if not (torch.equal(value, mate) if exact else torch.allclose(value.double(), mate.double(), 0, 1e-6)):
            return f"{name} by {(value.double() - mate.double()).abs().max().item():g}"
    return None


def tell(name, problem, good):
    """[collective] Rank 0 prints the line of a case. True: a rank has a problem."""
    problems = [None] * dist.get_world_size()
    dist.all_gather_object(problems, problem)
    if dist.get_rank() == 0:
        print(f"{name}: {problems if any(problems) else good}", flush=True)
    return any(problems)


def main():
    dist.init_process_group("muster")
    gloo = dist.new_group(backend="gloo")
    failed = 0
    for name, kind, trainer, options in CASES:
        if trainer is train_fp16_hook and dist.get_world_size() > 2:
            continue  # the order of a sum is seen in 16 bits
        torch.manual_seed(7 + dist.get_rank())  # DDP takes rank 0's weights
        model = kind()
        start = copy.deepcopy(model.state_dict())
        over_gloo = DistributedDataParallel(copy.deepcopy(model), process_group=gloo, **options)
        over_muster = DistributedDataParallel(model, **options)
        trainer(over_gloo)
        trainer(over_muster)
        problem = differ(over_muster.module, over_gloo.module)
        if all(torch.equal(value, start[key]) for key, value in model.state_dict().items()):
            problem = "the weights did not change"
        failed += tell(name, problem, "equal")
    return failed


if __name__ == "__main__":
    sys.exit(main())
