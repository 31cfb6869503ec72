#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What muster.torch.DataParallel costs the host, us: muster run -n 2 python3 torch_cost.py

hook: of a parameter whose bucket is not complete. bucket: of the one that starts it, which exchanges little, so that
the rest of it is libmuster's. begin, end: of a pass. Medians, and least, of rank 0.
"""
import os
import statistics
import sys
import time
import types

import torch
import torch.distributed as dist
from torch import nn

from muster.library import C
from muster.torch import DataParallel, buckets

TENSORS, PASSES, BUCKETS = 400, 200, 12


def now():
    return 1e6 * time.perf_counter()


def timed(function, *arguments):
    begin = now()
    function(*arguments)
    return now() - begin


def main():
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
        torch.cuda.set_device(device)
    dist.init_process_group("muster")
    module = nn.ParameterList(torch.ones(64, device=device) for _ in range(TENSORS))
    mine = DataParallel(module, bucket_cap_mb=TENSORS * 256 / BUCKETS / 2**20)._buckets
    buckets.Variable = types.SimpleNamespace(_execution_engine=types.SimpleNamespace(queue_callback=lambda _: None))
    bucket_of = [C["ddp_bucket_of"](mine._ddp, number) for number in range(TENSORS)]
    firsts = {bucket_of.index(bucket) for bucket in bucket_of}  # which start a bucket: the order is the reverse one
    hooks = [next(iter(parameter._post_accumulate_grad_hooks.values())) for parameter in module]
    times = {"begin": [], "hook": [], "bucket": [], "end": [], "hook of no_sync": []}
    for number in range(PASSES):
        for parameter in module:
            parameter.grad = None
        mine.prepare(number % 2 == 0)
        times["begin"].append(timed(mine.begin))
        for index in reversed(range(TENSORS)):
            kind = "hook of no_sync" if number % 2 else "bucket" if index in firsts else "hook"
            times[kind].append(timed(hooks[index], module[index]))
        taken = timed(mine._end)
        if number % 2 == 0:
            times["end"].append(taken)
    if dist.get_rank() == 0:
        print(f"{TENSORS} tensors, {len(firsts)} buckets, {device.type}: " +
              ", ".join(f"{name} {statistics.median(values):.2f} ({min(values):.2f})" for name, values in times.items()))


if __name__ == "__main__":
    sys.exit(main())
