/* SPDX-License-Identifier: BSD-3-Clause */
/* ways.h - processes that call muster_init with an environment of their own, as a
 * launcher without PMIx starts them
 */
#ifndef TEST_WAYS_H
#define TEST_WAYS_H

#include <stdbool.h>
#include <stddef.h>

#include "runtime/muster.h"
#include "runtime/tools/fork_ranks.h"

#define WAYS_SETS 8
#define WAYS_SHORT 2.0 /* seconds, where the deadline itself is awaited */
#define WAYS_TOKEN "00112233445566778899aabbccddeeff00112233445566778899AABBCCDDEEFF"

struct ways {
    int size;
    /* The environment beyond RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. */
    struct {
        int rank;                 /* -1: all */
        const char *name, *value; /* NULL: unset */
    } set[WAYS_SETS];
    unsigned skip; /* bit r: rank r is not started */
    /* Of the program, instead of the variables; arg is a struct mu_fork_rank. */
    int (*allgather)(void *arg, const void *mine, void *all, size_t bytes);
    bool first;          /* the program's exchange is taken before the variables */
    bool own_device;     /* muster_options.own_device */
    double dies_after;   /* s, below 1; of the last rank. 0: it lives */
    double init_timeout; /* 0: 20 s */
    /* Called by each process before muster_init; may be NULL. */
    void (*before)(int rank, void *arg);
};

struct ways_result {
    int status[MU_FORK_MAX]; /* exit status; 128 + signal when killed */
    double seconds;          /* until the last one has ended */
    char *text;              /* standard error of all; the caller frees it */
};

/* A port that nothing uses, also the one after it. */
int ways_port(void);

/* Start the ranks at this port. Each opens a world and runs body, whose result is its
 * exit status; without a world it reports, as the manual has it.
 */
void ways_run(const struct ways *w, int port, int (*body)(struct muster *m, void *arg),
              void *arg, struct ways_result *out);

/* RANK of this process, which a launcher has set. */
int ways_rank(void);

/* The name of a file by which processes join (MUSTER_JOIN), another in each program. */
void ways_join_file(char *path, size_t len);

/* A body. */
int ways_end(struct muster *m, void *arg);

/* An all-gather in shared memory, for struct ways. */
int ways_allgather(void *rank, const void *mine, void *all, size_t bytes);

/* Is there a line in which `named` follows `said`? */
bool ways_line(const char *text, const char *said, const char *named);

/* A file of a token, to be removed. */
void ways_token(char *path, size_t len);

#endif
