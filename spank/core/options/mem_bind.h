/* SPDX-License-Identifier: BSD-3-Clause */
/* mem_bind.h - what Slurm's --mem-bind asks for, in the words of the key mem */
#ifndef MU_MEM_BIND_H
#define MU_MEM_BIND_H

#include "spank/core/options/muster_option.h"

/* The text of SLURM_MEM_BIND, for example "quiet,prefer,local" or "map_mem:0,1".
 * UNSET: it asks for no policy, or text is NULL. NONE: Slurm's policy stays as it is.
 * STRICT, PREFER: "local", the memory of the task's CPUs. Slurm set it for the CPUs that
 * it gave the task, so that a task with other CPUs needs it anew.
 */
enum mu_mem mu_mem_bind_parse(const char *text);

#endif
