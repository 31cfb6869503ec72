# SPDX-License-Identifier: BSD-3-Clause
"""A world of libmuster with a queue of calls: what a process group starts, and waits for.

In host memory a thread of the lane makes the calls, one after another, while Python computes. On a GPU
a call only enqueues, on a stream of the lane, so the caller's thread makes it: except in a backward
pass, whose thread has kernels to launch, so that a thread of all lanes on the GPU makes it.
"""
import contextlib
import os
import queue
import threading
import time
from collections import deque

import torch
import torch.distributed as dist

from muster import library
from muster.library import C, Error, check
from muster.torch.passes import Backward


class Work(dist.Work):
    """What a collective returns. wait raises muster.Error; the future carries its text into C++."""

    def __init__(self, tensors, devices, kept, in_pass):
        """kept: a list that will hold it until the first question for its result. in_pass: the end of a backward
        pass raises its error."""
        super().__init__()
        self.error = None
        self._in_pass = in_pass
        self._tensors = tensors
        self._kept = kept
        self._done = torch.futures.Future(devices=list(devices))

    def _result(self, _):
        if self.error:
            raise self.error
        return self._tensors

    def finish(self, error=None):
        """The call has returned, or has been enqueued on the current stream."""
        self.error = error
        self._done.set_result(self._tensors)

    def _asked(self):
        """Who asks holds the work, or its future. The list would keep its tensors alive after these."""
        with contextlib.suppress(ValueError):  # others have taken its place, or it was asked before
            self._kept.remove(self)

    def wait(self, timeout=None):
        """Block until done; on a GPU, the current stream instead. The deadline is libmuster's."""
        self._asked()
        self._done.wait()
        if self.error:
            raise self.error
        return True

    def is_completed(self):
        return self._done.done()

    def result(self):
        return self._tensors

    def get_future(self):
        """C++ gets a failure only from a callback, for which a GPU takes another stream and two events."""
        self._asked()
        if self._in_pass or (self.is_completed() and not self.error):
            return self._done
        return self._done.then(self._result)


def _patience(timeout):
    """Seconds of a collective; 0 where MUSTER_TIMEOUT has none, which libmuster refuses."""
    try:
        return timeout or float(os.environ.get("MUSTER_TIMEOUT") or 600)
    except ValueError:
        return 0


class Lane:
    """A world, opened through the keys of a PyTorch store that start with `key`.

    device: the GPU of its tensors; None: they are in host memory.
    apart: its thread opens it and makes all calls, so that the ranks may start in any order.
    """

    def __init__(self, key, label, store, rank, size, timeout, device, apart):
        self.key, self.label, self.size, self.device = key, label, size, device
        self.world = None
        self._in_thread = apart or not device
        self._stream = torch.cuda.Stream(device) if device else None
        self._ready = torch.cuda.Event() if device else None  # of calls in the caller's thread, one after another
        self._at_close = []
        self._recent = deque(maxlen=_KEPT)
        self._queue = queue.SimpleQueue()
        # A world that the first call opens may wait as long as that call.
        patience = _patience(timeout) if apart or torch.cuda.is_available() else 0
        self._open = lambda: open_world(key, store, rank, size, timeout, patience, device, not apart)
        self._thread = threading.Thread(target=self._serve, name=f"muster {key}", daemon=True)
        self._thread.start()
        lanes.append(self)

    def open(self):
        """[collective] Unless it is open."""
        if self.world is None:
            self.world = self._open()

    def call(self, name, *arguments):
        """A call of libmuster, in a function that `start` runs."""
        self.check(C[name](self.world, *arguments))

    def check(self, status):
        """Raise what the last call on this world reported."""
        check(status, self.world, self.label)

    def start(self, function, results, inputs=()):
        """Run function(call, stream), after what was started before, on these tensors."""
        in_pass = bool(self.device) and not self._in_thread and backward.is_under_way()
        work = Work(results, [self.device] if self.device else [], self._recent, in_pass)
        ready = None
        self._recent.append(work)
        if self.device:
            for tensor in [*results, *inputs]:
                tensor.record_stream(self._stream)
            ready = torch.cuda.Event() if self._in_thread or in_pass else self._ready
            ready.record(torch.cuda.current_stream(self.device))
        if self._in_thread:
            self._queue.put((function, work, ready))
        elif in_pass:
            backward.put(self._run, function, work, ready)
        else:
            with backward.done():
                self._run(function, work, ready)
        return work

    def mark(self):
        """An event of the GPU, after all that its current stream and the lane have to do."""
        event = torch.cuda.Event()
        with backward.done():
            self._stream.wait_stream(torch.cuda.current_stream(self.device))
            event.record(self._stream)
        return event

    def _current(self):
        """The lane's stream and its device are current inside."""
        return torch.cuda.stream(self._stream) if self.device else contextlib.nullcontext()

    def _run(self, function, work, ready):
        error = None
        with self._current():
            try:
                self.open()
                if ready:
                    self._stream.wait_event(ready)
                function(self.call, self._stream.cuda_stream if self.device else None)
            except Exception as problem:  # pylint: disable=broad-except  # who waits for the work raises it
                error = problem
            work.finish(error)
        return error

    def _serve(self):
        while True:
            task = self._queue.get()
            if task is None:
                return
            self._run(*task)
            del task

    def run(self, name, *arguments, of=None):
        """[collective] A call of libmuster on the world, or on `of`, in its turn; returns when done."""
        self.start(lambda call, stream: self.check(C[name](of or self.world, *arguments)), []).wait()

    def stop(self, seconds=None):
        """End the thread, after the calls that were started; wait for so long."""
        self._queue.put(None)
        self._thread.join(seconds)

    def at_close(self, function):
        """Call it before the world is closed."""
        self._at_close.append(function)

    @property
    def has_gradients(self):
        """Of a ddp object, which is destroyed before the world is closed."""
        return bool(self._at_close)

    def close(self):
        """[collective] After the calls that were started."""
        self.stop()
        if self.world is None:
            return
        with backward.done(), self._current():
            for function in self._at_close:
                function()
            check(C["finalize"](self.world))


