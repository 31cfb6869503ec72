# SPDX-License-Identifier: BSD-3-Clause
"""A world of libmuster with a queue of calls: what a process group starts, and waits for.

In host memory a thread of the lane makes the calls, one after another, while Python computes. On a GPU
a call only enqueues, on a stream of the lane, so the caller's thread makes it.
"""
import queue
import threading
import time
from collections import deque

import torch
import torch.distributed as dist

from muster import library
from muster.library import C, Error, check


class Work(dist.Work):
    """What a collective returns. wait raises muster.Error; the future carries its text into C++."""

    def __init__(self, tensors, devices=()):
        super().__init__()
        self.error = None
        self._tensors = tensors
        self._done = torch.futures.Future(devices=list(devices))
        self._checked = self._done.then(self._result)

    def _result(self, _):
        if self.error:
            raise self.error
        return self._tensors

    def finish(self, error=None):
        """The call has returned, or has been enqueued on the current stream."""
        self.error = error
        self._done.set_result(self._tensors)

    def wait(self, timeout=None):
        """Block until done; on a GPU, the current stream instead. The deadline is libmuster's."""
        self._done.wait()
        if self.error:
            raise self.error
        return True

    def is_completed(self):
        return self._done.done()

    def result(self):
        return self._tensors

    def get_future(self):
        return self._checked


class Lane:
    """A world, opened through the keys of a PyTorch store that start with `key`.

    apart: its thread opens it and makes all calls, so that the ranks may start in any order.
    """

    def __init__(self, key, label, store, rank, size, timeout, apart=False):
        self.key, self.label, self.size = key, label, size
        self.world = None
        self._apart = apart
        self._streams = {}
        self._at_close = []
        self._recent = deque(maxlen=_KEPT)
        self._queue = queue.SimpleQueue()
        # A world of two opens with the first message, which may wait as long as the message.
        self._open = lambda: open_world(key, store, rank, size, timeout, timeout if apart else 0)
        if not apart:
            self.world = self._open()
        self._thread = threading.Thread(target=self._serve, name=f"muster {key}", daemon=True)
        self._thread.start()
        lanes.append(self)

    def call(self, name, *arguments):
        """A call of libmuster, in a function that `start` runs."""
        self.check(C[name](self.world, *arguments))

    def check(self, status):
        """Raise what the last call on this world reported."""
        check(status, self.world, self.label)

    def start(self, function, results, inputs=()):
        """Run function(stream), after what was started before, on these tensors."""
        device = next((tensor.device for tensor in results if tensor.is_cuda), None)
        work = Work(results, [device] if device else [])
        ready = None
        self._recent.append(work)
        if device:
            stream = self._stream(device)
            for tensor in [*results, *inputs]:
                tensor.record_stream(stream)
            ready = torch.cuda.Event()
            ready.record(torch.cuda.current_stream(device))
        if device and not self._apart:
            self._run(function, work, device, ready)
        else:
            self._queue.put((function, work, device, ready))
        return work

    def _stream(self, device):
        if device not in self._streams:
            self._streams[device] = torch.cuda.Stream(device)
        return self._streams[device]

    def _run(self, function, work, device, ready):
        try:
            if self.world is None:
                self.world = self._open()
            if device:
                stream = self._stream(device)
                stream.wait_event(ready)
                with torch.cuda.stream(stream):
                    function(stream.cuda_stream)
                    work.finish()
                return
            function(None)
        except Exception as error:  # pylint: disable=broad-except  # who waits for the work raises it
            work.finish(error)
        else:
            work.finish()

    def _serve(self):
        while True:
            task = self._queue.get()
            if task is None:
                return
            self._run(*task)
            del task

    def run(self, name, *arguments, of=None):
        """[collective] A call of libmuster on the world, or on `of`, in its turn; returns when done."""
        self.start(lambda stream: self.check(C[name](of or self.world, *arguments)), []).wait()

    def stop(self, seconds=None):
        """End the thread, after the calls that were started; wait for so long."""
        self._queue.put(None)
        self._thread.join(seconds)

    def at_close(self, function):
        """Call it before the world is closed."""
        self._at_close.append(function)

    def close(self):
        """[collective] After the calls that were started."""
        self.stop()
        for function in self._at_close:
            function()
        check(C["finalize"](self.world))


# PyTorch (2.6 too) drops the Python half of a Work that C++ gets, and then asks it for its future.
_KEPT = 8

lanes = []  # that are open


def close_all():
    """[collective] In one order on all ranks, whatever order they opened the lanes in."""
    for lane in sorted(lanes, key=lambda lane: lane.key):
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


def open_world(key, store, rank, size, timeout, init_timeout):
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
