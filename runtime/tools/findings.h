/* SPDX-License-Identifier: BSD-3-Clause */
/* findings.h - rules: what makes a training slow, and the remedy
 *
 *   findings.c          calls all rules; those about the whole time, buckets and links
 *   findings_steps.c    rules about steps: who waits, and for what
 *   findings_differs.c  in what a late process differs from the others
 *   findings_gpus.c     GPUs that are idle, have memory to spare, or nearly none
 *   findings_rules.c    names, limits and remedies
 *
 * Each rule is a function that adds at most one finding. A rule that needs what the
 * ledgers lack (times on the GPU, several ranks, steps) adds none.
 */
#ifndef MU_FINDINGS_H
#define MU_FINDINGS_H

#include "runtime/tools/profile.h"

enum mu_rule {
    COMMUNICATION,
    STRAGGLER,
    SKEW,
    LOADER,
    LAUNCHES,
    SMALL_BUCKETS,
    LONG_TAIL,
    NUMA,
    DATA_PARALLEL,
    NO_P2P,
    SMALL_BATCH,
    NO_OVERLAP,
    TOPOLOGY,
    GPU_IDLE,
    GPU_UNUSED,
    GPU_FULL,
};

struct mu_finding_rule {
    const char *name;
    double limit; /* of the value in the comment of the table */
    const char *remedy;
};

extern const struct mu_finding_rule mu_finding_rules[];

/* file: the process that the sentence is about, -1 all. */
void mu_finding_add(struct mu_profile *p, enum mu_rule rule, int file, double value,
                    const char *format, ...) __attribute__((format(printf, 5, 6)));

/* One rank is late, or the ranks in turn. */
void mu_findings_waiting(struct mu_profile *p);
void mu_findings_loader(struct mu_profile *p);
/* From samples, where there are any. */
void mu_findings_gpus(struct mu_profile *p);

/* A text of parts that begin with "; ": in what a process that is late from one step to
 * another differs from the others. "": in nothing that ledgers and samples have.
 */
void mu_findings_differs(const struct mu_profile *p, int file, int from, int to,
                         char *out, size_t size);

#endif
