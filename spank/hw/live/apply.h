/* SPDX-License-Identifier: BSD-3-Clause */
/* apply.h - CPU affinity and memory policy of the calling process */
#ifndef MU_APPLY_H
#define MU_APPLY_H

#include <stdbool.h>

#include "runtime/base/cpuset.h"
#include "runtime/base/err.h"

/* What a process was really bound to; empty: its affinity or policy is as before. */
struct mu_bound {
    struct mu_cpuset cpus;
    struct mu_cpuset mems;
};

/* The kernel may take a part of the CPUs only: that is a failure, and *applied is the
 * part. Else *applied is all of cpus, or untouched where nothing was set.
 */
int mu_apply_affinity(const struct mu_cpuset *cpus, struct mu_cpuset *applied,
                      struct mu_err *err);
int mu_apply_memory(const struct mu_cpuset *mems, bool strict, struct mu_err *err);

#endif
