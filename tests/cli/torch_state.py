#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Checkpoint and Sampler of muster.torch: torch_state.py FOLDER FROM TO [save]

Train from step FROM, which a checkpoint in FOLDER has (0: from the beginning), to step TO, and print a
sum of the weights. The data of all ranks in a step are those of one effective batch, in any world.
"""
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import muster.torch

folder, begin, end = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
dist.init_process_group("muster")
torch.manual_seed(3)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
generator = torch.Generator().manual_seed(4)
samples = torch.randn(100, 8, generator=generator)
sampler = muster.torch.Sampler(len(samples), 12 // dist.get_world_size(), seed=5)
checkpoint = muster.torch.Checkpoint(folder, name="state", model=model, optimizer=optimizer, schedule=schedule,
                                     sampler=sampler)
before = {name: value.clone() for name, value in model.state_dict().items()}
found = checkpoint.load()
if found is None:
    same = all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    print("no checkpoint, and no change" if same and not optimizer.state else "changed without a checkpoint")
assert (found or 0) == begin, found
parallel = DistributedDataParallel(model)
used = []
loader = torch.utils.data.DataLoader(samples, batch_sampler=sampler)
for step, batch in enumerate(loader, begin):
    if step == end:
        break
    optimizer.zero_grad()
    parallel(batch).pow(2).mean().backward()
    optimizer.step()
    schedule.step()
    used.append(batch.double().sum())
    if step + 1 == end and sys.argv[4:] == ["save"]:
        checkpoint.save(end)
checkpoint.close()
total = torch.stack(used).sum()
dist.all_reduce(total)
weights = torch.cat([value.flatten() for value in model.state_dict().values()]).double()
if dist.get_rank() == 0:
    print(f"weights {weights.sum().item():.17g} rate {optimizer.param_groups[0]['lr']:g} samples {total.item():.9f}")
