#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Ranks average a list of numbers through libmuster: srun --mpi=pmix -n4 python3 example.py"""
import ctypes
import sys

F64, SUM = 1, 0  # enum muster_dtype, enum muster_op
lib = ctypes.CDLL("libmuster.so.0")
m = ctypes.c_void_p()  # struct muster *
lib.muster_allreduce.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int,
                                 ctypes.c_void_p]
for call in "rank", "size", "report", "finalize":
    getattr(lib, "muster_" + call).argtypes = [ctypes.c_void_p]


def check(status):
    """The library prints its sentence; its status becomes the exit status."""
    if status:
        sys.exit(lib.muster_report(m))


check(lib.muster_init(ctypes.byref(m), None))
values = (ctypes.c_double * 3)(*[lib.muster_rank(m)] * 3)  # this rank's numbers
check(lib.muster_allreduce(m, values, len(values), F64, SUM, None))
if lib.muster_rank(m) == 0:
    print("the mean of", lib.muster_size(m), "ranks is", [v / lib.muster_size(m) for v in values])
sys.exit(lib.muster_finalize(m))
