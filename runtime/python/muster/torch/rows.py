# SPDX-License-Identifier: BSD-3-Clause
"""Gradients of embeddings, sent as the rows of the batch's tokens: send_rows(model), then DDP.

DDP leaves the weights out. In a forward pass of DDP the embedding looks its rows up in a weight that is
detached, so a weight that is also the output layer gets that layer's gradient alone, early in the backward
pass. Both parts go to libmuster's own DDP, in a world of their own, or on a GPU to rows_gpu.py:

  output layer's part -> weight.grad -> hook -> muster_ddp_grad_ready --.
  rows of the batch -> list -> end of the pass -> muster_ddp_grad_rows --+-> muster_ddp_sync -> weight.grad
"""
import ctypes
import functools
import sys
import warnings

import torch
import torch.distributed as dist
from torch import nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn.functional import embedding
from torch.nn.parallel import DistributedDataParallel

from muster import library
from muster.library import C, Error
from muster.torch import tensors
from muster.torch.group import MusterGroup
from muster.torch.rows_gpu import GpuExchange
from muster.torch.rows_pass import Exchange, Uncopied

_TYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


class Embedding(nn.Embedding):
    """What send_rows makes of nn.Embedding. It differs in forward passes of DDP that exchange gradients."""

    def forward(self, input):  # pylint: disable=redefined-builtin  # the name in nn.Embedding
        rows = self.__dict__.get("_muster_rows")
        if rows is None or not rows.exchange.collects():
            return super().forward(input)
        return _LookUp.apply(rows.exchange.anchor, input, self.weight.detach(), self.padding_idx, rows)


