/* SPDX-License-Identifier: BSD-3-Clause */
/* cores.h - the cores of this process */
#ifndef MU_HOST_CORES_H
#define MU_HOST_CORES_H

#include "runtime/base/cpuset.h"

/* The cores that this thread may run on, each by its first hardware thread. Empty when
 * the kernel does not report its CPUs.
 */
void mu_cores_own(struct mu_cpuset *out);

/* Add the cores of one more rank to those that are taken; false: it has none, or one of
 * them is taken.
 */
bool mu_cores_take(struct mu_cpuset *taken, const struct mu_cpuset *cores);

#endif
