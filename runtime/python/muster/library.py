# SPDX-License-Identifier: BSD-3-Clause
"""libmuster.so by ctypes: types, prototypes, and failures as exceptions."""
import ctypes
from ctypes import POINTER, c_char_p, c_double, c_int, c_size_t, c_uint64, c_void_p

EUSAGE, ERENDEZVOUS, ECONTRACT = 10, 11, 12  # enum muster_status
F32, F64, F16, BF16, I32, I64, BYTE = range(7)  # enum muster_dtype
SUM, MIN, MAX, MEAN = range(4)  # enum muster_op


class Error(RuntimeError):
    """A failure. The text is libmuster's sentence, `status` its exit status (muster(3))."""

    def __init__(self, sentence, status=EUSAGE):
        super().__init__(sentence)
        self.status = status


ALLGATHER = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_size_t)


class Exchange(ctypes.Structure):
    """struct muster_exchange"""

    _fields_ = [("rank", c_int), ("size", c_int), ("allgather", ALLGATHER), ("arg", c_void_p), ("first", c_int),
                ("reserved", c_uint64 * 3)]


class Options(ctypes.Structure):
    """struct muster_options"""

    _fields_ = [("backend", c_char_p), ("transport", c_char_p), ("init_timeout", c_double), ("timeout", c_double),
                ("single", c_int), ("log", c_char_p), ("on_failure", c_char_p), ("elastic", c_int),
                ("exchange", POINTER(Exchange)), ("grow", c_char_p), ("join", c_char_p), ("own_device", c_int),
                ("map_memory", c_int), ("reserved", c_uint64 * 4)]


class SamplerOptions(ctypes.Structure):
    """struct muster_sampler_options"""

    _fields_ = [("samples", c_uint64), ("batch", c_uint64), ("seed", c_uint64), ("tail", c_int), ("in_order", c_int),
                ("reserved", c_uint64 * 4)]


class SamplerState(ctypes.Structure):
    """struct muster_sampler_state"""

    _fields_ = [("samples", c_uint64), ("seed", c_uint64), ("epoch", c_uint64), ("position", c_uint64)]


class CheckpointOptions(ctypes.Structure):
    """struct muster_checkpoint_options"""

    _fields_ = [("name", c_char_p), ("kind", c_char_p), ("keep", c_int), ("sharded", c_int), ("mode", c_int),
                ("reserved", c_uint64 * 4)]


class Item(ctypes.Structure):
    """struct muster_item"""

    _fields_ = [("name", c_char_p), ("data", c_void_p), ("bytes", c_uint64), ("offset", c_uint64),
                ("total", c_uint64), ("reserved", c_uint64 * 4)]


class Param(ctypes.Structure):
    """struct muster_param"""

    _fields_ = [("name", c_char_p), ("count", c_size_t), ("dtype", c_int), ("data", c_void_p), ("grad", c_void_p),
                ("frozen", c_int), ("rows", c_size_t), ("reserved", c_uint64 * 3)]


class DdpOptions(ctypes.Structure):
    """struct muster_ddp_options"""

    _fields_ = [("first_bucket", c_size_t), ("bucket_cap", c_size_t), ("backward", c_double), ("fixed_order", c_int),
                ("screen", c_int), ("require_all", c_int), ("shard", c_int), ("hook", c_void_p),
                ("reserved", c_uint64 * 8)]


_TEXT = ("version", "error", "checkpoint_path")  # functions that return a string
_SIZES = POINTER(c_size_t)
_ARGUMENTS = {
    "version": [],
    "error": [c_void_p],
    "init": [POINTER(c_void_p), POINTER(Options)],
    "finalize": [c_void_p],
    "barrier": [c_void_p],
    "allreduce": [c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p],
    "broadcast": [c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p],
    "allgather": [c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_void_p],
    "reduce_scatter": [c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_void_p],
    "reduce": [c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_int, c_int, c_void_p],
    "gather": [c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p],
    "scatter": [c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p],
    "alltoallv": [c_void_p, c_void_p, _SIZES, _SIZES, c_void_p, _SIZES, _SIZES, c_int, c_void_p],
    "send": [c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p],
    "recv": [c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p],
    "ddp_create": [c_void_p, POINTER(Param), c_int, POINTER(DdpOptions), POINTER(c_void_p)],
    "ddp_destroy": [c_void_p],
    "ddp_broadcast": [c_void_p, c_int],
    "ddp_grad": [c_void_p, c_int],
    "ddp_bucket_of": [c_void_p, c_int],
    "ddp_grad_ready": [c_void_p, c_int, c_void_p],
    "ddp_grad_rows": [c_void_p, c_int, c_void_p, c_size_t, c_void_p, c_void_p],
    "ddp_grad_absent": [c_void_p, c_int],
    "ddp_sync": [c_void_p, c_void_p],
    "ddp_absent": [c_void_p, c_int],
    "sampler_create": [c_void_p, POINTER(SamplerOptions), POINTER(c_void_p)],
    "sampler_destroy": [c_void_p],
    "sampler_set_epoch": [c_void_p, c_uint64],
    "sampler_next": [c_void_p, POINTER(c_uint64), POINTER(c_uint64)],
    "sampler_steps": [c_void_p],
    "sampler_save": [c_void_p, POINTER(SamplerState)],
    "sampler_restore": [c_void_p, POINTER(SamplerState)],
    "checkpoint_open": [c_void_p, c_char_p, POINTER(CheckpointOptions), POINTER(c_void_p)],
    "checkpoint_close": [c_void_p],
    "checkpoint_save": [c_void_p, c_uint64, POINTER(Item), c_int],
    "checkpoint_wait": [c_void_p],
    "checkpoint_load": [c_void_p, POINTER(Item), c_int, POINTER(c_uint64), POINTER(c_int)],
    "checkpoint_path": [c_void_p],
}


def _load():
    try:
        library = ctypes.CDLL("libmuster.so.0")
    except OSError as error:
        raise Error(f"libmuster.so.0 cannot be loaded ({error}): install libmuster0, or set LD_LIBRARY_PATH") from None
    calls = {}
    for name, arguments in _ARGUMENTS.items():
        calls[name] = getattr(library, "muster_" + name)
        calls[name].argtypes = arguments
        calls[name].restype = c_char_p if name in _TEXT else c_int
    # Without prototypes a call takes half the time: its callers give ints, and c_void_p for a pointer.
    calls["bare ddp_grad_ready"] = library["muster_ddp_grad_ready"]
    calls["sampler_steps"].restype = c_uint64
    calls["ddp_grad"].restype = c_void_p
    calls["ddp_destroy"].restype = calls["sampler_destroy"].restype = calls["sampler_set_epoch"].restype = calls["sampler_save"].restype = None
    return calls


C = _load()  # the functions of libmuster, without "muster_"


failures = []  # what check raised, and the process may end with


def check(status, world=None, label=""):
    """Raise what the last call on this world (None: muster_init) reported."""
    if status != 0:
        failures.append(Error(label + C["error"](world).decode(errors="replace"), status))
        raise failures[-1]


def version():
    """The version of the library that is loaded."""
    return C["version"]().decode()
