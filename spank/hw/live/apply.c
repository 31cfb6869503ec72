/* SPDX-License-Identifier: BSD-3-Clause */
/* apply.c - CPU affinity and memory policy of the calling process */
#include <errno.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "spank/hw/live/apply.h"

#define NODE_BITS 1024 /* the kernel's limit of NUMA nodes */

/* MPOL_PREFERRED_MANY of Linux 5.15. Older headers lack it; in newer ones it is an
 * enumerator, which #ifdef cannot detect.
 */
#define PREFERRED_MANY 5

int mu_apply_affinity(const struct mu_cpuset *cpus, struct mu_cpuset *applied,
                      struct mu_err *err)
{
    struct mu_cpuset now = { { 0 } };
    char want[256], have[256];

    mu_cpuset_format(cpus, want, sizeof want);
    if (mu_cpuset_empty(cpus))
        return mu_err_set(err, EINVAL, "no CPUs to bind to");
    if (syscall(SYS_sched_setaffinity, 0, sizeof cpus->word, cpus->word) < 0)
        return mu_err_set(err, errno, "binding to CPUs %s failed: %s", want,
                          strerror(errno));
    /* The kernel silently drops CPUs outside the cgroup. */
    mu_cpuset_of_process(0, &now);
    *applied = now;
    if (mu_cpuset_equal(&now, cpus))
        return 0;
    mu_cpuset_format(&now, have, sizeof have);
    return mu_err_set(err, EINVAL, "the kernel bound to CPUs %s, the plan has %s", have,
                      want);
}

static int set_policy(int mode, const struct mu_cpuset *mems)
{
    return (int)syscall(SYS_set_mempolicy, mode, mems->word, NODE_BITS + 1);
}

int mu_apply_memory(const struct mu_cpuset *mems, bool strict, struct mu_err *err)
{
    struct mu_cpuset one = { { 0 } };
    char list[256];

    if (mu_cpuset_empty(mems))
        return 0;
    mu_cpuset_format(mems, list, sizeof list);
    if (mu_cpuset_next(mems, NODE_BITS - 1) >= 0)
        return mu_err_set(err, EINVAL, "NUMA nodes %s exceed the kernel's limit of %d",
                          list, NODE_BITS);
    if (strict) {
        if (set_policy(MPOL_BIND, mems) == 0)
            return 0;
        return mu_err_set(err, errno, "binding memory to NUMA nodes %s failed: %s",
                          list, strerror(errno));
    }
    if (mu_cpuset_count(mems) > 1 && set_policy(PREFERRED_MANY, mems) == 0)
        return 0;
    /* Linux before 5.15 can prefer one node only: take the lowest. */
    mu_cpuset_add(&one, mu_cpuset_next(mems, -1));
    if (set_policy(MPOL_PREFERRED, &one) == 0)
        return 0;
    return mu_err_set(err, errno, "preferring the memory of NUMA nodes %s failed: %s",
                      list, strerror(errno));
}
