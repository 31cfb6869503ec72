/* SPDX-License-Identifier: BSD-3-Clause */
/* exchange.c - data from one rank to another: small messages by our kernel, others by
 * NCCL
 *
 * Sender and receiver have the same size of a message, so both take the same way.
 */
#include "runtime/backend/nccl/nccl.h"
#include "runtime/core/dtype.h"

static bool is_mail(const struct mu_nccl_backend *b, size_t bytes)
{
    return b->own && bytes > 0 && bytes <= MU_MAIL_MOST;
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

struct mu_parts mu_parts_split(const struct mu_nccl_backend *b, const struct mu_coll *c)
{
    size_t element = mu_dtype_size(c->dtype);
    struct mu_parts parts = { 0 };

    for (int r = 0; r < b->env.size; r++) {
        struct both_ways w = with_rank(c, r, element);
        size_t out = w.out_count * element, in = w.in_count * element;

        if (r == b->env.rank)
            continue;
        if (is_mail(b, out)) {
            parts.mail.out[r] = w.out;
            parts.mail.out_bytes[r] = (uint32_t)out;
        }
        if (is_mail(b, in)) {
            parts.mail.in[r] = w.in;
            parts.mail.in_bytes[r] = (uint32_t)in;
        }
        parts.sends |= is_mail(b, out);
        parts.receives |= is_mail(b, in);
        parts.rest |= (out > 0 && !is_mail(b, out)) || (in > 0 && !is_mail(b, in));
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
        if (rc == ncclSuccess && w.out_count > 0 && !is_mail(b, w.out_count * element))
            rc = ncclSend(w.out, w.out_count, type, r, b->comm, b->stream);
        if (rc == ncclSuccess && w.in_count > 0 && !is_mail(b, w.in_count * element))
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
