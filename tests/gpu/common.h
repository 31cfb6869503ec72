/* SPDX-License-Identifier: BSD-3-Clause */
/* common.h - for GPU tests: open the NCCL backend in a forked rank (common.c); TAP
 * output of several ranks (tap.c)
 */
#ifndef TESTS_GPU_COMMON_H
#define TESTS_GPU_COMMON_H

#include "runtime/backend/backend.h"
#include "runtime/backend/nccl/bench/gpu.h"
#include "runtime/tools/forked.h"

/* One rank of a test. failures are counted; print0 prints on rank 0 only. */
struct rank {
    struct mu_world *world;
    struct mu_backend *b;
    const struct mu_backend_ops *ops;
    void *stream;
    bool same_place; /* of the buffers of allreduce, on all ranks */
    int number, failures;
    void (*failed)(struct rank *r, int rank, int status, const char *why);
};

/* Ends the program with a message if the backend does not open. timeout: of
 * collectives, s.
 */
void rank_open(struct rank *r, struct mu_world *world, double timeout);
void rank_close(struct rank *r);
void print0(const struct rank *r, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* TAP on rank 0; a failure of any rank counts (collective). */
void check(struct rank *r, bool ok, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* True when `mine` is the same 64-bit value on all ranks (collective). */
bool same_everywhere(struct rank *r, uint64_t mine);
/* Start and join it; a failure ends the process. */
void run(struct rank *r, const struct mu_coll *coll);
void allreduce(struct rank *r, const void *send, void *recv, size_t count,
               enum muster_dtype dtype, enum muster_op op, double scale);

/* The number of ranks from the arguments, or that of devices. Skips the test (TAP) if
 * there are fewer than `least`. A child counts the devices, because CUDA must not be
 * started before the ranks are forked.
 */
int ranks_wanted(int argc, char **argv, int least);

#endif
