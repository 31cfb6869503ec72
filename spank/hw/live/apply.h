/* SPDX-License-Identifier: BSD-3-Clause */
/* apply.h - CPU affinity and memory policy of the calling process */
#ifndef MU_APPLY_H
#define MU_APPLY_H

#include <stdbool.h>

#include "runtime/base/cpuset.h"
#include "runtime/base/err.h"

int mu_apply_affinity(const struct mu_cpuset *cpus, struct mu_err *err);
int mu_apply_memory(const struct mu_cpuset *mems, bool strict, struct mu_err *err);

#endif
