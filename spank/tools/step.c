/* SPDX-License-Identifier: BSD-3-Clause */
/* step.c - runs this program once on each node of the job, as a step */
#include "spank/tools/step.h"

#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "spank/tools/run.h"

/* Of the job or an outer step: how its tasks are laid out, which this step is not. */
static void forget_layout(void)
{
    static const char *const names[] = {
        "SLURM_NTASKS",         "SLURM_NPROCS",          "SLURM_NTASKS_PER_GPU",
        "SLURM_GPUS_PER_TASK",  "SLURM_TRES_PER_TASK",   "SLURM_GPU_BIND",
        "SLURM_TRES_BIND",      "SLURM_CPU_BIND",        "SLURM_CPU_BIND_TYPE",
        "SLURM_DISTRIBUTION",   "SLURM_NTASKS_PER_CORE", "SLURM_NTASKS_PER_SOCKET",
        "SLURM_MUSTER_REQUEST", "SLURM_GRES_FLAGS",      "SLURM_THREADS_PER_CORE",
    };

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        unsetenv(names[i]);
}

static void self_path(char *path, size_t len)
{
    ssize_t n = readlink("/proc/self/exe", path, len - 1);

    path[n > 0 ? n : 0] = '\0';
}

int mu_step_on_nodes(int nnodes, const char *const *command, double seconds, char *text,
                     size_t len)
{
    char self[PATH_MAX], nodes[32], tasks[32];
    const char *argv[11 + MU_STEP_WORDS + 1] = { "srun",
                                                 "--quiet",
                                                 "--overlap",
                                                 "--mpi=none",
                                                 nodes,
                                                 tasks,
                                                 "--ntasks-per-node=1",
                                                 "--cpus-per-task=1",
                                                 "--wait=45",
                                                 "--kill-on-bad-exit=0",
                                                 self };

    self_path(self, sizeof self);
    snprintf(nodes, sizeof nodes, "--nodes=%d", nnodes);
    snprintf(tasks, sizeof tasks, "--ntasks=%d", nnodes);
    for (int i = 0; i < MU_STEP_WORDS && command[i]; i++)
        argv[11 + i] = command[i];
    forget_layout();
    return mu_run((char *const *)(uintptr_t)argv, seconds, text, len);
}

bool mu_step_is_other_task(void)
{
    const char *rank = getenv("SLURM_PROCID");

    return getenv("SLURM_STEP_ID") && rank && strcmp(rank, "0") != 0;
}

int mu_step_failed(int nnodes, const char *const *command, int status,
                   struct mu_err *err)
{
    char self[PATH_MAX], words[256] = "";

    self_path(self, sizeof self);
    for (int i = 0; i < MU_STEP_WORDS && command[i]; i++)
        snprintf(words + strlen(words), sizeof words - strlen(words), " %s",
                 command[i]);
    return mu_err_set(err, EIO,
                      "the step failed (srun's status %d): see what this prints: srun "
                      "--overlap --nodes=%d --ntasks=%d --ntasks-per-node=1 %s%s",
                      status, nnodes, nnodes, self, words);
}
