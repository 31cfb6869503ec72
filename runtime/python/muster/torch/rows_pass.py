# SPDX-License-Identifier: BSD-3-Clause
"""A backward pass whose embeddings give rows: when it begins, and when it ends."""
import torch
from torch.autograd import Variable
from torch.nn.parallel import DistributedDataParallel

from muster.library import Error


class Uncopied:
    """A copied or saved model has None in place of this: its first forward pass makes another."""

    armed = False

    def __reduce__(self):
        return type(None), ()


class Exchange(Uncopied):
    """The weights of a model in DDP passes. A subclass fills `weights`, and exchanges in `finish_pass`."""

    def __init__(self, ddp, device):
        self.ddp_module = ddp
        self.armed = False  # a forward pass has begun whose gradients are exchanged
        self.anchor = torch.zeros(0, device=device, requires_grad=True)  # gives a look-up a backward pass
        self.weights = {}
        self._queued = False

    def rows(self, weight):
        return self.weights[weight]

    def begin_pass(self):
        """In a forward pass of DDP."""
        if self.ddp_module._join_config.enable:
            raise Error("muster.torch: send_rows does not work inside Join: leave one of them out")
        self.armed = self.ddp_module.require_backward_grad_sync
        self._queued = False
        for rows in self.weights.values():
            rows.clear()

    def collects(self):
        """In a forward pass of DDP, or where a backward pass computes it again."""
        active = DistributedDataParallel._get_active_ddp_module()
        again = active is None and torch._C._current_graph_task_id() != -1
        return self.armed and torch.is_grad_enabled() and (again or active is self.ddp_module)

    def end_with_pass(self, _=None):
        """In a backward pass: exchange at its end."""
        if self.armed and not self._queued:
            self._queued = True
            Variable._execution_engine.queue_callback(self._end)

    def _end(self):
        self.armed = False
        self.finish_pass()

    def finish_pass(self):
        raise NotImplementedError
