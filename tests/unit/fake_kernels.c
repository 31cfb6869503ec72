/* SPDX-License-Identifier: BSD-3-Clause */
/* fake_kernels.c - Muster's kernels and NCCL's on fake GPUs */
#include "tests/unit/fake_work.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static cudaStream_t group_stream; /* of the group that is open, once it has a call */

/* ---- Muster's kernels ------------------------------------------------------------ */

static cudaError_t kernel(cudaStream_t s, struct op op)
{
    count_for(s)->kernels++;
    return enqueue(s, op);
}

static cudaError_t sum_kernel(const char *name, const void *send, void *recv,
                              size_t count, double scale, cudaStream_t s)
{
    return kernel(s, (struct op){ .work = COLLECTIVE,
                                  .collective = SUM,
                                  .name = name,
                                  .from = send,
                                  .to = recv,
                                  .count = count,
                                  .scale = scale });
}

/* The names differ by shape: two shapes that meet are a complaint. */
static cudaError_t work_kernel(const char *const *names, const struct mu_work *w,
                               cudaStream_t s)
{
    static const enum collective collectives[] = { [MU_ALLREDUCE] = SUM,
                                                   [MU_REDUCE_SCATTER] = SCATTER,
                                                   [MU_ALLGATHER] = GATHER,
                                                   [MU_BROADCAST] = BROADCAST };
    bool sums = mu_shape_sums(w->shape);

    if (!sums && w->count % sizeof(float) != 0)
        return cudaErrorInvalidValue;
    return kernel(s, (struct op){ .work = COLLECTIVE,
                                  .collective = collectives[w->shape],
                                  .name = names[w->shape],
                                  .from = w->send,
                                  .to = w->recv,
                                  .count = sums ? w->count : w->count / sizeof(float),
                                  .scale = w->scale,
                                  .root = w->root });
}

size_t mu_one_shot_limit(const struct mu_reach *reach, size_t element)
{
    return 1 << 20;
}

cudaError_t mu_one_shot(const struct mu_reach *r, const struct mu_work *work,
                        int blocks, int threads, cudaStream_t s)
{
    static const char *const names[] = { "one-shot", "one-shot reduce-scatter",
                                         "one-shot all-gather", "one-shot broadcast" };

    return work_kernel(names, work, s);
}

bool mu_segmented_can(enum muster_dtype dtype, enum muster_op op)
{
    return true;
}

cudaError_t mu_pull(const struct mu_reach *r, const struct mu_places *places,
                    size_t count, enum muster_dtype dtype, double scale, int blocks,
                    cudaStream_t s)
{
    struct op op = { .work = COLLECTIVE,
                     .collective = PULLED,
                     .name = "pull",
                     .count = count,
                     .scale = scale };

    for (int p = 0; p < nranks; p++)
        op.at[p] = places->there[p];
    count_for(s)->blocks = blocks;
    return kernel(s, op);
}

bool mu_own_can(const struct mu_work *work)
{
    return work->shape == MU_ALLREDUCE || work->count * mu_work_element(work) % 16 == 0;
}

cudaError_t mu_own(const struct mu_reach *r, const struct mu_own_map *map,
                   const struct mu_work *work, const struct mu_own_buffers *buffers,
                   int blocks, cudaStream_t s)
{
    static const char *const names[] = { "own", "own reduce-scatter", "own all-gather",
                                         "own broadcast" };

    count_for(s)->blocks = blocks;
    return work_kernel(names, work, s);
}

bool mu_relay_fits(const struct mu_reach *reach, size_t bytes)
{
    return bytes <= 1 << 20;
}

cudaError_t mu_relay(const struct mu_reach *r, const void *send, void *recv,
                     size_t count, enum muster_dtype dtype, double scale, int blocks,
                     cudaStream_t s)
{
    return sum_kernel("relay", send, recv, count, scale, s);
}

cudaError_t mu_peer_barrier(const struct mu_reach *r, cudaStream_t s)
{
    return kernel(
        s, (struct op){ .work = COLLECTIVE, .collective = BARRIER, .name = "barrier" });
}

