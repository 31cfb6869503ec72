#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""muster.torch.send_rows: gradients of embeddings beside those of DDP over gloo, from rank 0 a line for each case.

Untied weights are equal bit for bit at two ranks. A tied one differs by the roundings of the two parts.

torch_rows.py [gathered | gpu]: the exchange that GPUs use, in host memory; on GPUs, beside DDP over nccl.
"""
import copy
import pickle
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import muster.torch
from muster.torch import rows, rows_gpu
from torch_models import tell

STEPS, BATCH, LENGTH, TOKENS, WIDTH = 3, 4, 6, 4000, 16


class Untied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.last = nn.Embedding(TOKENS, WIDTH, padding_idx=3), nn.Linear(WIDTH, 5)

    def forward(self, tokens):
        return self.last(torch.tanh(self.embedding(tokens)))


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.middle = nn.Embedding(TOKENS, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.output = nn.Linear(WIDTH, TOKENS, bias=False)
        self.output.weight = self.embedding.weight

    def forward(self, tokens):
        return {"logits": self.output(torch.tanh(self.middle(self.embedding(tokens))))}


class Shared(nn.Module):
    """Two embeddings with one weight, and one that stays dense."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Embedding(TOKENS, WIDTH), nn.Embedding(TOKENS, WIDTH)
        self.second.weight = self.first.weight
        self.third, self.last = nn.Embedding(TOKENS, WIDTH, max_norm=9.0), nn.Linear(WIDTH, 5)

    def forward(self, tokens):
        return self.last(torch.tanh(self.first(tokens) + self.second(tokens.flip(0)) + self.third(tokens)))


class Sometimes(Untied):
    """Rank and step decide whether the embedding is used."""

    step = 0

    def forward(self, tokens):
        self.step += 1
        if (self.step + dist.get_rank()) % 3 == 0 or self.step == 2:
            return self.last(torch.ones(len(tokens), WIDTH))
        return super().forward(tokens)


class Checkpointed(Untied):
    reentrant = False

    def forward(self, tokens):
        hidden = checkpoint(lambda value: torch.tanh(self.embedding(value.long())), tokens.float().requires_grad_(),
                            use_reentrant=self.reentrant)
        return self.last(hidden)


class Reentrant(Checkpointed):
    reentrant = True


class Alone(nn.Module):
    """DDP would have no parameter left, so it stays dense."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, WIDTH)

    def forward(self, tokens):
        return self.embedding(tokens)


class Few(Untied):
    """A batch touches most rows."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, WIDTH)

    def forward(self, tokens):
        return super().forward(tokens % 20)


class Half(Untied):
    def __init__(self):
        super().__init__()
        self.to(torch.bfloat16)


def loss_of(model, step):
    generator = torch.Generator().manual_seed(1000 * step + dist.get_rank())
    tokens = torch.randint(0, TOKENS // 8, (BATCH + dist.get_rank(), LENGTH), generator=generator, device="cpu")
    result = model(tokens.to(next(model.parameters()).device))
    result = result["logits"] if isinstance(result, dict) else result
    return (result - 0.5).pow(2).sum(-1).mean()


def train(model, set_to_none=True, passes=1):
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, eps=1e-3)
    for step in range(STEPS):
        optimizer.zero_grad(set_to_none=set_to_none)
        with model.no_sync():
            for number in range(1, passes):
                loss_of(model, 100 * number + step).backward()
        loss_of(model, step).backward()
        optimizer.step()


def train_by_zeros(model):
    train(model, set_to_none=False)


def train_two_passes(model):
    train(model, passes=2)


def train_without_zero_grad(model):
    for step in range(STEPS):
        loss_of(model, step).backward()
    with torch.no_grad():
        for weight in model.parameters():
            weight -= 0.1 * weight.grad


def train_after_evaluation(model):
    """A pass without gradients, and one whose gradients are dropped."""
    with torch.no_grad():
        loss_of(model, 7)
    loss_of(model, 8)
    with model.no_sync():
        loss_of(model, 9).backward()
    train(model)


def train_copy(model):
    """A copy, and what was saved and loaded, have their own exchange; the original goes on."""
    train(model)
    options = {"find_unused_parameters": model.find_unused_parameters}
    for other in copy.deepcopy(model.module), pickle.loads(pickle.dumps(model.module)):
        train(DistributedDataParallel(other, process_group=model.process_group, **options))
    train(model)


def train_compiled(model):
    train(model)  # DDP learns its buckets in eager steps
    compiled = torch.compile(model, backend="eager")
    compiled.no_sync = model.no_sync
    train(compiled)
    torch.compiler.reset()