class _LookUp(Function):
    @staticmethod
    def forward(ctx, anchor, indices, weight, padding_idx, rows):
        ctx.save_for_backward(indices)
        ctx.padding_idx, ctx.rows = padding_idx, rows
        return embedding(indices, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        indices = ctx.saved_tensors[0].reshape(-1).long()
        ctx.rows.add(indices, grad.reshape(indices.numel(), -1), ctx.padding_idx)
        return None, None, None, None, None


class _Rows(Uncopied):
    """A weight of the exchange: the parts of its gradient in this backward pass."""

    def __init__(self, exchange, number, weight):
        self.exchange, self._number, self._weight = exchange, number, weight
        self._parts = []
        self._dense = False  # libmuster has the dense part
        memory = (ctypes.c_char * (weight.numel() * weight.element_size())).from_address(
            C["ddp_grad"](exchange.ddp, number))
        self._mean = torch.frombuffer(memory, dtype=weight.dtype).view(weight.shape)
        weight.register_post_accumulate_grad_hook(self._accumulated)

    def clear(self):
        self._parts.clear()
        self._dense = False

    def add(self, indices, values, padding_idx):
        if padding_idx is not None:
            used = indices != padding_idx
            indices, values = indices[used], values[used]
        if self.exchange.armed:
            self._parts.append((indices, values.to(self._weight.dtype)))
            self.exchange.end_with_pass()
            return
        # A pass that exchanges nothing.
        if self._weight.grad is None:
            self._weight.grad = torch.zeros_like(self._weight)
        self._weight.grad.index_add_(0, indices, values.to(self._weight.dtype))

    def _accumulated(self, _):
        if self.exchange.armed:
            self.exchange.end_with_pass()
            self._start_dense()

    def _start_dense(self):
        if self._weight.grad.data_ptr() != self._mean.data_ptr():
            self._mean.copy_(self._weight.grad)
            self._weight.grad = self._mean
        self._dense = True
        self.exchange.start("ddp_grad_ready", self._number, None)

    def start(self):
        """At the end of the pass: what is not with libmuster yet."""
        if self._weight.grad is not None and not self._dense:
            self._start_dense()  # of earlier passes
        if self._parts:
            indices = torch.cat([indices for indices, _ in self._parts])
            values = torch.cat([values for _, values in self._parts])
            self.exchange.start("ddp_grad_rows", self._number, indices.data_ptr(), indices.numel(),
                                values.data_ptr(), None, keep=(indices, values))
        elif not self._dense:
            self.exchange.start("ddp_grad_absent", self._number)
        self.clear()

    def finish(self):
        if not C["ddp_absent"](self.exchange.ddp, self._number):
            self._weight.grad = self._mean


class _Dense(Uncopied):
    """In place of an exchange, where DDP has the weights."""

    def __init__(self, ddp):
        self.ddp_module = ddp


class _Exchange(Exchange):
    """[collective] libmuster's DDP of the weights of a model, which get the values of rank 0."""

    def __init__(self, ddp, weights):
        super().__init__(ddp, "cpu")
        self.ddp = ctypes.c_void_p()
        self._works = []
        self._lane = ddp.process_group.beside("rows").lanes.host
        params = (library.Param * len(weights))(*(self._param(*item) for item in weights.items()))
        options = library.DdpOptions()
        self._lane.run("ddp_create", params, len(weights), ctypes.byref(options), ctypes.byref(self.ddp))
        self._lane.at_close(lambda: C["ddp_destroy"](self.ddp))
        self._lane.run("ddp_broadcast", 0, of=self.ddp)
        self.weights = {weight: _Rows(self, number, weight) for number, weight in enumerate(weights)}

    @staticmethod
    def _param(weight, name):
        pointer, count, dtype = tensors.moved(weight.data)
        return library.Param(name=name.encode(), count=count, dtype=dtype, data=pointer, rows=weight.shape[0])

    def begin_pass(self):
        super().begin_pass()
        self._works.clear()

    def start(self, name, *arguments, keep=()):
        def run(*_, _keep=keep):
            self._lane.check(C[name](self.ddp, *arguments))

        self._works.append(self._lane.start(run, []))

    def finish_pass(self):
        for rows in self.weights.values():
            rows.start()
        self.start("ddp_sync", None)
        for work in self._works:
            work.wait()
        for rows in self.weights.values():
            rows.finish()


_EXCHANGES = {"cpu": _Exchange, "cuda": GpuExchange}  # by the device of the weights


# ---- Hooks of the model --------------------------------------------------------------------------


def _names(model, weight):
    return [name for name, value in model.named_parameters(remove_duplicate=False) if value is weight]


def _weights(model):
    """Name by weight, of the embeddings that send_rows took."""
    return {module.weight: f"{name}.weight" for name, module in model.named_modules()
            if isinstance(module, Embedding) and module.weight.requires_grad}


def _check(ddp, weights):
    problem = None
    if not isinstance(ddp.process_group, MusterGroup):
        problem = f"needs backend muster, but DDP has {dist.get_backend(ddp.process_group)}"
    elif ddp.mixed_precision is not None:
        problem = "does not work with DDP's mixed_precision: use torch.autocast"
    for weight, name in weights.items():
        if weight.device.type not in _EXCHANGES or weight.dtype not in _TYPES:
            problem = f"took {name}, but rows of {weight.dtype} on {weight.device} cannot be sent: leave send_rows out"
        elif weight.device != next(iter(weights)).device:
            problem = f"took weights on {next(iter(weights)).device} and {weight.device}: leave it out"
    if problem:
        raise Error(f"muster.torch: send_rows {problem}")


def _exchange_of(model, ddp):
    """That of this DDP object."""
    exchange = model.__dict__.get("_muster_exchange")
    if exchange is not None and exchange.ddp_module is ddp:
        return exchange
    weights = _weights(model)
    managed = [name for weight in weights for name in _names(ddp.module, weight)
               if name not in ddp.parameters_to_ignore]
    if managed:
        warnings.warn(f"muster.torch: send_rows got a part of the model, so {managed[0]} stays dense: pass the model "
                      "that DDP gets")
        return _Dense(ddp)
    _check(ddp, weights)
    exchange = _EXCHANGES[next(iter(weights)).device.type](ddp, weights)
    for module in model.modules():
        if isinstance(module, Embedding) and module.weight in weights:
            module._muster_rows = exchange.rows(module.weight)
    return exchange


def _refuse_python_reducer():
    """It hides DDP's forward passes, so that nothing would exchange the rows."""
    dynamo = sys.modules.get("torch._dynamo")
    if dynamo and getattr(dynamo.config, "optimize_ddp", None) == "python_reducer":
        raise Error("muster.torch: send_rows does not work with torch._dynamo.config.optimize_ddp = 'python_reducer': "
                    "leave one of them out")


def _before_forward(model, _):
    if not torch.is_grad_enabled():
        return
    ddp = DistributedDataParallel._get_active_ddp_module()
    if ddp is None:
        _refuse_python_reducer()
        return
    exchange = model._muster_exchange = _exchange_of(model, ddp)
    if isinstance(exchange, Exchange):
        exchange.begin_pass()


def _after_forward(model, _, result):
    """The pass of a rank that did not use an embedding ends with the exchange too."""
    exchange = model.__dict__.get("_muster_exchange")
    if exchange is not None and exchange.armed:
        for tensor in tensors.inside(result):
            if tensor.requires_grad:
                tensor.register_hook(exchange.end_with_pass)


@functools.cache
def _leave_out_of_graphs():
    """At the first use, because it loads PyTorch's compiler, which takes as long as PyTorch itself. A saved model
    names the hooks, so they keep their names."""
    global _before_forward, _after_forward
    Embedding.forward = torch.compiler.disable(Embedding.forward)
    _before_forward = torch.compiler.disable(_before_forward)
    _after_forward = torch.compiler.disable(_after_forward)


def _takes(module):
    return (type(module) is nn.Embedding and module.max_norm is None and not module.scale_grad_by_freq
            and not module.sparse and module.weight.requires_grad and module.weight.numel() > 0
            and module.weight.dtype in _TYPES and module.weight.is_contiguous())


def send_rows(model):
    """Send the gradients of the model's embeddings as rows. Call it before DDP gets this model; returns the model.

    Dense stay embeddings with max_norm, scale_grad_by_freq or sparse, and all where DDP would have no parameter left.
    """
    taken = {module.weight for module in model.modules() if _takes(module)}
    if not taken or all(weight in taken for weight in model.parameters() if weight.requires_grad):
        return model
    for module in model.modules():
        if type(module) is nn.Embedding and module.weight in taken and _takes(module):
            module.__class__ = Embedding
    names = {name for weight in taken for name in _names(model, weight)}
    # DDP looks up ".name" for a parameter of the model itself, and "_orig_mod.name" in a compiled model.
    names |= {form.format(name) for name in names for form in (".{}", "_orig_mod.{}")}
    ignored = set(getattr(model, "_ddp_params_and_buffers_to_ignore", ()))
    model._ddp_params_and_buffers_to_ignore = sorted(ignored | names)
    _leave_out_of_graphs()
    model.register_forward_pre_hook(_before_forward)
    model.register_forward_hook(_after_forward)
    return model
