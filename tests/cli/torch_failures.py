#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What goes wrong in a program of PyTorch on backend muster: torch_failures.py WHAT"""
import copy
import os
import pickle
import signal
import sys
import time
import warnings

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import muster.torch

what = sys.argv[1]
if what == "store" and hasattr(dist.Store, "check"):
    del dist.Store.check  # as in PyTorch 2.1
if what == "elastic":
    os.environ["MUSTER_ELASTIC"] = "1"
if what == "gpus":  # as where GPUs are, up to the first call on one
    torch.cuda.is_available, torch.cuda.Stream, torch.cuda.Event = lambda: True, lambda device: device, lambda: None
dist.init_process_group("muster")
me = dist.get_rank()
print(f"rank {me} has begun")  # in Python's buffer, where the output is a pipe


def step(model, width=8):
    model(torch.ones(2, width)).sum().backward()


def refused(function, *arguments):
    try:
        function(*arguments)
    except muster.torch.Error as error:
        print(f"status {error.status}: {error}")


if what == "arguments":
    refused(dist.all_reduce, torch.ones(3).to(torch.float8_e4m3fn))
    refused(dist.all_reduce, torch.ones(3, device="meta"))
    refused(dist.broadcast, torch.ones(3, 3).to_sparse(), 0)
    refused(dist.all_reduce, torch.ones(3), dist.ReduceOp.PRODUCT)
    refused(dist.recv, torch.ones(3))
    dist.all_reduce(torch.ones(3).to(torch.bool), dist.ReduceOp.AVG)
elif what == "caught":
    refused(dist.all_reduce, torch.ones(3 + me))
    sys.exit(3)
elif what == "dies":
    dist.barrier()
    if me == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(torch.ones(3))
elif what == "backward":
    model = DistributedDataParallel(nn.Linear(8, 8))
    step(model)
    if me == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    step(model)
    step(model)
elif what == "raises":
    if me == 1:
        raise ValueError("a mistake of the program")
    dist.all_reduce(torch.ones(3))
elif what == "rows":
    def embedding_model():
        return nn.Sequential(nn.Embedding(8, 8), nn.Linear(8, 1))

    def rows_step(model):
        model(torch.zeros(2, dtype=torch.int64)).sum().backward()

    def joined(model):
        with Join([model]):
            rows_step(model)

    gloo = dist.new_group(backend="gloo")
    whole = muster.torch.send_rows(embedding_model())
    refused(rows_step, DistributedDataParallel(whole, process_group=gloo))
    import torch._dynamo
    torch._dynamo.config.optimize_ddp = "python_reducer"
    refused(rows_step, DistributedDataParallel(muster.torch.send_rows(embedding_model())))
    torch._dynamo.config.optimize_ddp = True
    part = DistributedDataParallel(nn.Sequential(muster.torch.send_rows(embedding_model())))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        rows_step(part)
    print(f"warning: {caught[0].message}")
    if part.module[0][0].weight.grad is None:
        sys.exit("no gradient of the part")
    joined(DistributedDataParallel(muster.torch.send_rows(embedding_model())))
elif what == "buckets":
    DataParallel = muster.torch.DataParallel

    class Again(nn.Module):
        """Two backward passes of its own use the layer."""

        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x):
            for _ in range(2):
                x = checkpoint(self.layer, x.requires_grad_(), use_reentrant=True)
            return x

    thin = nn.Linear(8, 8)
    thin.weight = nn.Parameter(torch.zeros(1, 8).expand(8, 8))
    differs = nn.Linear(8, 8).requires_grad_(True)
    differs.bias.requires_grad_(me == 0)
    refused(DataParallel, nn.Linear(8, 8).requires_grad_(False))
    refused(DataParallel, nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8, device="meta")))
    refused(DataParallel, nn.Linear(8, 8, device="meta"))
    refused(DataParallel, nn.Linear(8, 8, dtype=torch.complex64))
    refused(DataParallel, thin)
    refused(DataParallel, muster.torch.send_rows(nn.Sequential(nn.Embedding(8, 8), nn.Linear(8, 1))))
    refused(DataParallel, differs)
    os.environ["MUSTER_ELASTIC"] = "1"
    refused(lambda: DataParallel(nn.Linear(8, 8), process_group=dist.new_group(backend="gloo")))
    del os.environ["MUSTER_ELASTIC"]
    once = DataParallel(nn.Linear(8, 8))
    refused(DataParallel, once.module)
    refused(copy.deepcopy, once)
    refused(pickle.dumps, once)
    refused(Join, [once])
    copy.deepcopy(once.module)
    again = DataParallel(Again())
    refused(step, again)
    refused(step, again)
    sys.exit(0)
elif what == "bucket_dies":
    model = muster.torch.DataParallel(nn.Linear(8, 8))
    step(model)
    if me == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    refused(step, model)
    step(model)
elif what == "bucket_uneven":
    model = muster.torch.DataParallel(nn.Linear(8, 8))
    for _ in range(3 - me):
        step(model)
elif what == "gpus":
    lanes = dist.group.WORLD.lanes
    opened = [[lane.world is not None for lane in (lanes.host, lanes.of(torch.device("cuda", 1)))]]
    texts = [None, None]
    time.sleep(2 * me)  # longer than MUSTER_INIT_TIMEOUT
    dist.all_gather_object(texts, f"rank {me}")
    opened.append([lanes.host.world is not None, lanes.gpu.world is not None])
    print(f"host and GPU are open: {opened}, objects: {texts}")
    refused(lanes.of, torch.device("cuda", 0))
    sys.exit(0)
elif what == "store":
    dist.barrier()
    sys.exit(0)
elif what == "uneven":
    model = DistributedDataParallel(nn.Linear(8, 8))
    for _ in range(3 - me):
        step(model)
elif what == "models":
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    if me == 1:
        model[1].weight.requires_grad_(False)
    muster.torch.check_model(model)
elif what == "silent":  # an equal number of equal shapes, of which PyTorch compares no more
    layers = [nn.Linear(8, 8).to(torch.float64 if me else torch.float32)]
    model = DistributedDataParallel(nn.Sequential(*layers))
print("not refused")
