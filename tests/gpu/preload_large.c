/* SPDX-License-Identifier: BSD-3-Clause */
/* preload_large.c - all-reduces, and reduce-scatters with all-gathers, of up to 256 MiB
 * in memory that is freed and allocated anew
 *
 * The ranks renew their buffers at different calls, so that one rank's address is
 * another allocation while its peer still has the old one mapped. The data of each call
 * are others, so old bytes are a wrong result.
 */
#include <stdio.h>
#include <unistd.h>

#include "tests/gpu/preload_program.h"

#define MIB ((size_t)1 << 20)
#define CALLS 8
#define BURST 8
#define MAP_US 20000 /* the peers have mapped what they saw before */

static char *from, *to;

/* In the other order, so that the two exchange their addresses. */
static void renew(size_t bytes)
{
    if (from)
        memory_free(from);
    if (to)
        memory_free(to);
    to = memory_new(bytes);
    from = memory_new(bytes);
}

/* An all-reduce as ZeRO has it, of as many elements as have even parts. */
static void halves(const struct type *t, size_t *count, ncclRedOp_t op, char *out,
                   ncclComm_t comm, cudaStream_t s)
{
    size_t part = *count / (size_t)ranks;
    char *mine = out + part * (size_t)rank * (size_t)t->bytes;

    *count = part * (size_t)ranks;
    nccl(ncclReduceScatter(from, mine, part, t->type, op, comm, s), "reduce-scatter");
    nccl(ncclAllGather(mine, out, part, t->type, comm, s), "all-gather");
}

static void call(const struct type *t, size_t count, int k, const char *pattern,
                 ncclComm_t comm, cudaStream_t s)
{
    size_t size = (size_t)t->bytes, shift = (size_t)k % 7;
    ncclRedOp_t op = k % 4 < 2 ? ncclSum : ncclAvg;
    char what[80], *out;
    unsigned long calls = op == ncclAvg ? 1 + BURST : 1;

    snprintf(what, sizeof what, "%zu bytes, call %d", count * size, k);
    if ((k + rank) % 3 == 1)
        renew(count * size);
    out = k % 2 ? to : from;
    progress_phase(CALLING);
    cuda(cudaMemcpyAsync(from, pattern + shift * size, count * size,
                         cudaMemcpyDeviceToDevice, s),
         what);
    if (k % 3 == 0) {
        halves(t, &count, op, out, comm, s);
    } else {
        nccl(ncclAllReduce(from, out, count, t->type, op, comm, s), what);
    }
    /* a mean of equal numbers: these run while the peers are mapping */
    for (int i = 0; op == ncclAvg && i < BURST; i++)
        nccl(ncclAllReduce(out, out, count, t->type, op, comm, s), what);
    progress_phase(WAITING);
    cuda(cudaStreamSynchronize(s), what);
    progress_calls(calls, rank == 0);
    check_result(t, op, out, count, shift, what);
    if (k % 3 == 2)
        usleep(MAP_US);
}

void large_calls(void)
{
    static const size_t sizes[] = { MIB + 16, 3 * MIB + 40, 4 * MIB,
                                    25 * MIB, 64 * MIB,     256 * MIB };
    ncclComm_t comm = communicator(0);
    cudaStream_t s = stream_new();

    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (int t = 0; t < 4; t++) { /* the floats */
            size_t count = sizes[i] / (size_t)types[t].bytes;
            char *pattern = pattern_new(&types[t], count);

            if (from)
                memory_free(from);
            from = NULL;
            renew(sizes[i]);
            for (int k = 0; k < CALLS; k++)
                call(&types[t], count, k, pattern, comm, s);
            cuda(cudaFree(pattern), "cudaFree");
            if (rank == 0)
                printf("# %zu bytes, type %d: right\n", sizes[i], (int)types[t].type);
            fflush(stdout);
        }
    nccl(ncclCommDestroy(comm), "ncclCommDestroy");
}
