/* SPDX-License-Identifier: BSD-3-Clause */
/* world_name.c - how the launcher's variables name this node and the job */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "runtime/base/parse.h"
#include "runtime/boot/world.h"
#include "runtime/muster.h"

struct mu_world *mu_world_launched(const struct mu_launch *launch, int rank, int size,
                                   const char *otherwise, size_t impl,
                                   struct mu_err *err)
{
    struct mu_world *w;
    char job[64];

    if (launch->slurm_job_id)
        snprintf(job, sizeof job, "%.30s.%.30s", launch->slurm_job_id,
                 launch->slurm_step_id ? launch->slurm_step_id : "0");
    else
        mu_copy(job, sizeof job, otherwise);
    w = mu_world_new(rank, size, job, err);
    if (!w)
        return NULL;
    w->impl = calloc(1, impl);
    if (!w->impl) {
        mu_world_free(w);
        mu_err_set(err, MUSTER_EMEMORY, "out of memory for %d ranks", size);
        return NULL;
    }
    if (launch->slurmd_nodename)
        mu_copy(w->host, sizeof w->host, launch->slurmd_nodename);
    else if (gethostname(w->host, sizeof w->host - 1) < 0)
        mu_copy(w->host, sizeof w->host, "?");
    return w;
}
