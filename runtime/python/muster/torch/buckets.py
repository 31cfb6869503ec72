# SPDX-License-Identifier: BSD-3-Clause
"""Gradients as views of libmuster's buckets: autograd adds in place, and a bucket is sent once its last one is there.

  first gradient of an output -> begin: one memset, .grad of each parameter = its view
  parameter's gradient is added -> hook -> muster_ddp_grad_ready
  end of the pass -> muster_ddp_grad_absent of the unused -> muster_ddp_sync

A hook is called for each parameter in each pass, so all that it needs is prepared: about a microsecond.
"""
import ctypes

import torch
from torch.autograd import Variable

from muster import library
from muster.library import C, Error
from muster.torch import tensors

_AWAITED, _DONE, _IDLE = range(3)  # of a parameter in a pass; idle: there is no pass


class _Memory:
    """Memory of a GPU, for torch.as_tensor."""

    def __init__(self, pointer, size):
        self.__cuda_array_interface__ = {"data": (pointer, False), "shape": (size,), "typestr": "|u1", "version": 2}


def _bytes_at(pointer, size, device):
    if device.type == "cuda":
        return torch.as_tensor(_Memory(pointer, size), device=device)
    return torch.frombuffer((ctypes.c_char * size).from_address(pointer), dtype=torch.uint8)


