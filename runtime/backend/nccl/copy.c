/* SPDX-License-Identifier: BSD-3-Clause */
/* copy.c - all-reduce by copy engines: kernels only add and wait, so that the SMs are
 * free for the program's computation
 *
 * In rounds of what the parts' area holds: push our part of each segment to its rank,
 * barrier, add up our own segment, push the sum, barrier. Engines that write to several
 * GPUs at once move more than twice the data of engines that read (4 x H200: 188 and 78
 * GB/s at 10 MiB).
 */
#include "runtime/backend/nccl/nccl.h"
#include "runtime/core/dtype.h"

/* Rank p's segment of a round: its bytes and where it starts. */
struct segment {
    size_t first, bytes;
};

static struct segment segment_of(size_t round, int n, int p)
{
    size_t most = (round / 16 + n - 1) / n * 16, first = most * p;

    return (struct segment){ first, first >= round         ? 0
                                    : first + most > round ? round - first
                                                           : most };
}

static cudaError_t push(struct mu_nccl_backend *b, void *to, const void *from,
                        size_t bytes)
{
    /* cudaMemcpyDefault costs the host 3.6 us, DeviceToDevice 5.2 (H200, driver 580).
     */
    return bytes ? cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, b->stream)
                 : cudaSuccess;
}

/* The d-th rank behind ours: each rank starts with another one. */
static int other(const struct mu_reach *r, int d)
{
    return (r->rank + d) % r->n;
}

static cudaError_t send_parts(struct mu_nccl_backend *b, const char *from, size_t round)
{
    const struct mu_reach *r = &b->reach;
    cudaError_t rc = cudaSuccess;

    for (int d = 1; d < r->n && rc == cudaSuccess; d++) {
        int p = other(r, d), slot = r->rank > p ? r->rank - 1 : r->rank;
        struct segment s = segment_of(round, r->n, p);

        rc = push(b, mu_parts_of(b, p) + slot * s.bytes, from + s.first, s.bytes);
    }
    return rc == cudaSuccess ? mu_peer_barrier(r, b->stream) : rc;
}

cudaError_t mu_copy_launch(struct mu_nccl_backend *b, const struct mu_coll *c,
                           const struct mu_places *places)
{
    const struct mu_reach *r = &b->reach;
    size_t bytes = c->count * mu_dtype_size(c->dtype);
    size_t most = MU_PARTS_BYTES / (r->n - 1) / 4096 * 4096 * r->n;
    cudaError_t rc = cudaSuccess;

    for (size_t at = 0; at < bytes && rc == cudaSuccess; at += most) {
        size_t round = bytes - at < most ? bytes - at : most;
        char *mine = places->peer[r->rank] + at;
        struct segment s = segment_of(round, r->n, r->rank);

        rc = send_parts(b, mine, round);
        if (rc == cudaSuccess)
            rc = mu_add_parts(r, mine + s.first, mu_parts_of(b, r->rank), s.bytes,
                              c->dtype, c->scale, b->stream);
        for (int d = 1; d < r->n && rc == cudaSuccess; d++)
            rc = push(b, places->peer[other(r, d)] + at + s.first, mine + s.first,
                      s.bytes);
        if (rc == cudaSuccess)
            rc = mu_peer_barrier(r, b->stream);
    }
    return rc;
}
