/* SPDX-License-Identifier: BSD-3-Clause */
/* step.h - runs this program once on each node of the job, as a step */
#ifndef MU_STEP_H
#define MU_STEP_H

#include <stdbool.h>
#include <stddef.h>

#include "runtime/base/err.h"

#define MU_STEP_WORDS 6 /* of command, at most */

/* command: the words behind the program's name, then NULL. The step shares the job's
 * resources, and is ended after `seconds`; srun ends the nodes that need more than 45 s
 * behind the first one. text: what the tasks print, cut to len - 1 bytes. The layout of
 * the job's other steps is taken out of this process's environment. Returns srun's exit
 * status, -1 where it did not exit by itself.
 */
int mu_step_on_nodes(int nnodes, const char *const *command, double seconds, char *text,
                     size_t len);

/* This process is a task of a step, and not its first: what is done once for a job is
 * the first one's.
 */
bool mu_step_is_other_task(void);

/* The sentence for a step that failed, with the command that shows why. Returns -1. */
int mu_step_failed(int nnodes, const char *const *command, int status,
                   struct mu_err *err);

#endif
