/* SPDX-License-Identifier: BSD-3-Clause */
/* one_rank.c - the backend of a world of one rank on the CPU: no data moves
 *
 * It has neither a thread nor shared memory, so a single process has no extra cost.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/backend/host/free_memory.h"
#include "runtime/backend/host/memory.h"
#include "runtime/core/convert.h"

/* The public handle points to this. */
struct one_rank {
    int nothing;
};

static int one_rank_open(const struct mu_backend_env *env, struct mu_backend **out,
                         struct mu_err *err)
{
    struct one_rank *b;

    if (env->size > 1)
        return mu_err_set(err, MUSTER_EUSAGE,
                          "this backend is for one rank, not for %d", env->size);
    b = calloc(1, sizeof *b);
    if (!b)
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory");
    *out = (struct mu_backend *)b;
    return 0;
}

static void one_rank_close(struct mu_backend *b)
{
    free(b);
}

static void one_rank_abort(struct mu_backend *b, int status, const char *why)
{
}

static const char *one_rank_transport(const struct mu_backend *b)
{
    return "one rank";
}

static void *one_rank_alloc(struct mu_backend *b, size_t bytes, struct mu_err *err)
{
    size_t whole;
    void *p;

    if (bytes > SIZE_MAX / 2) {
        mu_err_set(err, MUSTER_EMEMORY, "cannot allocate %zu bytes", bytes);
        return NULL;
    }
    if (mu_free_memory_check(bytes, NULL, err) < 0)
        return NULL;
    whole = (bytes + 4095) / 4096 * 4096;
    p = aligned_alloc(4096, whole ? whole : 4096);
    if (!p)
        mu_err_set(err, MUSTER_EMEMORY, "out of memory for %zu bytes", bytes);
    else
        memset(p, 0, whole);
    return p;
}

static void one_rank_free(struct mu_backend *b, void *p)
{
    free(p);
}

/* The memory is on the program's heap and stays valid. */
static int one_rank_adopt(struct mu_backend *b, struct mu_backend *from,
                          struct mu_err *err)
{
    return 0;
}

/* The collective is complete on return; the request is only a marker. */
static int one_rank_start(struct mu_backend *b, const struct mu_coll *coll,
                          struct mu_request **out, struct mu_err *err)
{
    if (coll->kind == MU_COLL_EXCHANGE)
        mu_memory_own_part(coll, 0);
    else if (coll->kind == MU_COLL_PAIR)
        mu_memory_own_message(coll);
    else if (coll->kind != MU_COLL_BARRIER &&
             mu_convert(coll->recv, coll->dtype, coll->send, coll->dtype, coll->count,
                        coll->scale, err) < 0)
        return -1;
    *out = (struct mu_request *)b;
    return 0;
}

static int one_rank_join(struct mu_backend *b, struct mu_request *request, void *stream,
                         struct mu_err *err)
{
    return 0;
}

static int one_rank_pack(struct mu_backend *b, const struct mu_piece *pieces, int n,
                         enum muster_dtype from, void *bucket, enum muster_dtype to,
                         double scale, void *stream, struct mu_err *err)
{
    for (int i = 0; i < n; i++)
        if (mu_convert((char *)bucket + pieces[i].offset, to, pieces[i].at, from,
                       pieces[i].count, scale, err) < 0)
            return -1;
    return 0;
}

static int one_rank_unpack(struct mu_backend *b, const struct mu_piece *pieces, int n,
                           enum muster_dtype to, const void *bucket,
                           enum muster_dtype from, double scale, void *stream,
                           struct mu_err *err)
{
    for (int i = 0; i < n; i++)
        if (mu_convert(pieces[i].at, to, (const char *)bucket + pieces[i].offset, from,
                       pieces[i].count, scale, err) < 0)
            return -1;
    return 0;
}

const struct mu_backend_ops mu_backend_one_rank = {
    .name = "host",
    .host_memory = true,
    .open = one_rank_open,
    .close = one_rank_close,
    .abort = one_rank_abort,
    .transport = one_rank_transport,
    .device = mu_memory_device,
    .alloc = one_rank_alloc,
    .free = one_rank_free,
    .adopt = one_rank_adopt,
    .start = one_rank_start,
    .join = one_rank_join,
    .drain = mu_memory_drain,
    .pack = one_rank_pack,
    .unpack = one_rank_unpack,
    .copy = mu_memory_copy,
    .zero = mu_memory_zero,
    .squares = mu_memory_squares,
    .int8 = mu_memory_int8,
    .lowrank = mu_memory_lowrank,
};
