# SPDX-License-Identifier: BSD-3-Clause
"""Calls that a backward pass starts on a GPU: a thread makes them, while the pass launches its kernels.

One thread makes those of all lanes, so that they reach the GPU in the order in which the program started them, as
on the other ranks. A call outside of a backward pass waits for it. A failure is raised at the end of the pass: who
has the future of a call in C++, as DistributedDataParallel has, is told of no other error than that of a callback,
which costs a stream and two events for each call.
"""
import contextlib
import queue
import threading

import torch


def _pass_under_way():
    """The number of this thread's backward pass; -1: none, or one that is captured, whose calls its thread makes."""
    number = torch._C._current_graph_task_id()  # pylint: disable=protected-access
    return -1 if number != -1 and torch.cuda.is_current_stream_capturing() else number


class Backward:
    """The thread, what it has to do, and what failed in it."""

    def __init__(self):
        self._queue = queue.SimpleQueue()
        self._changed = threading.Condition()
        self._waiting = 0  # calls that the thread has not made yet
        self._failed = None  # the first error of the pass
        self._watched = -1  # the pass whose end raises errors
        self._thread = None

    def is_under_way(self):
        """Is the caller in a backward pass? Its end raises the error of `put` from now on."""
        number = _pass_under_way()
        if number not in (-1, self._watched):
            torch.autograd.Variable._execution_engine.queue_callback(self._end)  # pylint: disable=protected-access
            self._watched = number
        return number != -1

    def put(self, function, *arguments):
        """Call function(*arguments) in the thread. It returns an error, or None."""
        with self._changed:
            self._waiting += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="muster backward", daemon=True)
                self._thread.start()
        self._queue.put((function, arguments))

    @contextlib.contextmanager
    def done(self):
        """The thread has made all calls, and makes none inside."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting == 0)
            yield

    def _serve(self):
        while True:
            function, arguments = self._queue.get()
            error = function(*arguments)
            del function, arguments
            with self._changed:
                self._failed = self._failed or error
                self._waiting -= 1
                self._changed.notify_all()

    def _end(self):
        with self.done():
            error, self._failed = self._failed, None
        if error:
            raise error
