/* SPDX-License-Identifier: BSD-3-Clause */
/* world_name.c - how messages name this node and the job */
#include <stdio.h>
#include <unistd.h>

#include "runtime/base/parse.h"
#include "runtime/boot/world.h"

void mu_world_name_host(const struct mu_launch *launch, char *host, size_t len)
{
    host[len - 1] = '\0';
    if (launch->slurmd_nodename)
        mu_copy(host, len, launch->slurmd_nodename);
    else if (gethostname(host, len - 1) < 0)
        mu_copy(host, len, "?");
}

void mu_world_name_job(const struct mu_launch *launch, const char *otherwise, char *job,
                       size_t len)
{
    if (launch->slurm_job_id)
        snprintf(job, len, "%.30s.%.30s", launch->slurm_job_id,
                 launch->slurm_step_id ? launch->slurm_step_id : "0");
    else
        mu_copy(job, len, otherwise);
}
