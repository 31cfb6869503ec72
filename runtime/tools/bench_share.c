/* SPDX-License-Identifier: BSD-3-Clause */
/* bench_share.c - what the ranks of a benchmark report to each other, and calls that
 * must succeed
 */
#include <stdio.h>
#include <stdlib.h>

#include "runtime/api/impl.h" /* for the control connections */
#include "runtime/tools/bench.h"

void bench_must(struct muster *m, int rc)
{
    if (rc != MUSTER_OK)
        exit(muster_report(m));
}

void bench_share(const struct bench *b, const void *mine, size_t len,
                 struct mu_gathered *all)
{
    struct mu_err err = { 0 };
    char what[64];

    snprintf(what, sizeof what, "muster bench %s", b->options->kind);
    if (mu_control_gather(b->m->comm.control, what, mine, len, all, &err) < 0)
        bench_must(b->m, mu_fail_err(b->m, &err));
}
