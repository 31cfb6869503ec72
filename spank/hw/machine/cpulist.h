/* SPDX-License-Identifier: BSD-3-Clause */
/* cpulist.h - cores from a list of CPUs, for sources that do not list cores */
#ifndef MU_CPULIST_H
#define MU_CPULIST_H

#include "spank/core/node/node.h"

/* Add the CPUs of one locality (those that are in no core yet) to node->cores. Where
 * the list is k equal, equally spaced runs (0-15,128-143), element j of each run is one
 * core; one run alone is cores of one thread; otherwise each CPU counts as a core and
 * node->smt_guess is set.
 */
int mu_cores_add_list(struct mu_node *node, const struct mu_cpuset *cpus, int numa,
                      int package, struct mu_err *err);

/* The same with known threads per core and distance of their numbers: thread t of core
 * c is CPU c + t * stride. Cores may lack threads (offline).
 */
int mu_cores_add_strided(struct mu_node *node, const struct mu_cpuset *cpus,
                         int threads, int stride, int numa, int package,
                         struct mu_err *err);

/* One core of these CPUs, at most MU_CORE_CPUS; nothing when all are in cores already.
 */
int mu_cores_add_group(struct mu_node *node, const struct mu_cpuset *cpus, int numa,
                       int package, struct mu_err *err);

#endif
