/* SPDX-License-Identifier: BSD-3-Clause */
/* core_numbers.h - core numbers in Slurm's own count, which are not Linux's */
#ifndef MU_CORE_NUMBERS_H
#define MU_CORE_NUMBERS_H

#include "spank/core/node/node.h"

/* The Linux CPUs of the cores with these numbers, which gres.conf's Cores= and the
 * items of a step have; numbers from ncores on are none. False: out of memory.
 */
bool mu_slurm_cores(const struct mu_node *node, const struct mu_cpuset *numbers,
                    struct mu_cpuset *cpus);

#endif
