#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What one all-reduce of a GPU's tensor asks of CUDA and of libmuster, in which order and on which stream.

CUDA is a fake that writes down its calls, so no GPU is needed. The last line is the CPU time of a call, without CUDA
and libmuster.
"""
import os
import time

import torch

from torch_current import Current

STEPS = []
GPU = torch.device("cuda", 0)


class Stream:
    """The caller's, or the next one that is created."""

    names = iter(["side stream", "second side stream"])

    def __init__(self, device=None, name=None):
        self.name = name or next(self.names)
        self.cuda_stream = self

    def wait_event(self, event):
        STEPS.append(f"{self.name} waits for {event.after}")


class Event:
    created = 0

    def __init__(self):
        Event.created += 1

    def record(self, stream):
        self.after = stream.name


Current.streams.append(Stream(name="the caller's"))


class Future:
    """A GPU's future records an event on the current stream."""

    def __init__(self, devices):
        self._done = False
        assert devices == [GPU], devices

    def set_result(self, _):
        self._done = True
        STEPS.append(f"the future is behind the {Current.streams[-1].name}")

    def done(self):
        return self._done

    def then(self, _):
        STEPS.append("a callback takes a stream more")
        return self


class Tensor(torch.Tensor):
    """In host memory, but it is on a GPU."""

    device = GPU
    __torch_function__ = torch._C._disabled_torch_function_impl

    def record_stream(self, stream):
        STEPS.append(f"the allocator keeps the memory for the {stream.name}")


torch.cuda.is_available, torch.cuda.Stream, torch.cuda.Event = lambda: True, Stream, Event
torch.cuda.current_stream, torch.cuda.stream = lambda device: Current.streams[-1], Current
torch.futures.Future = Future

from muster.torch import group, lane  # noqa: E402  (the fakes are there first)

lane.open_world = lambda *arguments: "world"
lane.C["allreduce"] = lambda *arguments: STEPS.append(f"all-reduce on the {arguments[-1].name}") or 0
ranks = group.MusterGroup(None, 0, 2, 0, "0")
bucket = torch.ones(1 << 10).as_subclass(Tensor)

ranks.allreduce([bucket]).get_future()
print(*STEPS, sep="\n")
COUNT = 3000
begin = time.thread_time()
for _ in range(COUNT):
    ranks.allreduce([bucket]).get_future()
print(f"{Event.created} event, {1e6 * (time.thread_time() - begin) / COUNT:.1f} us a call", flush=True)
os._exit(0)  # the world is not one
