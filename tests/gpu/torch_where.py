#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Where a bucket's time goes over backend muster: tests/gpu/torch --where starts it.

BERT-large trains over NCCL and over worlds of muster, in turns in one process. The columns:
  alone      ms of a step of no_sync; host: until backward() has returned. Where both are alike the host is the limit,
             and each us that it spends in a call is exposed
  exposed    ms of a step with the exchange, without that of no_sync; host: of its time until backward() has returned
  call       us of the host for an all-reduce of the adapter, median and longest; of these in libmuster
  wait, run  us of the GPU, medians: from the gradients to the lane's turn, from there to the end of the sum; where the
             GPU has nothing to do, run includes the host's time in libmuster
Rows: DDP over NCCL; muster as it is; with MUSTER_MAP_MEMORY=0, so that NCCL sums large buckets; with a callback for
each work, as the adapter had it, on one stream of PyTorch's pool after another; the adapter with PyTorch's NCCL in
place of libmuster; without libmuster's calls, which is the adapter alone; that with 200 us of waiting in place of a call, which
tells how much of the host's time is exposed. Before them one call without a model, on 25 and 64 MiB. Behind them, for
each row, what the threads of a step did, and for some a trace by PyTorch's profiler: which calls of the host took
longer than over NCCL (each with what it calls), the kernels, and how long their stream stood still.
In host memory (--tiny) a thread makes the calls, so that only exposed and call mean something.
"""
import argparse
import collections
import copy
import glob
import json
import os
import resource
import statistics
import tempfile
import time

import torch
import torch.distributed as dist

import muster.torch
from muster.torch import group as adapter, lane
from torch_steps import Training, bert_large, meet, slowest, wait

WARM, STEPS, TRACED = 4, 10, 2
CALLS = 20
SPUN = 200e-6  # seconds of the host in place of a call
SHOWN = 14  # calls of the host in a trace
GAP = 20  # us that a stream stands still
TRACES = ("NCCL", "muster", "muster, with callback", "adapter on NCCL")


class Bucket:
    """Times of one all-reduce."""

    def __init__(self, on_gpu):
        self.events = [torch.cuda.Event(enable_timing=True) for _ in range(3)] if on_gpu else []
        self.call = self.inside = 0

    def gpu(self):
        """us of waiting and running."""
        return [1000 * first.elapsed_time(second) for first, second in zip(self.events, self.events[1:])]


LEFT_OUT, CALLBACK = "libmuster is not called", "a callback for each work"
SPIN, BELOW = "the host waits in place of libmuster", "PyTorch's NCCL in place of libmuster"


class Watch:
    """Stands in front of the adapter's functions."""

    buckets = []
    change = None  # what is not as ever: LEFT_OUT, CALLBACK, SPIN, BELOW

    def __init__(self):
        self._values = collections.deque()  # of all-reduces that are being started
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
        self._values.append(values[0])
        if bucket.events:
            bucket.events[0].record()
        begin = time.perf_counter()
        with torch.profiler.record_function("ADAPTER"):
            work = self._allreduce(group, values, opts)
        bucket.call = 1e6 * (time.perf_counter() - begin)
        return work

    def inside(self, world, name, tensor, arguments):
        """libmuster's call, or what is carried out in its place."""
        if self.change == BELOW:
            dist.all_reduce(tensor)
        elif self.change == SPIN:
            end = time.perf_counter() + SPUN
            while time.perf_counter() < end:
                pass
        elif self.change != LEFT_OUT:
            self._call(world, name, *arguments)

    def call(self, world, name, *arguments):
        tensor = self._values.popleft() if name == "allreduce" else None
        if name != "allreduce" or not self.buckets:
            self._call(world, name, *arguments)
            return
        bucket = self.buckets[-1]
        if bucket.events:
            bucket.events[1].record()
        begin = time.perf_counter()
        with torch.profiler.record_function("INSIDE"):
            self.inside(world, name, tensor, arguments)
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
    for name, mapped, change in (("muster", "1", None), ("muster, not mapped", "0", None),
                                 ("muster, with callback", "1", CALLBACK), ("adapter on NCCL", "1", BELOW),
                                 ("adapter alone", "1", LEFT_OUT), ("adapter, 200 us", "1", SPIN)):
        group = dist.new_group(backend="muster")
        os.environ["MUSTER_MAP_MEMORY"] = mapped
        dist.all_reduce(torch.zeros(1, device=device), group=group)
        wait(device)
        yield name, group, change


