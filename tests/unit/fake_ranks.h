/* SPDX-License-Identifier: BSD-3-Clause */
/* fake_ranks.h - ranks of the NCCL backend on fake GPUs; steps of buckets */
#ifndef TEST_FAKE_RANKS_H
#define TEST_FAKE_RANKS_H

#include "runtime/backend/nccl/nccl.h"
#include "tests/unit/fake_gpu.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define BUCKETS 3
#define ROOM (5 * MIB) /* bytes of each bucket's place in the arena */
/* Orders in which the streams run; large data take their time. */
#define ORDERS(bytes) ((bytes) > MIB ? 2u : 30u)

struct fake_rank {
    struct mu_nccl_backend b;
    struct mu_host_words words;
    struct mu_nccl_request *request[BUCKETS];
    cudaStream_t s1, s2; /* the program's */
    char *arena, *seen;
    size_t shift; /* bytes from a bucket's place to its data, in both */
    int watched;
};

extern struct fake_rank fake_rank[FAKE_RANKS];
extern int fake_nranks;
extern bool fake_foreign; /* buffers lie outside of the backend's memory */

/* own: with Muster's kernels. */
void fake_open_ranks(int n, bool own);
/* Fails where an event is left. */
void fake_close_ranks(void);

/* Zeroed memory, freed by the caller. */
void *fake_room(size_t bytes);

/* A mean over the ranks. */
struct mu_coll fake_bucket(size_t bytes);
/* Rank r computes bucket k on its stream, and starts it. */
int fake_start(int r, int k, const struct mu_coll *like, cudaStream_t s,
               struct mu_err *err);
/* The program reads bucket k on the stream that joined it. */
int fake_join(int r, int k, const struct mu_coll *like, cudaStream_t s,
              struct mu_err *err);
/* The program has read the mean. */
void fake_check(const char *what, int r, int k, const struct mu_coll *like);
/* Run the streams; nothing may hang. */
void fake_run_to_end(const char *what, unsigned order);
/* n buckets on every rank: all start, then all are joined; then every mean is right. */
void fake_step(const char *what, const struct mu_coll *like, int n, unsigned order);

/* Rank 0 has made at most `limit` calls since `before`. */
void fake_at_most(const char *what, struct fake_calls before, struct fake_calls limit);

#endif
