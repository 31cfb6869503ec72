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
#ifndef MU_CPUSET_MAX /* fuzzing has a lower one, a multiple of 64 */
#define MU_CPUSET_MAX 8192
#endif
#define MU_CPUSET_WORDS (MU_CPUSET_MAX / 64)

/* A zero-initialised set is empty, plain assignment copies it. A number outside
 * 0..MU_CPUSET_MAX-1 is in no set; mu_cpuset_add ignores it.
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

/* The CPUs that a process may run on (pid 0: the calling thread). Returns 0, or -1 with
 * errno and *set unchanged.
 */
int mu_cpuset_of_process(pid_t pid, struct mu_cpuset *set);

/* Lists as Linux writes them: "0-3,8". Also accepted: a stride ("0-14:2"), blanks, a
 * final newline, and "" for the empty set. On failure *set is unchanged.
 */
int mu_cpuset_parse(const char *text, struct mu_cpuset *set, struct mu_err *err);

/* Comma-separated hexadecimal words of 32 bits, as in /sys/.../cpumap and NCCL's
 * affinity="..."; the last word is CPUs 0-31. Also accepted: a 0x prefix, and a long
 * mask without commas as Slurm writes it.
 */
int mu_cpuset_parse_mask(const char *text, struct mu_cpuset *set, struct mu_err *err);

/* Write the list form, "" for an empty set. Returns the length that it needs, as
 * snprintf does; a result >= len means that the text was cut.
 */
int mu_cpuset_format(const struct mu_cpuset *set, char *buf, size_t len);

/* The same for the mask form with commas; leading words that are 0 are left out. */
int mu_cpuset_format_mask(const struct mu_cpuset *set, char *buf, size_t len);

#endif
