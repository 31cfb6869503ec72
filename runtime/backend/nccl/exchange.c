/* SPDX-License-Identifier: BSD-3-Clause */
/* exchange.c - data from one rank to another, by the size of each part
 *
 *   mail    at most 32 KiB: packets, no wait for the receiver
 *   pipe    larger: our kernel, through an area of the receiver
 *   rest    by NCCL, where the ranks cannot map each other's memory
 *
 * Sender and receiver have the same size of a message, so both take the same way.
 */
#include "runtime/backend/nccl/nccl.h"
#include "runtime/core/dtype.h"

/* All blocks of a rank must fit on its GPU at once: they wait for each other. */
static int blocks_of_message(const struct mu_nccl_backend *b, const struct mu_coll *c)
{
    if (c->kind == MU_COLL_PAIR || b->env.size <= 2)
        return MU_BLOCKS;
    return b->env.size <= 4 ? MU_BLOCKS / 2 : MU_BLOCKS / 4;
}

/* The data for rank r, and those from it. */
struct both_ways {
    const char *out;
    char *in;
    size_t out_count, in_count; /* elements; 0: none */
};

static struct both_ways with_rank(const struct mu_coll *c, int r, size_t element)
{
    if (c->kind == MU_COLL_PAIR)
        return (struct both_ways){ .out = c->send,
                                   .in = c->recv,
                                   .out_count = r == c->to ? c->count : 0,
                                   .in_count = r == c->from ? c->recv_count : 0 };
    return (struct both_ways){ .out = (const char *)c->send + c->sends[r].at * element,
                               .in = (char *)c->recv + c->recvs[r].at * element,
                               .out_count = c->sends[r].count,
                               .in_count = c->recvs[r].count };
}

static void add_out(struct mu_parts *parts, int r, const void *data, size_t bytes)
{
    if (bytes > MU_MAIL_MOST) {
        parts->piped = true;
        parts->pipe.out[r] = data;
        parts->pipe.out_bytes[r] = bytes;
    } else if (bytes > 0) {
        parts->sends = true;
        parts->mail.out[r] = data;
        parts->mail.out_bytes[r] = (uint32_t)bytes;
    }
}

static void add_in(struct mu_parts *parts, int r, void *data, size_t bytes)
{
    if (bytes > MU_MAIL_MOST) {
        parts->piped = true;
        parts->pipe.in[r] = data;
        parts->pipe.in_bytes[r] = bytes;
    } else if (bytes > 0) {
        parts->receives = true;
        parts->mail.in[r] = data;
        parts->mail.in_bytes[r] = (uint32_t)bytes;
    }
}

struct mu_parts mu_parts_split(const struct mu_nccl_backend *b, const struct mu_coll *c)
{
    const bool ours = b->own && b->forced != MU_ALGO_NCCL;
    size_t element = mu_dtype_size(c->dtype);
    struct mu_parts parts = { .pipe.blocks = blocks_of_message(b, c) };

    for (int r = 0; r < b->env.size; r++) {
        struct both_ways w = with_rank(c, r, element);
        size_t out = w.out_count * element, in = w.in_count * element;

        if (r == b->env.rank)
            continue;
        if (!ours) {
            parts.rest = parts.rest || out > 0 || in > 0;
            continue;
        }
        add_out(&parts, r, w.out, out);
        add_in(&parts, r, w.in, in);
    }
    return parts;
}

ncclResult_t mu_exchange_rest(struct mu_nccl_backend *b, const struct mu_coll *c)
{
    size_t element = mu_dtype_size(c->dtype);
    ncclDataType_t type = mu_nccl_type(c->dtype);
    ncclResult_t rc = ncclGroupStart(), end;

    for (int r = 0; r < b->env.size; r++) {
        struct both_ways w = with_rank(c, r, element);

        if (r == b->env.rank)
            continue;
        if (rc == ncclSuccess && w.out_count > 0)
            rc = ncclSend(w.out, w.out_count, type, r, b->comm, b->stream);
        if (rc == ncclSuccess && w.in_count > 0)
            rc = ncclRecv(w.in, w.in_count, type, r, b->comm, b->stream);
    }
    end = ncclGroupEnd();
    return rc == ncclSuccess ? end : rc;
}

cudaError_t mu_exchange_own_part(struct mu_nccl_backend *b, const struct mu_coll *c)
{
    size_t element = mu_dtype_size(c->dtype);
    struct both_ways w = with_rank(c, b->env.rank, element);

    if (w.in_count == 0 || w.in == w.out)
        return cudaSuccess;
    return cudaMemcpyAsync(w.in, w.out, w.in_count * element, cudaMemcpyDeviceToDevice,
                           b->stream);
}
