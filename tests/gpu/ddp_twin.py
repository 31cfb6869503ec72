#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# The replay of `muster bench ddp` with PyTorch's DistributedDataParallel: the same model file,
# the same products, passes and gradient writes, one process per GPU, the table's rows alike.
#   ddp_twin.py MODEL-FILE [RANKS [STEPS]]
import os
import statistics
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

WARM = 5


class Layer:
    def __init__(self):
        self.params, self.gemms, self.passes, self.grads = [], [], [], []
        self.backward = None


def read_model(path):
    layers, dtype = [], torch.float32
    with open(path) as f:
        for line in f:
            words = line.split("#")[0].split()
            if not words:
                continue
            if words[0] == "dtype":
                dtype = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}[words[1]]
            elif words[0] == "layer":
                layers.append(Layer())
            elif words[0] == "param":
                layers[-1].params.append(int(words[2]))
            elif words[0] == "gemm":
                layers[-1].gemms.append(tuple(map(int, words[1:5])))
            elif words[0] == "pass":
                layers[-1].passes.append(int(words[1]))
    return layers, dtype


class Work:
    """Operands for products and passes, shared by all layers."""

    def __init__(self, layers, device):
        most = max([b * max(m * k, k * n, m * n) for l in layers for m, n, k, b in l.gemms]
                   + [p for l in layers for p in l.passes])
        self.a, self.b, self.c = (torch.empty(most, dtype=torch.bfloat16, device=device).uniform_(-1, 1)
                                  for _ in range(3))

    def gemm(self, m, n, k, b):
        x = self.a[: b * m * k].view(b, m, k)
        y = self.b[: b * k * n].view(b, k, n)
        z = self.c[: b * m * n].view(b, m, n)
        if b == 1:
            torch.mm(x[0], y[0], out=z[0])
        else:
            torch.bmm(x, y, out=z)

    def passing(self, n):
        torch.mul(self.a[:n], 1.0001, out=self.b[:n])

    def capture(self, call):
        """As a graph, so that Python's launch times do not count as computation."""
        call()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            call()
        return graph

    def forward(self, layers):
        for g in [g for layer in layers for g in layer.gemms]:
            self.gemm(*g)
        for n in [n for layer in layers for n in layer.passes]:
            self.passing(n)

    def backward(self, layer):
        for m, n, k, b in reversed(layer.gemms):
            self.gemm(m, k, n, b)
            self.gemm(k, n, m, b)
        for n in reversed(layer.passes):
            self.passing(n)
            self.passing(n)
        for grad in reversed(layer.grads):
            grad.fill_(0.5)

    def prepare(self, layer, dtype, device):
        layer.grads = [torch.empty(n, dtype=dtype, device=device) for n in layer.params]
        if layer.gemms or layer.passes or layer.grads:
            layer.backward = self.capture(lambda: self.backward(layer))


class Step(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, layer, *params):
        ctx.layer = layer
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        if ctx.layer.backward:
            ctx.layer.backward.replay()
        # New tensors over the memory that the graph wrote: autograd uses it without a copy.
        return (grad, None, *[g.detach() for g in ctx.layer.grads])


class Model(torch.nn.Module):
    def __init__(self, layers, dtype, device):
        super().__init__()
        self.layers = layers
        self.work = Work(layers, device)
        for layer in layers:
            self.work.prepare(layer, dtype, device)
        # One graph for all layers: PyTorch needs nothing from the host during a forward pass.
        self.compute = self.work.capture(lambda: self.work.forward(layers))
        self.groups = torch.nn.ModuleList(
            torch.nn.ParameterList(torch.nn.Parameter(torch.zeros(n, dtype=dtype, device=device))
                                   for n in l.params) for l in layers)

    def forward(self, x):
        self.compute.replay()
        for layer, group in zip(self.layers, self.groups):
            x = Step.apply(x, layer, *group)
        return x.sum()


def step(ddp, model, x):
    for p in model.parameters():
        p.grad = None
    a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    a.record()
    ddp(x).backward()
    b.record()
    b.synchronize()
    return a.elapsed_time(b) * 1000


def timed(ddp, model, steps, device):
    """Medians of the slowest rank: steps without the exchange, and with it, in turn."""
    x = torch.ones(1, device=device, requires_grad=True)
    alone, times = [], []
    for i in range(WARM + steps):
        with ddp.no_sync():
            alone.append(step(ddp, model, x))
        times.append(step(ddp, model, x))
    t = torch.tensor([statistics.median(us[WARM:]) for us in (alone, times)], device=device)
    dist.all_reduce(t, op=dist.ReduceOp.MAX)
    return t.tolist()


def rank_main(rank, ranks, path, steps):
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29555")
    torch.cuda.set_device(rank)
    device = torch.device("cuda", rank)
    dist.init_process_group("nccl", rank=rank, world_size=ranks, device_id=device)
    layers, dtype = read_model(path)
    model = Model(layers, dtype, device)
    name = os.path.basename(path).removesuffix(".model")
    rows = []
    for label, options in (("pytorch ddp", {}), ("pytorch ddp, views", {"gradient_as_bucket_view": True})):
        ddp = DistributedDataParallel(model, device_ids=[rank], **options)
        rows.append((label, *timed(ddp, model, steps, device)))
        del ddp
    if rank == 0:
        print(f"# {torch.cuda.get_device_name()} x {ranks}, PyTorch {torch.__version__}, "
              f"NCCL {'.'.join(map(str, torch.cuda.nccl.version()))}")
        for label, alone, us in rows:
            print(f"{name:<12} {'without exchange':<22} {alone:10.1f} us")
            print(f"{name:<12} {label:<22} {us:10.1f} us  exposed {us - alone:8.1f} us  "
                  f"efficiency {100 * alone / us:6.2f} %", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    count = int(sys.argv[2]) if len(sys.argv) > 2 else torch.cuda.device_count()
    mp.spawn(rank_main, (count, sys.argv[1], int(sys.argv[3]) if len(sys.argv) > 3 else 30), nprocs=count)
