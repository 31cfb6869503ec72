# SPDX-License-Identifier: BSD-3-Clause
"""DataParallel: in place of torch.nn.parallel.DistributedDataParallel, with the gradients in libmuster's buckets."""
import contextlib

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.utils import _to_kwargs
from torch.nn.parallel import DistributedDataParallel

from muster.library import Error
from muster.torch import buckets, tensors
from muster.torch.group import lanes_beside
from muster.torch.model import check_model
from muster.torch.rows import Embedding

_COALESCED = 250 << 20  # bytes of a message with buffers, as in PyTorch's DDP
_SPLIT = 25  # MiB of gradients of a part of a compiled module, as in DDP


def _group(process_group):
    if not dist.is_initialized():
        raise Error("muster.torch: DataParallel has no process group: call torch.distributed.init_process_group first")
    return process_group if process_group is not None else dist.group.WORLD


def _check(module, parameters):
    if any(isinstance(one, Embedding) for one in module.modules()):
        raise Error("muster.torch: DataParallel got a module of send_rows, which is for DDP: leave send_rows out")
    learning = {name: value for name, value in parameters.items() if value.requires_grad}
    if not learning:
        raise Error("muster.torch: DataParallel got a module without a parameter that requires a gradient: use the module")
    first = next(iter(parameters))
    device = parameters[first].device
    for name, value in parameters.items():
        tensors.check(f"DataParallel with parameter {name}", value)
        extent = 1 + sum((size - 1) * stride for size, stride in zip(value.shape, value.stride()))
        if value.numel() and extent != value.numel():
            raise Error(f"muster.torch: parameter {name} is not dense in memory: make it contiguous")
        if value.device != device:
            raise Error(f"muster.torch: parameter {first} is on {device}, but {name} on {value.device}: put the module on "
                        "one device")
    for name, value in learning.items():
        if not tensors.is_float(value.dtype):
            raise Error(f"muster.torch: parameter {name} is {value.dtype}: use float32, float64, float16 or bfloat16")
        if buckets.hooks_in(value):
            raise Error(f"muster.torch: parameter {name} is in a DataParallel already: use that one")


class DataParallel(nn.Module):
    """[collective] A module whose gradients become the mean over the ranks in each backward pass.

    Of DDP's arguments find_unused_parameters, gradient_as_bucket_view and static_graph change nothing: parameters may
    be unused, and gradients are views of buckets. bucket_cap_mb: None lets libmuster cut the buckets.
    """

    def __init__(self, module, device_ids=None, output_device=None, dim=0, broadcast_buffers=True, process_group=None,
                 bucket_cap_mb=None, find_unused_parameters=False, gradient_as_bucket_view=True, static_graph=False):
        # pylint: disable=too-many-arguments,unused-argument  # those of DDP
        super().__init__()
        self.module, self.broadcast_buffers = module, broadcast_buffers
        self.process_group = _group(process_group)
        self.require_backward_grad_sync = self.require_forward_param_sync = True
        parameters = dict(module.named_parameters())
        _check(module, parameters)
        self.device = next(iter(parameters.values())).device
        self._moves_inputs = bool(device_ids)
        check_model(module, self.process_group)
        lane = lanes_beside(self.process_group, "buckets").of(self.device)
        self.bucket_bytes_cap = int((bucket_cap_mb or _SPLIT) * (1 << 20))
        self._buckets = buckets.Buckets(lane, parameters, int((bucket_cap_mb or 0) * (1 << 20)))
        self._send_buffers()

    def _send_buffers(self):
        values = [value.detach() for value in self.module.buffers()]
        if values:
            dist._broadcast_coalesced(self.process_group, values, _COALESCED, 0)

    def forward(self, *inputs, **kwargs):
        inputs, kwargs = self._before(inputs, kwargs)
        with DistributedDataParallel._inside_ddp_forward(self):  # a compiler splits the module's graph, as for DDP
            output = self.module(*inputs, **kwargs)
        self._after(output)
        return output

    @torch._disable_dynamo
    def _before(self, inputs, kwargs):
        if self.broadcast_buffers and self.require_forward_param_sync:
            self._send_buffers()
        self.require_forward_param_sync = torch.is_grad_enabled() and self.require_backward_grad_sync
        if torch.is_grad_enabled():
            self._buckets.prepare(self.require_backward_grad_sync)
        if self._moves_inputs:
            (inputs,), (kwargs,) = _to_kwargs(inputs, kwargs, self.device, False)
        return inputs, kwargs

    @torch._disable_dynamo
    def _after(self, output):
        if torch.is_grad_enabled():
            for tensor in tensors.inside(output):
                if tensor.requires_grad:
                    tensor.register_hook(self._buckets.begin)

    @contextlib.contextmanager
    def no_sync(self):
        """Gradients of forward passes inside are added up here, and exchanged with those of the first one outside."""
        before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    def join_hook(self, **_):
        raise Error("muster.torch: DataParallel does not work inside Join: give all ranks as many batches, or use "
                    "torch.nn.parallel.DistributedDataParallel")

    def __reduce_ex__(self, _):
        raise Error("muster.torch: DataParallel cannot be copied or saved: copy its module, or save its state_dict")
