/* SPDX-License-Identifier: BSD-3-Clause */
/* preload_program.h - the parts of check_preload: a program of NCCL alone, whose ranks
 * are processes of one parent
 */
#ifndef TEST_PRELOAD_PROGRAM_H
#define TEST_PRELOAD_PROGRAM_H

#include <cuda_runtime.h>
#include <nccl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "tests/gpu/preload_progress.h"

/* What the ranks share. */
struct shared {
    ncclUniqueId id[16];
    atomic_int arrived, waves;
    struct progress progress[16];
};
extern struct shared *shared;
extern int rank, ranks;

/* End this rank with a sentence; the others where a result is no success. */
void die(const char *what, const char *why);
void cuda(cudaError_t rc, const char *what);
void nccl(ncclResult_t rc, const char *what);

/* Memory that the program allocates: of cudaMalloc, or virtual. */
extern bool is_virtual;
void *memory_new(size_t bytes);
void memory_free(void *p);

/* All ranks that live meet here. */
void meet(int of);
/* [collective] One of 16 communicators of all ranks. */
ncclComm_t communicator(int which);
cudaStream_t stream_new(void);

/* Types, some of them more than once, to be drawn. */
#define TYPES 9
extern const struct type {
    ncclDataType_t type;
    int bytes;
    bool is_float;
} types[TYPES];
/* Element i of rank r, in small whole numbers, which have no rounding in any type; the
 * result; either as bytes.
 */
double element(int r, size_t i);
double expected(ncclRedOp_t op, size_t i);
void put(ncclDataType_t type, void *base, size_t i, double v);
/* The same of data of which some are NaN, for a minimum or maximum of floats: it leaves
 * NaN out, and is NaN where all ranks have it.
 */
double spoilt_element(int r, size_t i);
double spoilt_expected(ncclRedOp_t op, size_t i);
bool is_nan(ncclDataType_t type, const void *at);

/* count + 7 elements of this rank in device memory; those from `shift` on, in an
 * all-reduce, have the result that check_result compares with, or ends the rank.
 */
char *pattern_new(const struct type *t, size_t count);
void check_result(const struct type *t, ncclRedOp_t op, const char *at, size_t count,
                  size_t shift, const char *what);

/* preload_random.c */
void random_calls(int calls);
/* preload_large.c */
void large_calls(void);
/* preload_graphs.c */
void graphs(int rounds);

#endif
