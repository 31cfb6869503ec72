# SPDX-License-Identifier: BSD-3-Clause
"""libmuster's sampler as a batch sampler of torch.utils.data.DataLoader."""
import ctypes

from torch.utils.data import Sampler as TorchSampler

from muster import library
from muster.library import C, Error
from muster.torch.group import lane_of

_TAILS = ("pad", "drop", "keep")  # enum muster_tail


class Sampler(TorchSampler):
    """[collective] The indices of this rank, step by step: DataLoader(data, batch_sampler=Sampler(len(data), 32)).

    The order of an epoch depends on seed and epoch alone. state_dict has the position, which a run with another
    number of ranks continues from. Read ahead by the DataLoader, the position runs before the training: with workers
    save it with `state_dict(steps_done)`.
    """

    def __init__(self, samples, batch, seed=0, tail="pad", shuffle=True, group=None):
        if tail not in _TAILS:
            raise Error(f"muster.torch: Sampler got tail {tail!r}: use one of {', '.join(_TAILS)}")
        self._batch, self._lane = batch, lane_of(group)
        self._sampler = ctypes.c_void_p()
        options = library.SamplerOptions(samples=samples, batch=batch, seed=seed, tail=_TAILS.index(tail),
                                         in_order=not shuffle)
        self._lane.run("sampler_create", ctypes.byref(options), ctypes.byref(self._sampler))
        self._start = self._state()

    def _state(self):
        state = library.SamplerState()
        C["sampler_save"](self._sampler, ctypes.byref(state))
        return state

    def set_epoch(self, epoch):
        """Start this epoch from its beginning."""
        C["sampler_set_epoch"](self._sampler, epoch)
        self._start = self._state()

    def __len__(self):
        """Steps from the position to the end of the epoch."""
        return C["sampler_steps"](self._sampler)

    def __iter__(self):
        indices, count = (ctypes.c_uint64 * self._batch)(), ctypes.c_uint64()
        self._start = self._state()
        while C["sampler_next"](self._sampler, indices, ctypes.byref(count)) == 1:
            yield list(indices[:count.value])

    def state_dict(self, steps=None):
        """The position. steps: of this iteration that the training has done, where a DataLoader reads ahead."""
        state = self._state() if steps is None else self._start
        position = state.position if steps is None else min(state.position + steps * self._batch * self._lane.size,
                                                            state.samples)
        return {"samples": state.samples, "seed": state.seed, "epoch": state.epoch, "position": position}

    def load_state_dict(self, values):
        state = library.SamplerState(**values)
        self._lane.check(C["sampler_restore"](self._sampler, ctypes.byref(state)))
        self._start = self._state()
