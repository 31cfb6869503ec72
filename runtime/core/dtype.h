/* SPDX-License-Identifier: BSD-3-Clause */
/* dtype.h - sizes and names of the element types */
#ifndef MU_DTYPE_H
#define MU_DTYPE_H

#include <stddef.h>

#include "runtime/muster.h"

/* Bytes of an element; 0 for a value outside of enum muster_dtype. */
size_t mu_dtype_size(enum muster_dtype dtype);
/* "f32", "bf16", ...; "?" for a value outside of enum muster_dtype. */
const char *mu_dtype_name(enum muster_dtype dtype);

#endif