class Buckets:
    """[collective] libmuster's DDP of parameters by name, in forward order. All get the values of rank 0."""

    def __init__(self, lane, parameters, bucket_cap=0):
        self.syncs = False  # does the pass exchange its gradients?
        self._failed = None  # the first error
        self._lane, self._ddp = lane, ctypes.c_void_p()
        self._names = [name for name, value in parameters.items() if value.requires_grad]
        self._parameters = [parameters[name] for name in self._names]
        self._numbers = [number for number, value in enumerate(parameters.values()) if value.requires_grad]
        self._device = self._parameters[0].device
        self._create(parameters, bucket_cap)
        self._memory, self._views = self._make_views()
        self._idle = bytes([_IDLE]) * len(self._names)
        self._state = bytearray(self._idle)
        self._fresh = []  # had no gradient when the pass began
        # Of the pass: the stream of the first output's gradient. It has no object from its number: 0 would make a new one.
        self._stream, self._stream_pointer, self._stream_object = None, ctypes.c_void_p(), None
        self._zeroed = None  # an event
        # The number of a stream without an object for it.
        self._stream_of, self._current_stream = lambda index: None, lambda device: None
        if self._device.type == "cuda":
            self._stream_of, self._current_stream = torch._C._cuda_getCurrentRawStream, torch.cuda.current_stream
        for number, parameter in enumerate(self._parameters):
            parameter.register_post_accumulate_grad_hook(self._hook(number))

    def _create(self, parameters, bucket_cap):
        structs = (library.Param * len(parameters))()
        for struct, (name, value) in zip(structs, parameters.items()):
            pointer, count, dtype = tensors.moved(value.data)
            struct.name, struct.count, struct.dtype, struct.data = name.encode(), count, dtype, pointer
            struct.frozen = not value.requires_grad
        options = library.DdpOptions(first_bucket=bucket_cap, bucket_cap=bucket_cap)
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)  # the weights are there
        self._lane.run("ddp_create", structs, len(structs), ctypes.byref(options), ctypes.byref(self._ddp))
        self._lane.at_close(lambda: C["ddp_destroy"](self._ddp))
        self._lane.run("ddp_broadcast", 0, of=self._ddp)
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def _make_views(self):
        """The library has all buckets in one piece of memory."""
        starts = [C["ddp_grad"](self._ddp, number) for number in self._numbers]
        sizes = [value.numel() * value.element_size() for value in self._parameters]
        first, end = min(starts), max(start + size for start, size in zip(starts, sizes))
        memory = _bytes_at(first, end - first, self._device) if end > first else torch.empty(0, dtype=torch.uint8)
        views = [memory[start - first:start - first + size].view(value.dtype).as_strided(value.shape, value.stride())
                 if size else torch.empty_like(value)
                 for start, size, value in zip(starts, sizes, self._parameters)]
        return memory, views

    def _check(self, status):
        if status:
            try:
                self._lane.check(status)
            except Error as error:
                self._failed = self._failed or error
                raise

    # ---- A backward pass ----

    def prepare(self, syncs):
        """In a forward pass: whether its backward pass exchanges."""
        if self._failed:
            raise self._failed
        if torch._C._current_graph_task_id() == -1:  # else a backward pass computes the forward pass again
            if self.syncs and _DONE in self._state:
                raise Error("muster.torch: a backward pass was broken off, with a part of its gradients exchanged: end the "
                            "program")
            self._state[:] = self._idle
        self.syncs = syncs

    def begin(self, _=None):
        """In a backward pass, before the first gradient of a parameter where possible."""
        if self._state[0] != _IDLE:
            if self._stream_of(self._device.index) != self._stream:  # of another output, not behind the first one's
                self._current_stream(self._device).wait_event(self._zeroed)
            return
        self._state[:] = bytes(len(self._names))
        self._stream, self._stream_object = self._stream_of(self._device.index), self._current_stream(self._device)
        self._stream_pointer = ctypes.c_void_p(self._stream)
        self._fresh = [number for number, value in enumerate(self._parameters) if value.grad is None]
        with torch.no_grad():
            if len(self._fresh) == len(self._names):
                self._memory.zero_()
            elif self._fresh:
                torch._foreach_zero_([self._views[number] for number in self._fresh])
        for number in self._fresh:
            self._parameters[number].grad = self._views[number]
        self._zeroed = self._stream_object and self._stream_object.record_event()
        Variable._execution_engine.queue_callback(self._end)

    def _hook(self, number):
        """What autograd calls when the gradient is complete."""
        state, view, stream_of, index = self._state, self._views[number], self._stream_of, self._device.index
        ready, ddp, mine = C["bare ddp_grad_ready"], self._ddp, self._numbers[number]

        def accumulated(parameter):
            if state[number]:
                self._unexpected(number)
            state[number] = _DONE
            if parameter.grad is not view:
                self._move(number)
            if stream_of(index) != self._stream:
                self._stream_object.wait_stream(self._current_stream(self._device))
            if self.syncs:
                status = ready(ddp, mine, self._stream_pointer)
                if status:
                    self._check(status)

        return accumulated

    def _unexpected(self, number):
        if self._state[number] == _DONE:
            raise Error(f"muster.torch: the gradient of {self._names[number]} became ready twice in a backward pass: pass "
                        "use_reentrant=False to checkpoint")
        self.begin()

    def _move(self, number):
        """The program, or autograd where the pass can be differentiated, has put another tensor in place of the view."""
        with torch.no_grad():
            self._views[number].copy_(self._parameters[number].grad)
        self._parameters[number].grad = self._views[number]

    def _end(self):
        unused = [number for number, state in enumerate(self._state) if state == _AWAITED] if _AWAITED in self._state else []
        exchange = self.syncs and _DONE in self._state
        self._state[:] = self._idle
        fresh = set(self._fresh).intersection(unused)
        stream = self._stream_of(self._device.index)
        if stream != self._stream:
            self._current_stream(self._device).wait_stream(self._stream_object)
        if exchange:
            for number in unused:
                if number in fresh:
                    self._check(C["ddp_grad_absent"](self._ddp, self._numbers[number]))
                else:
                    self._start_earlier(number, stream)
            self._check(C["ddp_sync"](self._ddp, stream))
        for number in fresh:
            if not exchange or C["ddp_absent"](self._ddp, self._numbers[number]):
                self._parameters[number].grad = None

    def _start_earlier(self, number, stream):
        """The gradient of earlier passes."""
        if self._parameters[number].grad is not self._views[number]:
            self._move(number)
        self._check(C["ddp_grad_ready"](self._ddp, self._numbers[number], stream))


def hooks_in(parameter):
    """Is it in buckets already?"""
    hooks = getattr(parameter, "_post_accumulate_grad_hooks", None) or {}
    return any(getattr(hook, "__module__", "") == __name__ for hook in hooks.values())
