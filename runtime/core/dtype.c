/* SPDX-License-Identifier: BSD-3-Clause */
/* dtype.c - sizes and names of the element types */
#include "runtime/core/dtype.h"

static const struct {
    size_t size;
    const char *name;
} types[] = {
    [MUSTER_F32] = { 4, "f32" },    [MUSTER_F64] = { 8, "f64" },
    [MUSTER_F16] = { 2, "f16" },    [MUSTER_BF16] = { 2, "bf16" },
    [MUSTER_I32] = { 4, "i32" },    [MUSTER_I64] = { 8, "i64" },
    [MUSTER_BYTE] = { 1, "bytes" },
};

static int known(enum muster_dtype dtype)
{
    return (unsigned)dtype < sizeof types / sizeof types[0];
}

size_t mu_dtype_size(enum muster_dtype dtype)
{
    return known(dtype) ? types[dtype].size : 0;
}

const char *mu_dtype_name(enum muster_dtype dtype)
{
    return known(dtype) ? types[dtype].name : "?";
}