class Step(Training):
    """A training whose host time is told apart."""

    host = 0  # ms of the last pass, until backward() has returned

    def _pass(self):
        begin = time.perf_counter()
        loss = super()._pass()
        self.host = 1000 * (time.perf_counter() - begin)
        return loss


# ---- What the host does ----


def threads():
    """Name, ns on a CPU and ns of waiting for one, of each thread; empty where the kernel does not tell."""
    found = {}
    for folder in glob.glob("/proc/self/task/*"):
        try:
            with open(f"{folder}/comm", encoding="ascii", errors="replace") as name, \
                    open(f"{folder}/schedstat", encoding="ascii") as times:
                on, ready, _ = times.read().split()
                found[folder] = (name.read().strip(), int(on), int(ready))
        except (OSError, ValueError):
            continue
    return found


def throttled():
    """Periods in which the processes of this cgroup had no CPU time left."""
    try:
        with open("/sys/fs/cgroup/cpu.stat", encoding="ascii") as lines:
            return sum(int(line.split()[1]) for line in lines if line.startswith("nr_throttled"))
    except (OSError, ValueError):
        return 0


def watched(training):
    """A step with the exchange: what its threads and the process spent."""
    before, used, held = threads(), resource.getrusage(resource.RUSAGE_SELF), throttled()
    whole = training.timed(True)
    now = resource.getrusage(resource.RUSAGE_SELF)
    rows = [(1e-6 * (on - before.get(folder, (0, 0, 0))[1]), 1e-6 * (ready - before.get(folder, (0, 0, 0))[2]), name)
            for folder, (name, on, ready) in threads().items()]
    rows = [f"{name} {on:.1f}+{ready:.1f}" for on, ready, name in sorted(rows, reverse=True)[:4]]
    return (f"step {whole:6.1f} ms, until backward() returned {training.host:6.1f}; CPU ms user "
            f"{1000 * (now.ru_utime - used.ru_utime):.0f} system {1000 * (now.ru_stime - used.ru_stime):.0f}, switches "
            f"{now.ru_nvcsw - used.ru_nvcsw} own {now.ru_nivcsw - used.ru_nivcsw} forced, throttled "
            f"{throttled() - held}; threads, ms on a CPU + waiting for one: {', '.join(rows) or 'not told'}")


# ---- A trace ----


def traced(training):
    """Events of PyTorch's profiler of some steps with the exchange."""
    from torch.profiler import ProfilerActivity, profile
    where = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])
    with profile(activities=where) as trace:
        for _ in range(TRACED):
            training.timed(True)
    path = os.path.join(os.environ.get("OUT") or tempfile.gettempdir(), f"where_{os.getpid()}.json")
    trace.export_chrome_trace(path)
    with open(path, encoding="utf-8") as file:
        events = json.load(file)
    os.remove(path)
    events = events["traceEvents"] if isinstance(events, dict) else events
    return [event for event in events if event.get("ph") == "X"]


def host_calls(events):
    """Number, ms and longest us a step of each call, inclusive of what it calls."""
    found = collections.defaultdict(lambda: [0, 0, 0])
    for event in events:
        if event.get("cat") in ("cuda_runtime", "cuda_driver", "cpu_op", "user_annotation"):
            one = found[event["name"]]
            one[0] += 1 / TRACED
            one[1] += event["dur"] / 1000 / TRACED
            one[2] = max(one[2], event["dur"])
    return found


