/* SPDX-License-Identifier: BSD-3-Clause */
/* takeover.h - taking over --gpu-bind: who asked for what, and what Slurm is told.
 *
 * Slurm carries a GPU binding out with a device cgroup for each task, which hides the
 * peers that NCCL needs. So Slurm is told `none` and Muster narrows by environment.
 *
 *   srun's words   its environment   the request kept by an outer level
 *             \___________   |   ___________/
 *                   mu_request_decide()
 *                    |              |
 *    mu_request (SLURM_MUSTER_REQUEST)   variables to set before srun reads them
 */
#ifndef MU_TAKEOVER_H
#define MU_TAKEOVER_H

#include <stdbool.h>

#include "runtime/base/err.h"

/* The name starts with SLURM because srun --export=NONE lets only those through. */
#define MU_REQUEST_VARIABLE "SLURM_MUSTER_REQUEST"
#define MU_REQUEST_TEXT 2048

/* Borrowed strings, NULL where absent. */
struct mu_request_words {
    /* srun's own command line; all NULL for a batch step */
    const char *gpu_bind, *tres_bind, *gpus_per_task, *tres_per_task, *ntasks_per_gpu;
    const char *gres_flags, *cpu_bind;
    /* its environment */
    const char *env_gpu_bind, *env_tres_bind, *env_gpus_per_task, *env_tres_per_task;
    const char *env_ntasks_per_gpu, *env_gres_flags, *env_cpu_bind, *env_cpu_bind_type;
    const char *env_request; /* SLURM_MUSTER_REQUEST */
};

/* What the Slurm at hand can do. */
struct mu_request_slurm {
    bool tres_bind;    /* SLURM_TRES_BIND is read: 23.11 and later */
    bool task_sharing; /* --gres-flags=allow-task-sharing: 23.11.4 and later */
};

struct mu_request {
    char gpu_bind[1024]; /* in Slurm's words without "gpu:"; "" nothing was asked */
    bool implicit;       /* it follows from --gpus-per-task and the like */
    bool slurm_binds;    /* Slurm carries it out itself: it could not be taken over */
    bool cpu_bind;       /* the user gave --cpu-bind, or set SLURM_CPU_BIND */
    bool cpu_bind_inherited; /* SLURM_CPU_BIND comes from an outer step */
};

struct mu_request_change {
    const char *name; /* static */
    char value[MU_REQUEST_TEXT];
};

#define MU_REQUEST_CHANGES 3

/* Decide; *nchanges of `changes` are to be set in the environment. Values that Slurm
 * itself will refuse are left to Slurm: nothing is taken over then.
 */
void mu_request_decide(const struct mu_request_words *words,
                       const struct mu_request_slurm *slurm, struct mu_request *out,
                       struct mu_request_change changes[MU_REQUEST_CHANGES],
                       int *nchanges);

/* The text of SLURM_MUSTER_REQUEST, for example "v=1;cpu-bind=no;from=explicit;
 * by=muster;gpu-bind=map_gpu:1,0" (gpu-bind is last, so that it may hold anything).
 */
void mu_request_encode(const struct mu_request *request, char text[MU_REQUEST_TEXT]);
int mu_request_decode(const char *text, struct mu_request *out, struct mu_err *err);

#endif
