/* SPDX-License-Identifier: BSD-3-Clause */
/* findings_differs.c - in what a late process differs from the others
 *
 * All that differs is listed, the likeliest cause of a delay first.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/parse.h"
#include "runtime/tools/findings.h"
#include "runtime/tools/samples.h"

#define OTHERS 512
#define SLOWER 0.9 /* of the others' clock */
#define COLD 0.8   /* of the others' power, or utilization */
#define FEWER 1.5  /* the others have so many times its CPUs */
#define LONGER 1.5 /* its launches take so many times as long as theirs */

struct list {
    char *text;
    size_t size, used;
};

static void add(struct list *l, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* What does not fit as a whole is left out. */
static void add(struct list *l, const char *format, ...)
{
    va_list args;
    int n;

    va_start(args, format);
    n = vsnprintf(l->text + l->used, l->size - l->used, format, args);
    va_end(args);
    if (n < (int)(l->size - l->used))
        l->used += (size_t)n;
    l->text[l->used] = '\0';
}

/* ---- Its GPU --------------------------------------------------------------------- */

/* A time in which the process was late, on the clock of samples. */
struct window {
    double from, to;
};

static double figure_of(const struct mu_profile *p, int file, enum mu_figure figure,
                        struct window w)
{
    const struct mu_ledger_head *head = p->files[file].head;

    return head->gpu[0] ? mu_samples_median(p->samples, p->nsamples, head->host,
                                            head->gpu, figure, w.from, w.to)
                        : -1;
}

/* Its figure is below `share` of the median of the others'. */
static bool is_below(const struct mu_profile *p, int file, enum mu_figure figure,
                     double share, struct window w, double *own, double *others)
{
    double value[OTHERS];
    size_t n = 0;

    *own = figure_of(p, file, figure, w);
    for (int i = 0; *own >= 0 && i < p->nfiles && n < OTHERS; i++) {
        double v = i == file ? -1 : figure_of(p, i, figure, w);

        if (v >= 0)
            value[n++] = v;
    }
    *others = mu_profile_median(value, n);
    return *own >= 0 && *own < share * *others;
}

/* A slow clock is the cause; little power and idle time show that it waits. */
static void gpu(const struct mu_profile *p, int file, struct window w, struct list *l)
{
    double own, others;

    if (is_below(p, file, MU_MHZ, SLOWER, w, &own, &others))
        add(l, "; its GPU runs at %.0f MHz, the others at %.0f", own, others);
    if (is_below(p, file, MU_WATTS, COLD, w, &own, &others))
        add(l, "; its GPU takes %.0f W, the others %.0f", own, others);
    if (is_below(p, file, MU_UTILIZATION, COLD, w, &own, &others))
        add(l, "; its GPU is busy %.0f %% of the time, the others %.0f %%", own,
            others);
}

/* ---- Its host -------------------------------------------------------------------- */

/* Of the other processes: medians, and whether all of them have the same. */
struct others {
    double launch, cpus;
    const char *nic; /* NULL: none, or several */
    int remote;      /* how many are */
    bool same_host;  /* one of them is on the host of this process */
    int n;
};

static struct others look_at_others(const struct mu_profile *p, int file)
{
    double launch[OTHERS], cpus[OTHERS];
    struct others o = { 0 };
    bool alike = true;

    for (int i = 0; i < p->nfiles && o.n < OTHERS; i++) {
        const struct mu_ledger_head *head = p->files[i].head;

        if (i == file)
            continue;
        o.same_host = o.same_host || strcmp(head->host, p->files[file].head->host) == 0;
        o.remote += mu_profile_is_remote(head);
        alike = alike && head->nic[0] && (!o.nic || strcmp(o.nic, head->nic) == 0);
        o.nic = head->nic;
        launch[o.n] = p->parts[i].launch;
        cpus[o.n++] = head->cpus;
    }
    o.nic = alike ? o.nic : NULL;
    o.launch = mu_profile_median(launch, (size_t)o.n);
    o.cpus = mu_profile_median(cpus, (size_t)o.n);
    return o;
}

static void host(const struct mu_profile *p, int file, struct list *l)
{
    const struct mu_ledger_head *head = p->files[file].head;
    struct others o = look_at_others(p, file);

    if (mu_profile_is_remote(head) && o.remote * 2 < o.n)
        add(l,
            "; its CPUs are at NUMA node %d, its GPU is at node %d, most others are "
            "near theirs",
            head->cpu_node - 1, head->gpu_node - 1);
    if (head->cpus > 0 && head->cpus * FEWER < o.cpus)
        add(l, "; it has %d CPU%s, the others %.0f", head->cpus, mu_plural(head->cpus),
            o.cpus);
    if (o.n > 1 && o.nic && head->nic[0] && strcmp(head->nic, o.nic) != 0)
        add(l, "; its NIC is %s, that of the others %s", head->nic, o.nic);
    if (o.launch > 0 && p->parts[file].launch > LONGER * o.launch)
        add(l, "; its launches take %.0f us, the others' %.0f", p->parts[file].launch,
            o.launch);
    if (l->used == 0 && !o.same_host && o.n > 1)
        add(l, "; it is alone on its host");
}

void mu_findings_differs(const struct mu_profile *p, int file, int from, int to,
                         char *out, size_t size)
{
    const struct mu_profile_steps *s = &p->steps;
    struct window w = {
        mu_profile_moment(p, s->file, s->call[s->step[from].first]),
        mu_profile_moment(p, s->file, s->call[s->step[to].end]),
    };
    struct list l = { out, size, 0 };

    *out = '\0';
    gpu(p, file, w, &l);
    host(p, file, &l);
}
