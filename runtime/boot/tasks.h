/* SPDX-License-Identifier: BSD-3-Clause */
/* tasks.h - notice that a task of this node ended before it reached the library
 *
 * Until a rank has called muster_init nothing connects it to the others, and Slurm lets
 * a step go on that lost a task. But the tasks of a step on a node are children of one
 * slurmstepd, all of them forked before the first starts its program, and each carries
 * its rank in its environment.
 */
#ifndef MU_TASKS_H
#define MU_TASKS_H

#include <stdbool.h>
#include <sys/types.h>

/* Mark in gone[r] (r < size) each rank r with local[r] that has no process any more,
 * and return their number. 0 also where this is unknown: not started by Slurm, daemon
 * not visible from here, a task of another user. `proc` is "/proc", self a process of
 * the task that asks. The kernel's list may lack a process for a moment: a rank is gone
 * when two calls in a row have marked it.
 */
int mu_tasks_gone(const char *proc, pid_t self, const bool *local, int size,
                  bool *gone);

#endif
