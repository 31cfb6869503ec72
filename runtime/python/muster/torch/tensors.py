# SPDX-License-Identifier: BSD-3-Clause
"""Tensors as libmuster takes them: pointer, count, type. What it cannot take is refused in one sentence."""
import torch

from muster import library
from muster.library import Error

_TYPES = {
    torch.float32: library.F32, torch.float64: library.F64, torch.float16: library.F16,
    torch.bfloat16: library.BF16, torch.int32: library.I32, torch.int64: library.I64,
}
# Sums of small integers wrap alike in 32 bits and in their own type.
_WIDENED = (torch.uint8, torch.int8, torch.int16, torch.bool)


def inside(value):
    """The tensors in what a module returns."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = value.values()
    elif hasattr(value, "__dataclass_fields__"):
        value = vars(value).values()
    elif not isinstance(value, (list, tuple)):
        return []
    return [tensor for item in value for tensor in inside(item)]


def is_float(dtype):
    """A type whose gradients libmuster averages."""
    return dtype in _TYPES and dtype.is_floating_point


def check(call, *tensors):
    """Dense, in the memory of the host or of a CUDA GPU, all on one device."""
    device = tensors[0].device
    if device.type not in ("cpu", "cuda"):
        raise Error(f"muster.torch: {call} got a tensor on device {device}: pass one on cpu or cuda")
    for tensor in tensors:
        if tensor.layout != torch.strided or tensor.is_quantized:
            what = "quantized" if tensor.is_quantized else tensor.layout
            raise Error(f"muster.torch: {call} got a tensor that is {what}: pass a dense one")
        if tensor.device != device:
            raise Error(f"muster.torch: {call} got tensors on {device} and {tensor.device}: pass all on one device")


def moved(tensor):
    """Pointer, count and type of a contiguous tensor whose data are moved, of any dtype."""
    if tensor.dtype in _TYPES:
        return tensor.data_ptr(), tensor.numel(), _TYPES[tensor.dtype]
    return tensor.data_ptr(), tensor.numel() * tensor.element_size(), library.BYTE


def check_reducible(call, dtype, op):
    """Can libmuster reduce what `reducible` makes of this type?"""
    if dtype in _TYPES or (dtype.is_complex and op in (library.SUM, library.MEAN)):
        return
    if dtype not in _WIDENED or op == library.MEAN:
        raise Error(f"muster.torch: {call} cannot reduce {dtype}: convert it to float32, float64, float16, bfloat16, "
                    "int32 or int64 first")


def reducible(tensor):
    """A contiguous tensor of a type that libmuster adds, with the values of this one; its storage where possible."""
    if tensor.dtype in _TYPES:
        return tensor.contiguous()
    if tensor.is_complex():
        return torch.view_as_real(tensor.contiguous())
    return tensor.to(torch.int32)


def put_back(source, tensor):
    """The result in `source`, which reducible or contiguous made of `tensor`."""
    if source is tensor or (source.data_ptr() == tensor.data_ptr()
                            and source.element_size() <= tensor.element_size()):
        return
    if tensor.is_complex() and not source.is_complex():
        source = torch.view_as_complex(source)
    tensor.copy_(source)
