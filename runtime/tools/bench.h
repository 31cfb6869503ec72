/* SPDX-License-Identifier: BSD-3-Clause */
/* bench.h - shared by the files of `muster bench`
 *
 *   bench.c          the program: measures host memory, or starts that for GPUs
 *   bench_options.c  the command line
 *   bench_start.c    ranks of a step, or forked
 *   bench_host.c     collectives of the host backend
 *   bench_pairs.c    from each rank to each other one; bench_pairs.h
 *   bench_lanes.c    pairs of ranks that send at once: 1, 2, ... up to all
 *   bench_compare.c  one exchange of gradients against another; bench_compare.h
 *   bench_compare_host.c  computes its steps on CPUs
 *   bench_model.c    reads the gradients and products of a model; bench_model.h
 *   bench_figures.c  rows
 *   bench_share.c    what ranks report to each other
 *
 * The program for GPUs, which links CUDA:
 *   bench_gpu.c      its start
 *   bench_coll.c     collectives, by path
 *   bench_beside.c   an all-reduce beside a matrix product
 *   bench_compare_gpu.c   computes the steps of compare
 *   bench_ddp.c      the gradient exchange of a model
 *   bench_replay.c   the computation of a model's step; bench_replay.h
 *   bench_tune.c     a table for the tuner plugin of NCCL
 *   bench_module.c   functions of the NCCL backend that are measured directly
 */
#ifndef MU_BENCH_H
#define MU_BENCH_H

#include <stdbool.h>

#include "runtime/backend/nccl/algo.h"
#include "runtime/base/err.h"
#include "runtime/core/pair_matrix.h"
#include "runtime/muster.h"

struct mu_backend;
struct mu_gathered;

/* Command line, checked. */
struct bench_options {
    const char
        *kind; /* allreduce, ..., pairs, lanes, compare, ddp; with host also all */
    const char *path;  /* auto, one of mu_algo_names, or all */
    const char *tuned; /* tune: the collective */
    const char *model; /* ddp, compare: a file, or a name below the models' folder */
    size_t min, max;   /* bytes */
    enum muster_dtype dtype;
    int ranks;       /* forked here; 0: the ranks of this step */
    int batches;     /* timed, for median, minimum and maximum; tune: turns */
    int steps;       /* ddp, compare */
    const char *svg; /* pairs: a picture is written there; NULL: none */
    double limit;    /* pairs: s of the first message */
    struct mu_pair_limits pairs;
    bool host;  /* the host backend, without GPUs */
    bool graph; /* captured and replayed */
    bool check; /* compare with a reference */
    bool tsv;
    bool own_grads; /* ddp: gradients outside the buckets, packed */
};

/* Functions of the NCCL module that its table lacks; NULL on other backends. */
struct bench_module {
    int (*force)(struct mu_backend *b, const char *path);
    void *(*peer)(struct mu_backend *b, const void *p, int local_rank);
    int (*sendrecv)(struct mu_backend *b, const void *send, void *recv, size_t count,
                    enum muster_dtype dtype, int peer, void *stream,
                    struct mu_err *err);
    int (*plain)(struct mu_backend *b, const void *send, void *recv, size_t count,
                 enum muster_dtype dtype, void *stream, struct mu_err *err);
    const struct mu_algo_table *(*table)(const struct mu_backend *b);
};

/* The memory that is measured. */
struct bench_memory {
    void *(*alloc)(size_t bytes); /* NULL: none is left */
    void (*free)(void *p);
    /* Between it and the program's own memory; into it with `put`. */
    void (*copy)(void *to, const void *from, size_t bytes, bool put);
    /* Wait for the stream; false: it is not done in time. NULL: calls block. */
    bool (*settle)(void *stream, double seconds);
};

struct bench {
    const struct bench_options *options;
    const struct bench_memory *memory;
    struct muster *m;
    struct bench_module module;
    void *stream;
    double
        copy_limit; /* GB/s that copy engines move to a peer, all at once; 0 unknown */
};

/* Read the command line; prints the help, or what is wrong, and exits. */
void bench_options_read(int argc, char **argv, struct bench_options *out);

/* Finalizes m. Returns an exit status. */
typedef int bench_run(struct muster *m, const struct bench_options *options,
                      double init_ms);
/* Call run in each rank of the step, or in options->ranks that are forked here. Returns
 * an exit status.
 */
int bench_start(const struct bench_options *options, bench_run *run);

/* Print on rank 0. */
void bench_print(const struct bench *b, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Print the sentence of err and end the program. */
void bench_die(const struct mu_err *err) __attribute__((noreturn));
/* The call of libmuster has succeeded, or its failure ends the program. */
void bench_must(struct muster *m, int rc);
/* [collective] What each rank reports goes over the control connections, also where a
 * link carries no data. The caller clears *all.
 */
void bench_share(const struct bench *b, const void *mine, size_t len,
                 struct mu_gathered *all);
double bench_median(double *values, int n); /* sorts them */
/* The head of the table, and a row: us are the microseconds of a call in each batch,
 * which are sorted. result: "ok", "WRONG", "-" not checked.
 */
void bench_head(const struct bench *b);
void bench_row(const struct bench *b, const char *kind, const char *path, size_t bytes,
               double *us, const char *result);

/* Look up the functions that b->m's backend offers; those that it lacks stay NULL. */
void bench_module_open(struct bench *b);
/* From now on every collective that can takes this path ("auto": the fastest). Returns
 * 0 also where the backend has no paths; -1: it cannot.
 */
int bench_force(const struct bench *b, const char *path);

/* Each returns an exit status. */
int bench_host(struct bench *b);
int bench_pairs(struct bench *b);
int bench_lanes(struct bench *b);
int bench_collectives(struct bench *b);
int bench_beside(struct bench *b);
int bench_ddp(struct bench *b);
int bench_tune(struct bench *b); /* on a world with the host backend */

#endif