CASES = [  # name, model, training, options of DDP, tolerance of the weight (0: equal bits), is a weight sent as rows
    ("untied", Untied, train, {}, 0, True),
    ("tied", Tied, train, {}, 1e-6, True),
    ("a weight of two embeddings", Shared, train, {}, 1e-6, True),
    ("used by some ranks and steps", Sometimes, train, {"find_unused_parameters": True}, 0, True),
    ("checkpointed activations", Checkpointed, train, {}, 0, True),
    ("checkpointed, reentrant", Reentrant, train, {"static_graph": True}, 0, True),
    ("a static graph", Untied, train, {"static_graph": True}, 0, True),
    ("gradients as bucket views", Tied, train, {"gradient_as_bucket_view": True}, 1e-6, True),
    ("zero_grad leaves zeros", Untied, train_by_zeros, {}, 1e-6, True),
    ("two backward passes", Untied, train_two_passes, {}, 1e-6, True),
    ("two backward passes, tied", Tied, train_two_passes, {}, 1e-6, True),
    ("gradients are added up", Untied, train_without_zero_grad, {}, 1e-6, True),
    ("after evaluation", Untied, train_after_evaluation, {}, 0, True),
    ("a copy of the model", Untied, train_copy, {}, 0, True),
    ("most rows are used", Few, train, {}, 0, True),
    ("compiled", Tied, train_compiled, {}, 1e-6, True),
    ("bfloat16", Half, train, {}, 1e-2, True),
    ("an embedding alone", Alone, train, {}, 0, False),
    ("the mean of a tied weight", None),
]


def differ(one, other, tolerance):
    if dist.get_world_size() > 2:
        tolerance = max(tolerance, 1e-6)
    for name, value in one.state_dict().items():
        mate = other.state_dict()[name]
        if not (torch.allclose(value.double(), mate.double(), 0, tolerance) if tolerance else
                torch.equal(value, mate)):
            return f"{name} by {(value.double() - mate.double()).abs().max().item():g}"
    return None


class Sent:
    """Calls of libmuster, in their order, or what stands for them on a GPU."""

    def __init__(self):
        self.calls = []
        self._note(rows_gpu._Rows, "start_dense", "ddp_grad_ready")
        self._note(rows_gpu._Rows, "start", "ddp_grad_rows")
        start = rows._Exchange.start

        def note(exchange, name, *arguments, **options):
            self.calls.append(name)
            start(exchange, name, *arguments, **options)

        rows._Exchange.start = note

    def _note(self, kind, method, name):
        function = getattr(kind, method)

        def note(*arguments):
            self.calls.append(name)
            function(*arguments)

        setattr(kind, method, note)


def run(case, gloo, sent):
    """The problem, None without."""
    _, kind, trainer, options, tolerance, by_row = case
    torch.manual_seed(7 + dist.get_rank())  # rank 0's weights are taken
    model = kind()
    group = None if kind is Half else gloo  # gloo of PyTorch 2.1 has no bfloat16
    mate = DistributedDataParallel(copy.deepcopy(model), process_group=group, **options)
    trainer(mate)
    start = copy.deepcopy(model.state_dict())
    sent.calls.clear()
    with_rows = DistributedDataParallel(muster.torch.send_rows(model), **options)
    trainer(with_rows)
    if ("ddp_grad_rows" in sent.calls) != by_row:
        return f"rows were {'not ' if by_row else ''}sent"
    if kind is Tied and sent.calls[:2] != ["ddp_grad_ready", "ddp_grad_rows"]:
        return f"calls {sent.calls[:2]}"
    if all(torch.equal(value, start[key]) for key, value in model.state_dict().items()):
        return "the weights did not change"
    return differ(with_rows.module, mate.module, tolerance)


def tied_mean():
    """The mean of a tied weight is within one rounding of each part of that in float64."""
    torch.manual_seed(3)
    model = Tied()
    exact = copy.deepcopy(model).double()
    loss_of(exact, 0).backward()
    mean = exact.embedding.weight.grad
    dist.all_reduce(mean, dist.ReduceOp.AVG)
    parts = copy.deepcopy(model)  # what this rank computes in fp32, as the two parts
    parts.output.weight = nn.Parameter(parts.embedding.weight.detach().clone())
    loss_of(parts, 0).backward()
    local = parts.output.weight.grad.double() + parts.embedding.weight.grad.double()
    dist.all_reduce(local, dist.ReduceOp.AVG)
    dense = parts.output.weight.grad.double()
    dist.all_reduce(dense, dist.ReduceOp.AVG)
    with_rows = DistributedDataParallel(muster.torch.send_rows(model))
    loss_of(with_rows, 0).backward()
    got = model.embedding.weight.grad.double()
    # Half a unit in the last place of the dense mean, and of the sum.
    bound = torch.finfo(torch.float32).eps / 2 * (dense.abs() + local.abs()) * 1.001
    if isinstance(model._muster_exchange, rows_gpu.GpuExchange):  # rounds the sum of the first rank's rows, too
        bound += torch.finfo(torch.float32).eps / 2 * (dense.abs() + local.abs())
    problem = ((got - local).abs() > bound).sum().item()
    if dist.get_world_size() == 2 and problem:
        return f"{problem} elements of the tied mean are off by more than two roundings"
    off = ((got - mean).abs().max() / mean.abs().max()).item()
    return None if off < 1e-5 else f"the tied mean is off by {off:g} of its largest element"


def main():
    dist.init_process_group("muster")
    where = sys.argv[1] if len(sys.argv) > 1 else "host"
    if where == "gathered":
        rows._EXCHANGES["cpu"] = rows_gpu.GpuExchange
    elif where == "gpu":
        torch.cuda.set_device(dist.get_rank())
        torch.set_default_device(torch.device("cuda", dist.get_rank()))
    gloo = dist.new_group(backend="nccl" if where == "gpu" else "gloo")
    sent = Sent()
    failed = 0
    for case in CASES:
        problem = tied_mean() if case[1] is None else run(case, gloo, sent)
        failed += tell(case[0], problem, "as it must")
    return failed


if __name__ == "__main__":
    sys.exit(main())
