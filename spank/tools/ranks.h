/* SPDX-License-Identifier: BSD-3-Clause */
/* ranks.h - the ranks that `muster run` has started on this node
 *
 *   ranks.c         the command: plan, environment, start
 *   ranks_watch.c   output, signals, the end of all
 */
#ifndef MU_RANKS_H
#define MU_RANKS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define MU_RANKS_MAX 1024
#define MU_RANK_LINE 65536

/* What a rank writes on one of its streams, until a line is complete. */
struct mu_stream {
    int fd; /* -1: it has ended */
    size_t len;
    char *line; /* MU_RANK_LINE bytes */
};

struct mu_rank {
    pid_t pid; /* and its process group; 0: it has ended */
    struct mu_stream out, err;
};

struct mu_ranks {
    int n;
    struct mu_rank *rank;
    bool label;   /* "3: " before each line */
    bool elastic; /* a rank that fails does not end the others */
    int signals;  /* of mu_ranks_signals */
};

/* Before the first fork: from here on signals arrive at the descriptor, -1: errno. */
int mu_ranks_signals(void);
/* In a child, before exec: none of it is left. */
void mu_ranks_restore(void);
/* Forward output and signals until all have ended. Returns the exit status of the first
 * that failed, 128 + signal where it was killed, else 0.
 */
int mu_ranks_watch(struct mu_ranks *ranks);
/* Kill those that run, without a word. */
void mu_ranks_kill(struct mu_ranks *ranks);

#endif
