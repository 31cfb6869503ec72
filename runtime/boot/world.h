/* SPDX-License-Identifier: BSD-3-Clause */
/* world.h - this process among the others: rank, size, nodes
 *
 *   world.c         choose the way in
 *   world_meet.c    exchange the ranks' records
 *   world_table.c   make, number, shrink and free the table of ranks
 *   world_group.c   some ranks of a world, as a world
 *   world_pmix.c    a world of PMIx
 *   world_rdzv.c    a world of RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT
 *   world_program.c a world of the all-gather that the program brings
 *   world_join.c    a world that has begun without this process
 *   world_single.c  a world of this process alone
 *   world_name.c    how the launcher's variables name this node and the job
 *   world_none.c    in place of world_pmix.c where there is no PMIx
 */
#ifndef MU_WORLD_H
#define MU_WORLD_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/err.h"
#include "runtime/base/exchange.h"
#include "runtime/core/launch.h"
#include "runtime/core/reporter.h"
#include "runtime/endpoint/endpoint.h"
#include "runtime/muster.h"

struct mu_survive;

/* A rank as another one sees it. */
struct mu_member {
    struct mu_address address;
    int32_t pid, node;
    char host[128];
};

struct mu_world {
    int rank, size;
    int local_rank, local_size;
    int node, nnodes;
    int *node_of;                  /* by rank; nodes numbered by their lowest rank */
    int *local_of;                 /* local rank, by rank */
    char **host_of;                /* by rank */
    int *pid_of;                   /* by rank, as that rank sees itself */
    char job[64];                  /* "job.step" */
    char host[128], node_key[160]; /* of this rank: see mu_world_exchange */
    uint8_t token[MU_TOKEN_LEN];
    bool own_ranks; /* numbered by the program: not by task of MUSTER_PLAN */
    bool has_token; /* each rank has it before they meet: it is not sent */
    struct mu_endpoint *endpoint; /* NULL in a world of one */
    struct mu_address *address;   /* of each rank's endpoint, by rank */
    uint64_t generation;          /* equal on all ranks; see struct mu_claim */
    struct mu_exchange exchange;
    /* What a process must have in common with the ranks before it may join them. */
    char terms[128];
    bool joins; /* this process joins, or has joined, a world that exists */
    /* What it has joined by, until mu_elastic_open takes it; else NULL. */
    struct mu_survive *survive;
    struct mu_view view; /* of the failure of meet, for the turn to report it */
    /* Exchange the ranks' records; see mu_world_meet. NULL: nothing to do. */
    int (*meet)(struct mu_world *world, double timeout, struct mu_err *err);
    void (*close)(struct mu_world *world); /* orderly; frees world */
    void (*leave)(struct mu_world *world); /* see mu_world_leave; NULL: nothing to do */
    /* End the whole step with this status. Returns only if that failed. NULL: no
     * launcher ends the others, the control connections do.
     */
    void (*abort)(struct mu_world *world, int status, const char *why);
    /* Of who meets the others: a call of the program's does not return, and only the
     * end of this process ends it. Does not return.
     */
    void (*stuck)(void *arg, const struct mu_err *why);
    void *stuck_arg;
    void *impl;
};

/* Our own rank and size; no other rank is waited for. Refuses with err->code = a
 * muster_status: see mu_launch_check. exchange: the program's, or NULL.
 */
int mu_world_open(const struct mu_launch *launch,
                  const struct muster_exchange *exchange, struct mu_world **out,
                  struct mu_err *err);
/* [collective] Learn nodes, hosts and the token from the others. Fails when a rank did
 * not arrive within `timeout` seconds (named where it is known) or left no record;
 * the caller then ends the step with mu_world_abort, since the others may wait for
 * ever.
 */
int mu_world_meet(struct mu_world *world, double timeout, struct mu_err *err);
/* The launcher need not know any longer how this rank ends: from here on it does not
 * end the step because of one that dies, and exchange is of no use. abort still works.
 */
void mu_world_leave(struct mu_world *world);
void mu_world_close(struct mu_world *world); /* NULL is fine */
/* Does not return: where the launcher cannot end the step, at least this process ends.
 */
void mu_world_abort(struct mu_world *world, int status, const char *why)
    __attribute__((noreturn));

/* For the makers of worlds: arrays for `size` ranks, rank and job set. */
struct mu_world *mu_world_new(int rank, int size, const char *job, struct mu_err *err);
/* The same with impl of so many bytes, all 0, which the world's close frees. job is
 * Slurm's "job.step", else `otherwise`; host is what Slurm calls this node, else its own
 * name.
 */
struct mu_world *mu_world_launched(const struct mu_launch *launch, int rank, int size,
                                   const char *otherwise, size_t impl,
                                   struct mu_err *err);
/* Open the endpoint. master_addr (or NULL): an address of rank 0's host. */
int mu_world_listen(struct mu_world *world, const char *master_addr,
                    struct mu_err *err);
/* [collective] Publish this rank's record and read those of all ranks: host (how
 * messages name the node), process id, address of the endpoint, and rank 0's token.
 * node_key is equal on ranks of one node and on no others.
 */
int mu_world_exchange(struct mu_world *world, double timeout, struct mu_err *err);
/* Number nodes by their lowest rank and ranks within them. node_of[r] holds any number
 * that is equal on ranks of one node and on no others.
 */
void mu_world_number_nodes(struct mu_world *world);
void mu_world_free(struct mu_world *world);

/* Leave out the ranks r without keep[r]; this one is kept. Ranks, nodes and local ranks
 * are numbered anew, without gaps and in their old order.
 */
void mu_world_shrink(struct mu_world *world, const bool *keep);

/* One rank more, behind the others; its number of the node is that of world, or the
 * next free one. mu_world_shrink must follow.
 */
int mu_world_append(struct mu_world *world, const struct mu_member *member,
                    struct mu_err *err);
/* The token of the job: from here on the endpoint can judge callers. */
void mu_world_trust(struct mu_world *world, const uint8_t token[MU_TOKEN_LEN]);

/* The n ranks of parent that `ranks` lists become 0 .. n-1; this rank is among them.
 * generation: of no other world on the same endpoints, equal on these ranks. Close it
 * before parent. host_of has the rank in the world too: it is for messages.
 */
int mu_world_group(struct mu_world *parent, const int *ranks, int n,
                   uint64_t generation, struct mu_world **out, struct mu_err *err);

/* A world of this process alone. */
int mu_world_single(struct mu_world **out, struct mu_err *err);
/* From RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. 1: see mu_rdzv_read. */
int mu_world_rdzv(const struct mu_launch *launch, struct mu_world **out,
                  struct mu_err *err);
/* From the program's exchange. */
int mu_world_program(const struct mu_launch *launch, const struct muster_exchange *x,
                     struct mu_world **out, struct mu_err *err);
/* From the file that a world with MUSTER_GROW writes. Rank and size are known after
 * mu_world_meet, in which this process waits until the ranks take it.
 */
int mu_world_join(const struct mu_launch *launch, const char *file,
                  struct mu_world **out, struct mu_err *err);
/* From PMIx. 1: there is no PMIx server (or no PMIx in this build), *out untouched. */
int mu_world_pmix(const struct mu_launch *launch, struct mu_world **out,
                  struct mu_err *err);

#endif
