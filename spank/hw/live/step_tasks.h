/* SPDX-License-Identifier: BSD-3-Clause */
/* step_tasks.h - the tasks that the other steps of a job run on this node */
#ifndef MU_STEP_TASKS_H
#define MU_STEP_TASKS_H

/* All pointers are valid during the call only. */
struct mu_step_task {
    const char *pid;
    const char *step;    /* SLURM_STEP_ID */
    const char *environ; /* text of /proc/PID/environ: terminated strings */
    long len;
};

/* The value of a variable in it, or NULL. */
const char *mu_step_task_env(const struct mu_step_task *task, const char *name);

/* Call seen() for each child of a slurmstepd that has this SLURM_JOB_ID and another
 * SLURM_STEP_ID than `own` (NULL: whichever). Only processes whose environment the
 * caller may read are found: the user's own.
 */
void mu_step_tasks(const char *job, const char *own,
                   void (*seen)(void *arg, const struct mu_step_task *task), void *arg);

#endif
