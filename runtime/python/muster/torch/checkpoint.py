# SPDX-License-Identifier: BSD-3-Clause
"""libmuster's checkpoints of what has state_dict and load_state_dict: models, optimizers, Sampler.

Each tensor is an item, named by its path. What else the states hold is one item of fixed size, so that
the items of a run that starts have the sizes of those that were saved.
"""
import ctypes
import io

import torch

from muster import library
from muster.library import C, Error
from muster.torch.group import lane_of

_REST = 1 << 16  # bytes of the item that holds the rest, its length included
_PLACE = "muster: tensor number"


def _take_out(value, path, tensors):
    """value without its tensors, which are appended to `tensors` with their paths."""
    if isinstance(value, torch.Tensor):
        tensors.append((path, value))
        return {_PLACE: len(tensors) - 1}
    if isinstance(value, dict):
        return {key: _take_out(item, f"{path}.{key}", tensors) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_take_out(item, f"{path}.{number}", tensors) for number, item in enumerate(value))
    return value


def _put_in(value, tensors):
    if isinstance(value, dict):
        if _PLACE in value:
            return tensors[value[_PLACE]]
        return {key: _put_in(item, tensors) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_put_in(item, tensors) for item in value)
    return value


def _pack(value):
    data = io.BytesIO()
    torch.save(value, data)
    data = data.getvalue()
    if len(data) > _REST - 8:
        raise Error(f"muster.torch: the states hold {len(data)} bytes beside their tensors: the most is {_REST - 8}")
    return ctypes.create_string_buffer(len(data).to_bytes(8, "little") + data, _REST)


def _unpack(packed):
    length = int.from_bytes(packed.raw[:8], "little")
    return torch.load(io.BytesIO(packed.raw[8:8 + length]), weights_only=True)


def _first_step(optimizer):
    """Give an optimizer that has not made a step its state: one step of zeros that changes no weight."""
    rates = [group["lr"] for group in optimizer.param_groups]
    weights = [weight for group in optimizer.param_groups for weight in group["params"] if weight.requires_grad]
    grads = [weight.grad for weight in weights]
    for group in optimizer.param_groups:
        group["lr"] = torch.zeros_like(group["lr"]) if isinstance(group["lr"], torch.Tensor) else 0.0
    for weight in weights:
        weight.grad = torch.zeros_like(weight)
    optimizer.step()
    for weight, grad in zip(weights, grads):
        weight.grad = grad
    for group, rate in zip(optimizer.param_groups, rates):
        group["lr"] = rate


class Checkpoint:
    """[collective] Files NAME-STEP.muster in folder: Checkpoint("saved", model=model, optimizer=optimizer).

    All ranks give the same objects. sharded: each rank writes its part. background: save returns when the state
    is copied, and the file is written meanwhile.
    """

    def __init__(self, folder, name="checkpoint", kind="", keep=3, sharded=False, background=True, group=None,
                 **objects):
        self._objects = objects
        self._lane = lane_of(group, self._device())
        self._checkpoint = ctypes.c_void_p()
        options = library.CheckpointOptions(name=name.encode(), kind=kind.encode(), keep=keep, sharded=int(sharded),
                                            mode=int(background))
        self._lane.run("checkpoint_open", str(folder).encode(), ctypes.byref(options), ctypes.byref(self._checkpoint))

    def _items(self, rest, tensors):
        items = (library.Item * (len(tensors) + 1))()
        items[0] = library.Item(name=b"states without tensors", data=ctypes.addressof(rest), bytes=_REST)
        for number, (path, tensor) in enumerate(tensors):
            items[number + 1] = library.Item(name=path.encode(), data=tensor.data_ptr(),
                                             bytes=tensor.numel() * tensor.element_size())
        return items

    def _device(self):
        """The GPU of the states, else the host."""
        return next((tensor.device for _, tensor in self._states()[1] if tensor.is_cuda), torch.device("cpu"))

    def _states(self):
        tensors = []
        rest = {name: _take_out(value.state_dict(), name, tensors) for name, value in self._objects.items()}
        return rest, tensors

    def save(self, step):
        """[collective] Save the state as of this step."""
        rest, tensors = self._states()
        tensors = [(path, tensor.detach().contiguous()) for path, tensor in tensors]
        packed = _pack(rest)
        items = self._items(packed, tensors)
        self._lane.run("checkpoint_save", step, items, len(items), of=self._checkpoint)

    def load(self):
        """[collective] Load the newest whole checkpoint. Returns its step; None, and no change, without any."""
        fresh = [value for value in self._objects.values() if isinstance(value, torch.optim.Optimizer)
                 and not value.state]
        for optimizer in fresh:
            _first_step(optimizer)
        tensors = [(path, torch.empty_like(tensor, memory_format=torch.contiguous_format))
                   for path, tensor in self._states()[1]]
        rest = ctypes.create_string_buffer(_REST)
        step, found = ctypes.c_uint64(), ctypes.c_int()
        items = self._items(rest, tensors)
        try:
            self._lane.run("checkpoint_load", items, len(items), ctypes.byref(step), ctypes.byref(found),
                           of=self._checkpoint)
        finally:
            for optimizer in fresh:
                optimizer.state.clear()
        if not found.value:
            return None
        values = [tensor for _, tensor in tensors]
        for name, state in _unpack(rest).items():
            self._objects[name].load_state_dict(_put_in(state, values))
        return step.value

    def wait(self):
        """[collective] Block until the last save is on disk."""
        self._lane.run("checkpoint_wait", of=self._checkpoint)

    @property
    def path(self):
        """The file last saved or loaded."""
        return C["checkpoint_path"](self._checkpoint).decode()

    def close(self):
        """[collective] After the last save."""
        self._lane.run("checkpoint_close", of=self._checkpoint)
        self._checkpoint = None