cudaError_t mu_add_parts(const struct mu_reach *r, void *own, const void *parts,
                         size_t bytes, enum muster_dtype dtype, double scale,
                         cudaStream_t s)
{
    return kernel(s, (struct op){ .work = ADD_PARTS,
                                  .to = own,
                                  .from = parts,
                                  .count = bytes / sizeof(float),
                                  .scale = scale });
}

cudaError_t mu_scale(void *buffer, size_t count, enum muster_dtype dtype, double scale,
                     cudaStream_t s)
{
    return kernel(
        s, (struct op){ .work = SCALE, .to = buffer, .count = count, .scale = scale });
}

cudaError_t mu_mark(volatile uint32_t *word, cudaStream_t s)
{
    return kernel(s, (struct op){ .work = MARK, .to = (void *)(uintptr_t)word });
}

/* One kernel: no message that it receives holds up one that it sends. */
cudaError_t mu_mail(const struct mu_reach *r, const struct mu_mail *mail, bool sends,
                    bool receives, cudaStream_t s)
{
    cudaError_t rc = cudaSuccess;

    count_for(s)->kernels++;
    for (int p = 0; sends && p < nranks && rc == cudaSuccess; p++)
        if (mail->out_bytes[p] > 0)
            rc = enqueue(s, (struct op){ .work = SEND,
                                         .from = mail->out[p],
                                         .count = mail->out_bytes[p],
                                         .rank = r->rank,
                                         .peer = p });
    for (int p = 0; receives && p < nranks && rc == cudaSuccess; p++)
        if (mail->in_bytes[p] > 0)
            rc = enqueue(s, (struct op){ .work = RECEIVE,
                                         .to = mail->in[p],
                                         .count = mail->in_bytes[p],
                                         .rank = r->rank,
                                         .peer = p });
    return rc;
}

cudaError_t mu_pipe(const struct mu_reach *r, const struct mu_pipe *pipe,
                    cudaStream_t s)
{
    return kernel(s, (struct op){ .work = PIPE, .pipe = *pipe, .rank = r->rank });
}

/* ---- NCCL ------------------------------------------------------------------------ */

static ncclResult_t nccl(cudaStream_t s, struct op op)
{
    count_for(s)->nccl++;
    op.work = COLLECTIVE;
    return enqueue(s, op) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

static double scale_of(ncclRedOp_t op)
{
    return op == ncclAvg ? 1.0 / nranks : 1.0;
}

/* What all of the calls below have. */
#define CALL(...)                                                                      \
    nccl(                                                                              \
        s,                                                                             \
        (struct op){                                                                   \
            .name = __func__, .from = send, .to = recv, .count = count, __VA_ARGS__ })

ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count,
                           ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t s)
{
    return CALL(.collective = SUM, .scale = scale_of(op));
}

ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count,
                           ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t s)
{
    return CALL(.collective = BROADCAST, .root = root);
}

ncclResult_t ncclAllGather(const void *send, void *recv, size_t count,
                           ncclDataType_t type, ncclComm_t comm, cudaStream_t s)
{
    return CALL(.collective = GATHER);
}

ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t count,
                               ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                               cudaStream_t s)
{
    return CALL(.collective = SCATTER, .scale = scale_of(op));
}

ncclResult_t ncclReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t s)
{
    return CALL(.collective = REDUCE, .root = root, .scale = scale_of(op));
}

static ncclResult_t add_part(struct part part, cudaStream_t s)
{
    if (nparts == PARTS)
        return ncclInvalidUsage;
    part.rank = ((struct queue *)s)->rank;
    parts[nparts++] = part;
    group_stream = s;
    return ncclSuccess;
}

ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t s)
{
    return add_part((struct part){ true, -1, peer, (char *)(uintptr_t)from, count }, s);
}

ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t s)
{
    return add_part((struct part){ false, -1, peer, to, count }, s);
}

/* nccl.h declares both without a prototype. */
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);

ncclResult_t ncclGroupStart(void)
{
    group_stream = NULL;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
    if (!group_stream)
        return ncclSuccess;
    return nccl(group_stream, (struct op){ .collective = EXCHANGE, .name = "a group" });
}
