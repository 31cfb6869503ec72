/* SPDX-License-Identifier: BSD-3-Clause */
/* memory.c - backend functions on host memory; all are done on return */
#include "runtime/backend/host/memory.h"

#include <string.h>

#include "runtime/core/compress.h"
#include "runtime/core/dtype.h"
#include "runtime/core/numeric.h"

int mu_memory_device(const struct mu_backend *b)
{
    return -1;
}

int mu_memory_drain(struct mu_backend *b, void *stream, struct mu_err *err)
{
    return 0;
}

int mu_memory_copy(struct mu_backend *b, void *dst, const void *src, size_t bytes,
                   void *stream, struct mu_err *err)
{
    if (bytes)
        memmove(dst, src, bytes);
    return 0;
}

int mu_memory_zero(struct mu_backend *b, void *dst, size_t bytes, void *stream,
                   struct mu_err *err)
{
    if (bytes)
        memset(dst, 0, bytes);
    return 0;
}

int mu_memory_squares(struct mu_backend *b, const void *data, size_t count,
                      enum muster_dtype dtype, double *sums, void *stream,
                      struct mu_err *err)
{
    sums[0] += mu_sum_squares(data, dtype, count);
    return 0;
}

int mu_memory_int8(struct mu_backend *b, enum mu_int8_stage stage,
                   const struct mu_int8_tensor *tensors, int n, int ranks, void *stream,
                   struct mu_err *err)
{
    mu_int8_run(stage, tensors, n, ranks);
    return 0;
}

int mu_memory_lowrank(struct mu_backend *b, enum mu_lowrank_stage stage,
                      const struct mu_lowrank_tensor *tensors, int n, void *stream,
                      struct mu_err *err)
{
    mu_lowrank_run(stage, tensors, n);
    return 0;
}

void mu_memory_own_part(const struct mu_coll *coll, int rank)
{
    const struct mu_part *out = &coll->sends[rank], *in = &coll->recvs[rank];
    size_t size = mu_dtype_size(coll->dtype);

    if (in->count > 0)
        memmove((char *)coll->recv + in->at * size,
                (const char *)coll->send + out->at * size, in->count * size);
}

void mu_memory_own_message(const struct mu_coll *coll)
{
    if (coll->count > 0)
        memmove(coll->recv, coll->send, coll->count * mu_dtype_size(coll->dtype));
}
