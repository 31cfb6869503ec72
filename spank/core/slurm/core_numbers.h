/* SPDX-License-Identifier: BSD-3-Clause */
/* core_numbers.h - Slurm's core numbers, which differ from Linux CPU numbers */
#ifndef MU_CORE_NUMBERS_H
#define MU_CORE_NUMBERS_H

#include "spank/core/node/node.h"

/* The Linux CPUs of the cores with these Slurm numbers, as in Cores= of gres.conf and
 * in the items of a step. Numbers from ncores on are ignored. False: out of memory.
 */
bool mu_slurm_cores(const struct mu_node *node, const struct mu_cpuset *numbers,
                    struct mu_cpuset *cpus);

#endif
