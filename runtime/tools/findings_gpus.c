/* SPDX-License-Identifier: BSD-3-Clause */
/* findings_gpus.c - GPUs that are idle, have memory to spare, or nearly none
 *
 * The limits are those of published tutorials: below 70 % of utilization a GPU waits
 * for data, and 70 to 95 % of its memory should be in use.
 */
#include "runtime/tools/findings.h"
#include "runtime/tools/samples.h"

/* From the first step to the last, or all the time. */
static void window(const struct mu_profile *p, double *from, double *to)
{
    const struct mu_profile_steps *s = &p->steps;

    *from = 0;
    *to = 1e18;
    if (s->n == 0)
        return;
    *from = mu_profile_moment(p, s->file, s->call[s->step[0].first]);
    *to = mu_profile_moment(p, s->file, s->call[s->step[s->n - 1].end]);
}

static double share(const struct mu_profile *p, int file, enum mu_rule rule,
                    double from, double to)
{
    const struct mu_ledger_head *head = p->files[file].head;
    double used, all;

    if (!head->gpu[0])
        return -1;
#define MEDIAN(figure)                                                                 \
    mu_samples_median(p->samples, p->nsamples, head->host, head->gpu, figure, from, to)
    if (rule == GPU_IDLE)
        return MEDIAN(MU_UTILIZATION) / 100;
    used = MEDIAN(MU_USED_MIB);
    all = MEDIAN(MU_TOTAL_MIB);
    return used >= 0 && all > 0 ? used / all : -1;
}

/* The one that is farthest from the limit, and how many more there are. */
static void check(struct mu_profile *p, enum mu_rule rule, const char *what,
                  const char *side)
{
    double limit = mu_finding_rules[rule].limit, from, to, worst = limit;
    char name[128], others[32] = "";
    int file = -1, n = 0;

    window(p, &from, &to);
    for (int i = 0; i < p->nfiles; i++) {
        double value = share(p, i, rule, from, to);

        if (value < 0 || (rule == GPU_FULL ? value <= limit : value >= limit))
            continue;
        n++;
        if (rule == GPU_FULL ? value > worst : value < worst) {
            worst = value;
            file = i;
        }
    }
    if (file < 0)
        return;
    if (n > 1)
        snprintf(others, sizeof others, "; so are %d more", n - 1);
    mu_finding_add(p, rule, file, worst, "GPU %s of %s %s: %.0f %%, %s %.0f %%%s",
                   p->files[file].head->gpu,
                   mu_profile_name(p, file, name, sizeof name), what, 100 * worst, side,
                   100 * limit, others);
}

void mu_findings_gpus(struct mu_profile *p)
{
    check(p, GPU_IDLE, "is busy a part of the time", "below");
    check(p, GPU_UNUSED, "has memory to spare, in use are", "below");
    check(p, GPU_FULL, "has nearly no memory left, in use are", "above");
}
