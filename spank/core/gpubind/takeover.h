/* SPDX-License-Identifier: BSD-3-Clause */
/* takeover.h - taking over --gpu-bind: the request, and what Slurm gets instead
 *
 * Slurm applies a GPU binding with a device cgroup for each task, which hides the peer
 * GPUs that NCCL needs. So Muster gives Slurm the request `none`, and limits each task
 * to its GPUs by the environment.
 *
 *   srun's options   its environment   the request kept by an outer level
 *              \____________   |   ____________/
 *                    mu_takeover_decide()
 *                      |              |
 *      mu_bind_request                variables to set before srun reads them
 *
 * Two processes take part, on two machines, and one variable links them:
 *
 *   srun         plugin/srun.c mu_srun_init decides, sets the variables in srun's own
 *                environment and encodes the request into SLURM_MUSTER_REQUEST. In the
 *                batch step plugin/stepd.c take_over_batch does so for the job script.
 *   Slurm        sends srun's environment to each node of the step. Names that start
 *                with SLURM are sent even under srun --export=NONE.
 *   slurmstepd   plugin/items.c read_request decodes it. The plan then uses the request
 *                as its GPU binding, and each task is limited to its share.
 *
 * If the variable is missing, srun ran without the plugin. slurmstepd then decides from
 * the remaining environment, and Slurm itself applies the binding in it (slurm_binds).
 */
#ifndef MU_TAKEOVER_H
#define MU_TAKEOVER_H

#include <stdbool.h>
#include <stddef.h>

#include "runtime/base/err.h"

#define MU_TAKEOVER_VARIABLE "SLURM_MUSTER_REQUEST"
#define MU_TAKEOVER_TEXT 2048

/* What the decision is made from: borrowed strings, NULL where absent. */
struct mu_takeover_input {
    /* srun's own command line; all NULL for a batch step */
    const char *gpu_bind, *tres_bind, *gpus_per_task, *tres_per_task, *ntasks_per_gpu;
    const char *gres, *gres_flags, *cpu_bind;
    /* its environment */
    const char *env_gpu_bind, *env_tres_bind, *env_gpus_per_task, *env_tres_per_task;
    const char *env_ntasks_per_gpu, *env_gres_flags, *env_cpu_bind, *env_cpu_bind_type;
    const char *env_gres;             /* SLURM_STEP_GRES, else SLURM_GRES */
    const char *env_shards, *env_mps; /* the job's parts of GPUs on this node */
    const char *env_request;          /* SLURM_MUSTER_REQUEST */
    /* srun --jobid from a shell that is not the job's: what the job has is not known */
    bool foreign_job;
};

/* What this release of Slurm supports. */
struct mu_takeover_slurm {
    bool tres_bind;    /* SLURM_TRES_BIND is read: 23.11 and later */
    bool task_sharing; /* --gres-flags=allow-task-sharing: 23.11.4 and later */
};

struct mu_bind_request {
    char gpu_bind[1024];     /* in Slurm's syntax, without "gpu:"; "" no request */
    bool implicit;           /* derived from --gpus-per-task or another number */
    bool slurm_binds;        /* Slurm applies it: it could not be taken over */
    bool cpu_bind;           /* the user gave --cpu-bind, or set SLURM_CPU_BIND */
    bool cpu_bind_inherited; /* SLURM_CPU_BIND comes from an outer step */
    bool own_option;         /* Muster itself gave the --muster (restart.h) */
};

struct mu_takeover_change {
    const char *name; /* static */
    char value[MU_TAKEOVER_TEXT];
};

#define MU_TAKEOVER_CHANGES 3

/* Decide what Slurm gets. The caller sets the first *nchanges of `changes` in the
 * environment. If Slurm will refuse a value, nothing is taken over. A binding of parts
 * of GPUs (gres/shard, gres/mps) is no request: Slurm gives a step parts of one GPU,
 * and 22.05 ends the tasks by a segmentation fault where they meet `none`. A foreign
 * job may have parts, unless the step asks for whole GPUs.
 */
void mu_takeover_decide(const struct mu_takeover_input *input,
                        const struct mu_takeover_slurm *slurm,
                        struct mu_bind_request *out,
                        struct mu_takeover_change changes[MU_TAKEOVER_CHANGES],
                        int *nchanges);

/* Does the step have parts of GPUs? An option of srun replaces what the job has. */
bool mu_takeover_asks_for_parts(const struct mu_takeover_input *input);

/* Case 079. Does SLURM_TRES_PER_TASK only repeat SLURM_CPUS_PER_TASK, beside a
 * --ntasks-per-gpu? sbatch of Slurm 24.05 and later writes both for -c, and srun then
 * refuses to start. The variable has to be unset: srun reads the other one.
 */
bool mu_takeover_repeats_cpus(const struct mu_takeover_input *input,
                              const char *cpus_per_task);

/* A --tres-bind list without its binding of GPUs; false: it has none. */
bool mu_takeover_neutral_list(const char *text, char *out, size_t len);

/* The text of SLURM_MUSTER_REQUEST, for example "v=1;cpu-bind=no;from=explicit;
 * by=muster;gpu-bind=map_gpu:1,0".
 */
void mu_takeover_encode(const struct mu_bind_request *request,
                        char text[MU_TAKEOVER_TEXT]);
int mu_takeover_decode(const char *text, struct mu_bind_request *out,
                       struct mu_err *err);

#endif
