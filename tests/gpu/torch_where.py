#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Where a bucket's time goes over backend muster: tests/gpu/torch --where starts it.

BERT-large trains over NCCL and over worlds of muster, in turns in one process. The columns:
  exposed    ms of a step with the exchange, without that of no_sync
  call       us of the host for an all-reduce of the adapter, median and longest; of these in libmuster
  wait, run  us of the GPU, medians: from the gradients to the lane's turn, from there to the end of the sum; where the
             GPU has nothing to do, run includes the host's time in libmuster
Rows: DDP over NCCL; muster as it is; with MUSTER_MAP_MEMORY=1, where the memory is mapped; with a callback for each work,
as the adapter had it, on one stream of PyTorch's pool after another; without libmuster's calls, which is the adapter
alone. Before them one call without a model, on 25 and 64 MiB. In host memory (--tiny) a thread makes
the calls, so that only exposed and call mean something.
"""
import argparse
import os
import statistics
import time

import torch
import torch.distributed as dist

import muster.torch
from muster.torch import group as adapter, lane
from torch_steps import Training, bert_large, meet, slowest, wait

WARM, STEPS = 4, 10
CALLS = 20


class Bucket:
    """Times of one all-reduce."""

    def __init__(self, on_gpu):
        self.events = [torch.cuda.Event(enable_timing=True) for _ in range(3)] if on_gpu else []
        self.call = self.inside = 0

    def gpu(self):
        """us of waiting and running."""
        return [1000 * first.elapsed_time(second) for first, second in zip(self.events, self.events[1:])]


LEFT_OUT, CALLBACK = "libmuster is not called", "a callback for each work"


class Watch:
    """Stands in front of the adapter's functions."""

    buckets = []
    change = None  # what is not as ever: LEFT_OUT, CALLBACK

    def __init__(self):
        self._future = lane.Work.get_future
        lane.Work.get_future = lambda work: self.future(work)
        self._allreduce, self._call = adapter.MusterGroup.allreduce, lane.Lane.call
        adapter.MusterGroup.allreduce = lambda *arguments: self.allreduce(*arguments)
        lane.Lane.call = lambda *arguments: self.call(*arguments)

    def future(self, work):
        return work._done.then(work._result) if self.change == CALLBACK else self._future(work)

    def allreduce(self, group, values, opts=None):
        bucket = Bucket(values[0].is_cuda)
        self.buckets.append(bucket)
        if bucket.events:
            bucket.events[0].record()
        begin = time.perf_counter()
        work = self._allreduce(group, values, opts)
        bucket.call = 1e6 * (time.perf_counter() - begin)
        return work

    def call(self, world, name, *arguments):
        if name != "allreduce" or not self.buckets:
            self._call(world, name, *arguments)
            return
        bucket = self.buckets[-1]
        if bucket.events:
            bucket.events[1].record()
        begin = time.perf_counter()
        if self.change != LEFT_OUT:
            self._call(world, name, *arguments)
        bucket.inside = 1e6 * (time.perf_counter() - begin)
        if bucket.events:
            bucket.events[2].record()


def medians(values):
    return statistics.median(values) if values else 0


def columns(buckets):
    """Median call, longest call, median inside, wait and run."""
    times = [bucket.gpu() or [0, 0] for bucket in buckets]
    calls = [bucket.call for bucket in buckets]
    return [medians(calls), max(calls, default=0), medians([bucket.inside for bucket in buckets]),
            medians([one[0] for one in times]), medians([one[1] for one in times])]


def show(name, *text):
    if dist.get_rank() == 0:
        print(f"{name:<24}", *text, flush=True)


def print_columns(name, first, buckets, device):
    call, longest, inside, waits, runs = slowest(columns(buckets), device)
    rest = f"call {call:6.0f} (most {longest:6.0f}), in libmuster {inside:6.0f}, wait {waits:7.0f}, run {runs:7.0f}"
    show(name, first, rest if buckets else "")


def worlds(device):
    """Name, group, change. A group opens its world in its first call."""
    yield "NCCL", dist.group.WORLD, None
    for name, mapped, change in (("muster", "0", None), ("muster, memory mapped", "1", None),
                                 ("muster, with callback", "0", CALLBACK), ("adapter alone", "0", LEFT_OUT)):
        group = dist.new_group(backend="muster")
        os.environ["MUSTER_MAP_MEMORY"] = mapped
        dist.all_reduce(torch.zeros(1, device=device), group=group)
        wait(device)
        yield name, group, change


def train(rows, watch, device, tiny):
    torch.manual_seed(1)
    model, inputs = bert_large(tiny)
    inputs = {key: value.to(device) for key, value in inputs.items()}
    state = model.state_dict()
    trainings = []
    for _, group, _ in rows:
        one = type(model)(model.config)
        one.load_state_dict(state)
        trainings.append(Training(one.to(device), inputs, group, device, False))
    times = [([], [], []) for _ in rows]
    for step in range(WARM + STEPS):
        for (_, _, watch.change), training, (alone, together, buckets) in zip(rows, trainings, times):
            alone.append(training.timed(False))
            watch.buckets.clear()
            together.append(training.timed(True))
            buckets.extend(watch.buckets if step >= WARM else [])
    for (name, _, _), (alone, together, buckets) in zip(rows, times):
        exposed, alone = slowest([statistics.median(together[WARM:]) - statistics.median(alone[WARM:]),
                                  statistics.median(alone[WARM:])], device)
        print_columns(name, f"alone {alone:7.2f} ms, exposed {exposed:6.2f} ms, {len(buckets) // STEPS:3} buckets,",
                      buckets, device)


def calls(rows, watch, device, count):
    """One after another, with nothing beside."""
    data = torch.ones(count, device=device)
    for name, group, watch.change in rows:
        for _ in range(2):  # the first turn warms up
            meet(device)
            watch.buckets.clear()
            begin = time.perf_counter()
            for _ in range(CALLS):
                data.fill_(1)
                work = dist.all_reduce(data, group=group, async_op=True)
            host = 1e6 * (time.perf_counter() - begin) / CALLS
            work.wait()
            wait(device)
            whole = 1e6 * (time.perf_counter() - begin) / CALLS
        first = slowest([host, whole], device)
        print_columns(name, f"{count >> 18:2} MiB, us a call: host {first[0]:6.0f}, whole {first[1]:6.0f},",
                      list(watch.buckets), device)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args()
    device = torch.device("cpu")
    if not options.tiny:
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
        torch.cuda.set_device(device)
    dist.init_process_group("gloo" if options.tiny else "nccl")
    watch = Watch()
    rows = list(worlds(device))
    show(f"# {dist.get_world_size()} ranks", f"of {len(os.sched_getaffinity(0))} CPUs, PyTorch {torch.__version__},",
         *(f"{name}={os.environ.get(name, 'unset')}" for name in ("NCCL_COMM_BLOCKING", "CUDA_DEVICE_MAX_CONNECTIONS")))
    for mib in (25, 64):
        calls(rows, watch, device, (1 if options.tiny else mib) << 18)
    train(rows, watch, device, options.tiny)


if __name__ == "__main__":
    main()
