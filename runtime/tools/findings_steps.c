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

#define OTHERS 512

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

/* How a process differs from the others: the likeliest cause of its delay. "": in
 * nothing that ledgers have.
 */
static void what_differs(const struct mu_profile *p, int file, char *out, size_t size)
{
    const struct mu_ledger_head *head = p->files[file].head;
    struct others o = look_at_others(p, file);

    *out = '\0';
    if (mu_profile_is_remote(head) && o.remote * 2 < o.n)
        snprintf(out, size,
                 "; its CPUs are at NUMA node %d, its GPU is at node %d, most others "
                 "are near theirs",
                 head->cpu_node - 1, head->gpu_node - 1);
    else if (head->cpus > 0 && head->cpus * 1.5 < o.cpus)
        snprintf(out, size, "; it has %d CPU%s, the others %.0f", head->cpus,
                 mu_plural(head->cpus), o.cpus);
    else if (o.launch > 0 && p->parts[file].launch > 1.5 * o.launch)
        snprintf(out, size, "; its launches take %.0f us, the others' %.0f",
                 p->parts[file].launch, o.launch);
    else if (o.n > 1 && o.nic && head->nic[0] && strcmp(head->nic, o.nic) != 0)
        snprintf(out, size, "; its NIC is %s, that of the others %s", head->nic, o.nic);
    else if (!o.same_host && o.n > 1)
        snprintf(out, size, "; it is alone on its host");
}

static int straggler(struct mu_profile *p)
{
    const struct mu_profile_steps *s = &p->steps;
    double most = 0, total = 0;
    int file = -1, from = 0, to = 0, n = 0;
    char name[128], differs[112];

    for (int i = 0; i < s->n; i++)
        total += s->step[i].took;
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
    what_differs(p, file, differs, sizeof differs);
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
    int n = 0;

    for (int i = 1; i < s->n; i++) {
        total += s->step[i].took;
        if (s->step[i].compute <= 2 * s->median.compute)
            continue;
        n++;
        lost += s->step[i].compute - s->median.compute;
    }
    /* One long pause is a checkpoint or an evaluation. */
    if (n < 5 || n * 50 < s->n || lost < mu_finding_rules[LOADER].limit * total)
        return;
    mu_finding_add(
        p, LOADER, s->file, lost / total,
        "in %d of %d steps the pause before the first collective is more than twice "
        "the median: %.0f %% of the time waits for data, or for the host",
        n, s->n, 100 * lost / total);
}