def kernels(events):
    """Lines on NCCL's kernels, the others, and the stream that most run on."""
    work = [event for event in events if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    sums, others = [], collections.defaultdict(list)
    for event in work:
        if "nccl" not in event["name"].lower():
            others[event["args"].get("stream")].append(event)
        elif event["args"].get("grid", [0])[0] != 1:  # one block has what the ranks meet by
            sums.append(event)
    grids = collections.Counter(str(event["args"].get("grid")) for event in sums)
    lines = [f"NCCL's kernels {len(sums) / TRACED:.0f}, ms {sum(event['dur'] for event in sums) / 1000 / TRACED:.2f}, "
             f"us each {medians([event['dur'] for event in sums]):.0f} (most "
             f"{max((event['dur'] for event in sums), default=0):.0f}), grids {dict(grids.most_common(3))}"]
    for stream, mine in sorted(others.items(), key=lambda one: -len(one[1]))[:3]:
        mine.sort(key=lambda event: event["ts"])
        gaps = [after["ts"] - before["ts"] - before["dur"] for before, after in zip(mine, mine[1:])]
        gaps = [gap for gap in gaps if gap > GAP]
        took = sum(event["dur"] for event in mine) / 1000 / TRACED
        lines.append(f"stream {stream}: {len(mine) / TRACED:.0f} other kernels and copies, ms {took:.2f}; stood still "
                     f"{len(gaps) / TRACED:.0f} times for more than {GAP} us, ms {sum(gaps) / 1000 / TRACED:.2f}, most "
                     f"{max(gaps, default=0):.0f} us")
    return lines


def explain(rows, trainings, watch):
    """Tables of rank 0; all ranks make the steps."""
    for (name, _, watch.change), training in zip(rows, trainings):
        show(f"# host, {name}:", watched(training))
    first = None
    traced(trainings[0])  # the start of the profiler is no row's
    for (name, _, watch.change), training in zip(rows, trainings):
        if name not in TRACES:
            continue
        events = traced(training)
        mine = host_calls(events)
        for line in kernels(events):
            show(f"# GPU, {name}:", line)
        first = first or mine
        more = sorted(mine, key=lambda call: first.get(call, [0, 0, 0])[1] - mine[call][1])
        if mine is first:
            more = sorted(mine, key=lambda call: -mine[call][1])
        for call in more[:SHOWN]:
            count, took, most = mine[call]
            was = first.get(call, [0, 0, 0])
            show(f"# calls, {name}:", f"{call[:60]:<60} {count:6.0f} times {took:8.2f} ms, most {most:7.0f} us; "
                 f"over NCCL {was[0]:6.0f} times {was[1]:8.2f} ms")


def train(rows, watch, device, tiny):
    torch.manual_seed(1)
    model, inputs = bert_large(tiny)
    inputs = {key: value.to(device) for key, value in inputs.items()}
    trainings = []
    for _, group, _ in rows:
        trainings.append(Step(copy.deepcopy(model).to(device), inputs, group, device, False))
    times = [([], [], [], [], []) for _ in rows]
    for step in range(WARM + STEPS):
        for (_, _, watch.change), training, (alone, host, together, both, buckets) in zip(rows, trainings, times):
            alone.append(training.timed(False))
            host.append(training.host)
            watch.buckets.clear()
            together.append(training.timed(True))
            both.append(training.host)
            buckets.extend(watch.buckets if step >= WARM else [])
    for (name, _, _), (*several, buckets) in zip(rows, times):
        alone, host, together, both = [statistics.median(values[WARM:]) for values in several]
        alone, host, exposed, more = slowest([alone, host, together - alone, both - host], device)
        print_columns(name, f"alone {alone:7.2f} ms (host {host:7.2f}), exposed {exposed:6.2f} ms (host {more:6.2f}), "
                      f"{len(buckets) // STEPS:3} buckets,", buckets, device)
    explain(rows, trainings, watch)


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
