/* SPDX-License-Identifier: BSD-3-Clause */
/* cpuset.h - sets of Linux CPU numbers or NUMA OS indices, as value types */
#ifndef MU_CPUSET_H
#define MU_CPUSET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "runtime/base/err.h"

/* The kernel's own upper limit (CONFIG_NR_CPUS is at most 8192). */
#define MU_CPUSET_MAX 8192
#define MU_CPUSET_WORDS (MU_CPUSET_MAX / 64)

/* Zero-initialised is empty. Plain assignment copies. Members outside
 * 0..MU_CPUSET_MAX-1 are never in a set: adding one does nothing.
 */
struct mu_cpuset {
    uint64_t word[MU_CPUSET_WORDS];
};

void mu_cpuset_add(struct mu_cpuset *set, int cpu);
void mu_cpuset_add_range(struct mu_cpuset *set, int first, int last);
void mu_cpuset_remove(struct mu_cpuset *set, int cpu);
bool mu_cpuset_has(const struct mu_cpuset *set, int cpu);
int mu_cpuset_count(const struct mu_cpuset *set);
bool mu_cpuset_empty(const struct mu_cpuset *set);
bool mu_cpuset_equal(const struct mu_cpuset *a, const struct mu_cpuset *b);
bool mu_cpuset_intersects(const struct mu_cpuset *a, const struct mu_cpuset *b);
/* Every member of `inner` is in `outer` (the empty set is inside every set). */
bool mu_cpuset_inside(const struct mu_cpuset *inner, const struct mu_cpuset *outer);
void mu_cpuset_or(struct mu_cpuset *set, const struct mu_cpuset *other);
void mu_cpuset_and(struct mu_cpuset *set, const struct mu_cpuset *other);
void mu_cpuset_andnot(struct mu_cpuset *set, const struct mu_cpuset *other);
/* The first member after `cpu` (start with -1), or -1. */
int mu_cpuset_next(const struct mu_cpuset *set, int cpu);

/* The CPUs that a process may run on (0: the calling thread). 0, or -1 with errno: then
 * *set is untouched.
 */
int mu_cpuset_of_process(pid_t pid, struct mu_cpuset *set);

/* Lists as Linux writes them: "0-3,8" (also "0-14:2", blanks and a final newline
 * are accepted; "" is the empty set). On failure *set is untouched.
 */
int mu_cpuset_parse(const char *text, struct mu_cpuset *set, struct mu_err *err);

/* Comma-separated 32-bit hexadecimal words, the last one is CPUs 0-31, as in
 * /sys/.../cpumap and NCCL's affinity="..."; a 0x prefix and a mask longer than a
 * word without commas (Slurm's) are accepted.
 */
int mu_cpuset_parse_mask(const char *text, struct mu_cpuset *set, struct mu_err *err);

/* Write the list form; an empty set is "". Returns the length it needs, like
 * snprintf; a result >= len means it was cut.
 */
int mu_cpuset_format(const struct mu_cpuset *set, char *buf, size_t len);

/* The mask form with commas, no leading zero words ("0" when empty). */
int mu_cpuset_format_mask(const struct mu_cpuset *set, char *buf, size_t len);

#endif
