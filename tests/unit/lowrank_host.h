/* SPDX-License-Identifier: BSD-3-Clause */
/* lowrank_host.h - a matrix for PowerSGD in host memory, for tests of both its homes */
#ifndef TEST_LOWRANK_HOST_H
#define TEST_LOWRANK_HOST_H

#include <stdlib.h>

#include "runtime/core/compress.h"

/* All that is malloc'ed for one, but spoilt. */
static inline void lowrank_host_free(struct mu_lowrank_tensor *x)
{
    free(x->g);
    free(x->g16);
    free(x->rest);
    free(x->p);
    free(x->q);
    free(x->own);
    free(x->parts);
}

#endif
