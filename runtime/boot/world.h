/* SPDX-License-Identifier: BSD-3-Clause */
/* world.h - who we are among whom: rank, size, nodes, from PMIx or alone */
#ifndef MU_WORLD_H
#define MU_WORLD_H

#include "runtime/backend/backend.h"
#include "runtime/base/err.h"

/* What the process environment says, read once by the caller (getenv results, NULL if
 * unset); borrowed during mu_world_open.
 */
struct mu_world_hints {
    const char *slurm_step_num_tasks; /* SLURM_STEP_NUM_TASKS */
    const char *slurm_procid, *slurm_job_id, *slurm_step_id;
    const char *rank, *world_size; /* RANK, WORLD_SIZE */
    bool single;                   /* a world of one without PMIx is meant */
};

struct mu_world {
    int rank, size;
    int local_rank, local_size;
    int node, nnodes;
    int *node_of;   /* by rank; nodes numbered by their lowest rank */
    int *local_of;  /* local rank, by rank */
    char **host_of; /* by rank */
    char job[64];   /* "job.step" */
    uint8_t token[MU_TOKEN_LEN];
    struct mu_exchange exchange;
    void *impl;
};

/* Refuses with err->code = a muster_status: a singleton while Slurm started several
 * tasks, a rank that did not arrive before the deadline (named), RANK/WORLD_SIZE that
 * contradict PMIx.
 */
int mu_world_open(const struct mu_world_hints *hints, double timeout,
                  struct mu_world **out, struct mu_err *err);
void mu_world_close(struct mu_world *world); /* orderly: PMIx_Finalize */
/* End the whole step with this status. Returns only if that failed. */
void mu_world_abort(struct mu_world *world, int status, const char *why);

#endif