class Lanes:
    """The lanes of some ranks: one for host memory, one for the GPU of this rank.

    Each is opened by the first call on such tensors, because programs choose their GPU after init_process_group.
    Without GPUs it is opened at once.
    """

    def __init__(self, key, label, store, rank, size, timeout, apart=False):
        self._label = label
        self._lanes = {}
        self._create = lambda suffix, device: Lane(key + suffix, label, store, rank, size, timeout, device, apart)
        if not apart and not torch.cuda.is_available():
            self.host.open()

    @property
    def host(self):
        return self.of(torch.device("cpu"))

    @property
    def gpu(self):
        """None before the first call on tensors of a GPU."""
        return self._lanes.get("cuda")

    def of(self, device):
        """That of tensors on this device."""
        lane = self._lanes.get(device.type)
        if lane is None:
            on_gpu = device.type == "cuda"
            lane = self._lanes[device.type] = self._create("/gpu" if on_gpu else "", device if on_gpu else None)
        if lane.device and lane.device != device:
            raise Error(f"muster.torch: {self._label}a tensor is on {device}, but the first one was on {lane.device}: "
                        "use one GPU in each process")
        return lane


# PyTorch (2.6 too) drops the Python half of a Work that C++ gets, and then waits for it or asks it for its future.
_KEPT = 8

lanes = []  # that are open
backward = Backward()


def close_all():
    """[collective] In one order on all ranks, whatever order they opened the lanes in. Those of gradients are first:
    there another rank may still be in a step, and is told."""
    for lane in sorted(lanes, key=lambda lane: (not lane.has_gradients, lane.key)):
        lane.close()
    lanes.clear()


# ---- Open a world through PyTorch's store --------------------------------------------------------


def _await(store, key, size):
    """Until all ranks have added themselves: a blocking get would hold the store's lock, which other threads need
    to open their worlds. Store.check would do, but PyTorch 2.1 lacks it."""
    store.add(key, 1)
    pause = 0.001
    while store.add(key, 0) < size:
        time.sleep(pause)
        pause = min(2 * pause, 0.05)


def open_world(key, store, rank, size, timeout, init_timeout, device, sums):
    """device: a GPU, which is current; None: the world is for host memory. sums: not for messages alone."""
    rounds = []
    problem = []

    def allgather(_, mine, everything, length):
        try:
            number = len(rounds)
            rounds.append(number)
            store.set(f"{key}/{number}/{rank}", library.ctypes.string_at(mine, length))
            _await(store, f"{key}/{number}", size)
            for other in range(size):
                data = store.get(f"{key}/{number}/{other}")
                library.ctypes.memmove(everything + other * length, data, length)
            return 0
        except Exception as error:  # pylint: disable=broad-except  # C is between here and the caller
            problem.append(error)
            return 1

    exchange = library.Exchange(rank=rank, size=size, allgather=library.ALLGATHER(allgather), first=1)
    options = library.Options(timeout=timeout, init_timeout=init_timeout, on_failure=b"return",
                              backend=b"nccl" if device else b"host", own_device=1, map_memory=int(sums),
                              exchange=library.ctypes.pointer(exchange))
    world = library.c_void_p()
    try:
        check(C["init"](library.ctypes.byref(world), library.ctypes.byref(options)))
    except Error as error:
        raise error from (problem[0] if problem else None)
    # On GPUs later calls gather through the exchange too.
    _exchanges.append(exchange)
    return world


_exchanges = []
