/* SPDX-License-Identifier: BSD-3-Clause */
/* self.c - the backend of a world of one rank on the CPU: nothing has to move
 *
 * No thread, no shared memory: a single process pays nothing for being able to grow.
 */
#include "runtime/api/self.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/core/compress.h"
#include "runtime/core/convert.h"
#include "runtime/core/numeric.h"
#include "runtime/core/dtype.h"

struct mu_backend {
    int nothing;
};

static int self_open(const struct mu_backend_env *env, struct mu_backend **out,
                     struct mu_err *err)
{
    struct mu_backend *b;

    if (env->size > 1)
        return mu_err_set(err, MUSTER_EUSAGE,
                          "this backend is for one rank, not for %d", env->size);
    b = calloc(1, sizeof *b);
    if (!b)
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory");
    *out = b;
    return 0;
}

static void self_close(struct mu_backend *b)
{
    free(b);
}

static void self_abort(struct mu_backend *b, int status, const char *why)
{
}

static const char *self_transport(const struct mu_backend *b)
{
    return "one rank";
}

static int self_device(const struct mu_backend *b)
{
    return -1;
}

static void *self_alloc(struct mu_backend *b, size_t bytes, struct mu_err *err)
{
    size_t whole = (bytes + 4095) / 4096 * 4096;
    void *p = aligned_alloc(4096, whole ? whole : 4096);

    if (!p)
        mu_err_set(err, MUSTER_EMEMORY, "out of memory for %zu bytes", bytes);
    else
        memset(p, 0, whole);
    return p;
}

static void self_free(struct mu_backend *b, void *p)
{
    free(p);
}

/* It is the program's heap. */
static int self_adopt(struct mu_backend *b, struct mu_backend *from, struct mu_err *err)
{
    return 0;
}

/* Done at once; the request that comes back is only a mark. */
static int self_start(struct mu_backend *b, const struct mu_coll *coll,
                      struct mu_request **out, struct mu_err *err)
{
    if (coll->kind != MU_COLL_BARRIER &&
        mu_convert(coll->recv, coll->dtype, coll->send, coll->dtype, coll->count,
                   coll->scale, err) < 0)
        return -1;
    *out = (struct mu_request *)b;
    return 0;
}

static int self_join(struct mu_backend *b, struct mu_request *request, void *stream,
                     struct mu_err *err)
{
    return 0;
}

static int self_drain(struct mu_backend *b, void *stream, struct mu_err *err)
{
    return 0;
}

static int self_pack(struct mu_backend *b, const struct mu_piece *pieces, int n,
                     enum muster_dtype from, void *bucket, enum muster_dtype to,
                     double scale, void *stream, struct mu_err *err)
{
    for (int i = 0; i < n; i++)
        if (mu_convert((char *)bucket + pieces[i].offset, to, pieces[i].at, from,
                       pieces[i].count, scale, err) < 0)
            return -1;
    return 0;
}

static int self_unpack(struct mu_backend *b, const struct mu_piece *pieces, int n,
                       enum muster_dtype to, const void *bucket, enum muster_dtype from,
                       double scale, void *stream, struct mu_err *err)
{
    for (int i = 0; i < n; i++)
        if (mu_convert(pieces[i].at, to, (const char *)bucket + pieces[i].offset, from,
                       pieces[i].count, scale, err) < 0)
            return -1;
    return 0;
}

static int self_copy(struct mu_backend *b, void *dst, const void *src, size_t bytes,
                     void *stream, struct mu_err *err)
{
    if (bytes > 0)
        memmove(dst, src, bytes);
    return 0;
}

static int self_zero(struct mu_backend *b, void *dst, size_t bytes, void *stream,
                     struct mu_err *err)
{
    if (bytes > 0)
        memset(dst, 0, bytes);
    return 0;
}

static int self_squares(struct mu_backend *b, const void *data, size_t count,
                        enum muster_dtype dtype, double *sums, void *stream,
                        struct mu_err *err)
{
    sums[0] += mu_sum_squares(data, dtype, count);
    return 0;
}

static int self_int8(struct mu_backend *b, enum mu_int8_stage stage,
                     const struct mu_int8_tensor *tensors, int n, int ranks,
                     void *stream, struct mu_err *err)
{
    mu_int8_run(stage, tensors, n, ranks);
    return 0;
}

static int self_lowrank(struct mu_backend *b, enum mu_lowrank_stage stage,
                        const struct mu_lowrank_tensor *tensors, int n, void *stream,
                        struct mu_err *err)
{
    mu_lowrank_run(stage, tensors, n);
    return 0;
}

const struct mu_backend_ops mu_backend_self = {
    .name = "host",
    .open = self_open,
    .close = self_close,
    .abort = self_abort,
    .transport = self_transport,
    .device = self_device,
    .alloc = self_alloc,
    .free = self_free,
    .adopt = self_adopt,
    .start = self_start,
    .join = self_join,
    .drain = self_drain,
    .pack = self_pack,
    .unpack = self_unpack,
    .copy = self_copy,
    .zero = self_zero,
    .squares = self_squares,
    .int8 = self_int8,
    .lowrank = self_lowrank,
};
