/* SPDX-License-Identifier: BSD-3-Clause */
/* findings_steps.c - rules about steps: who waits, and for what */
#include <string.h>

#include "runtime/tools/findings.h"

/* ---- Steps ----------------------------------------------------------------------- */

/* The steps in which `file` was late in four of five or more: +1 for each, -4 for the
 * others, and the greatest sum. Returns how often it was late in them.
 */
static int late_run(const struct mu_profile_steps *s, int file, int *from, int *to)
{
    int best = 0, sum = 0, begin = 0, n = 0;

    for (int i = 0; i < s->n; i++) {
        if (!mu_profile_counts(s, i))
            continue;
        if (sum == 0)
            begin = i;
        sum += s->step[i].late == file ? 1 : -4;
        if (sum < 0)
            sum = 0;
        if (sum > best) {
            best = sum;
            *from = begin;
            *to = i;
        }
    }
    for (int i = *from; best && i <= *to; i++)
        n += s->step[i].late == file;
    return n;
}

static int straggler(struct mu_profile *p)
{
    const struct mu_profile_steps *s = &p->steps;
    double most = 0, total = 0;
    int file = -1, from = 0, to = 0, n = 0;
    char name[128], differs[400];

    for (int i = 0; i < s->n; i++)
        total += mu_profile_counts(s, i) ? s->step[i].took : 0;
    for (int f = 0; f < p->nfiles; f++) {
        int first = 0, last = -1, late = late_run(s, f, &first, &last);
        double wait = 0;

        for (int i = first; i <= last; i++)
            wait += s->step[i].late == f ? s->step[i].wait : 0;
        if (late < 3 || wait <= most)
            continue;
        most = wait;
        file = f;
        from = first;
        to = last;
        n = late;
    }
    if (file < 0 || most < mu_finding_rules[STRAGGLER].limit * total)
        return 0;
    mu_findings_differs(p, file, from, to, differs, sizeof differs);
    mu_finding_add(
        p, STRAGGLER, file, most / total,
        "%s was last in %d of steps %d to %d, since %.1f s; the others waited for it "
        "%.0f %% of the time%s",
        mu_profile_name(p, file, name, sizeof name), n, from, to,
        s->step[from].begin * 1e-6, 100 * most / total, differs);
    return 1;
}

/* Without one rank that causes it. */
static void skew(struct mu_profile *p)
{
    const struct mu_profile_steps *s = &p->steps;

    if (s->n == 0 || s->median.busy <= 0 ||
        s->median.wait <= mu_finding_rules[SKEW].limit * s->median.busy)
        return;
    mu_finding_add(
        p, SKEW, -1, s->median.wait / s->median.busy,
        "ranks wait for one another longer than they exchange data: in the median step "
        "the first waits %.0f us for the last, and collectives take %.0f us",
        s->median.wait, s->median.busy);
}

void mu_findings_waiting(struct mu_profile *p)
{
    if (!straggler(p))
        skew(p);
}

void mu_findings_loader(struct mu_profile *p)
{
    const struct mu_profile_steps *s = &p->steps;
    double lost = 0, total = 0;
    int n = 0, counted = 0;

    for (int i = 0; i < s->n; i++) {
        if (!mu_profile_counts(s, i))
            continue;
        counted++;
        if (i == 0)
            continue;
        total += s->step[i].took;
        if (s->step[i].compute <= 2 * s->median.compute)
            continue;
        n++;
        lost += s->step[i].compute - s->median.compute;
    }
    /* One long pause is a checkpoint or an evaluation. */
    if (n < 5 || n * 50 < counted || lost < mu_finding_rules[LOADER].limit * total)
        return;
    mu_finding_add(
        p, LOADER, s->file, lost / total,
        "in %d of %d steps the pause before the first collective is more than twice "
        "the median: %.0f %% of the time waits for data, or for the host",
        n, counted, 100 * lost / total);
}
