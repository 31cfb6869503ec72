# SPDX-License-Identifier: BSD-3-Clause
"""A PyTorch program as users write it: DDP with NCCL, 20 steps, the environment of Muster.

    ddp_steps.py [fsdp]     fsdp: parameters in shards, by reduce-scatter and all-gather

It takes device LOCAL_RANK, or device 0 where it sees one. All ranks must end with the same weights.
"""
import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

device = int(os.environ["LOCAL_RANK"]) if torch.cuda.device_count() > 1 else 0
torch.cuda.set_device(device)
dist.init_process_group("nccl")
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 10))
how = sys.argv[1] if len(sys.argv) > 1 else "ddp"
model = model.cuda()
if how == "fsdp":
    from torch.distributed.fsdp import fully_shard
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
else:
    model = DistributedDataParallel(model, device_ids=[device])
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
torch.manual_seed(dist.get_rank())
for _ in range(20):
    optimizer.zero_grad()
    loss = model(torch.randn(64, 512, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()
whole = [p.full_tensor() if how == "fsdp" else p for p in model.parameters()]
total = torch.stack([p.double().sum() for p in whole])
least, most = total.clone(), total.clone()
dist.all_reduce(least, dist.ReduceOp.MIN)
dist.all_reduce(most, dist.ReduceOp.MAX)
assert torch.equal(least, most), "the ranks have different weights"
print(f"{how}: rank {dist.get_rank()} of {dist.get_world_size()}, device {device}, loss {loss.item():.4f}, "
      f"weights {total.sum().item().hex()}")
dist.destroy_process_group()
