/* SPDX-License-Identifier: BSD-3-Clause */
/* node_advice.c - what to change in a job's request, so that its nodes are near */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "spank/core/nodes/job_nodes.h"
#include "spank/core/slurm/hostlist.h"

struct writer {
    struct mu_node_advice *out;
    struct mu_err *err;
    int rc;
};

static void advise(struct writer *w, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static void advise(struct writer *w, const char *fmt, ...)
{
    va_list ap;

    if (w->rc < 0 || w->out->n == MU_NODE_ADVICE)
        return;
    va_start(ap, fmt);
    if (vasprintf(&w->out->text[w->out->n], fmt, ap) < 0)
        w->rc = mu_err_set(w->err, ENOMEM, "out of memory");
    else
        w->out->n++;
    va_end(ap);
}

/* The nodes of one group, compressed; caller frees it. */
static char *names_of(const struct mu_job_nodes *nodes, const int *group, int which)
{
    struct mu_hostlist list = { 0 };
    struct mu_err err = { 0 };
    char *text = NULL;
    int rc = 0;

    for (int i = 0; rc == 0 && i < nodes->n; i++)
        if (group[i] == which)
            rc = mu_hostlist_add(&list, nodes->node[i].name, &err);
    if (rc == 0)
        text = mu_hostlist_format(&list);
    mu_hostlist_clear(&list);
    return text;
}

/* ---- Pairs without an answer ----------------------------------------------------- */

static void silent_pairs(struct writer *w, const struct mu_job_nodes *nodes)
{
    int n = nodes->n, silent = 0, a = 0, b = 0, mute;

    for (int i = 0; i < n; i++) {
        mute = 0;
        for (int j = 0; j < n; j++)
            mute += mu_job_nodes_us(nodes, i, j) < 0;
        if (mute == n - 1 && n > 2)
            advise(w, "%s answers no other node: leave it out with --exclude=%s",
                   nodes->node[i].name, nodes->node[i].name);
        for (int j = i + 1; j < n; j++)
            if (mu_job_nodes_us(nodes, i, j) < 0 && silent++ == 0) {
                a = i;
                b = j;
            }
    }
    w->out->silent = silent > 0;
    if (silent == 1)
        advise(w, "%s and %s did not answer each other: a firewall, or a broken link",
               nodes->node[a].name, nodes->node[b].name);
    if (silent > 1)
        advise(
            w,
            "%d pairs of nodes did not answer each other, the first are %s and %s: a "
            "firewall, or a broken link",
            silent, nodes->node[a].name, nodes->node[b].name);
}

/* ---- Order ----------------------------------------------------------------------- */

static void better_order(struct writer *w, const struct mu_job_nodes *nodes,
                         const struct mu_node_classes *classes, const int *order,
                         const char *hostfile)
{
    int before[MU_NODE_CLASSES + 2], after[MU_NODE_CLASSES + 2], class;
    char name[96];

    mu_ring_edges(classes, nodes->n, NULL, before);
    mu_ring_edges(classes, nodes->n, order, after);
    for (class = MU_NODE_CLASSES + 1; class >= 0 && before[class] == after[class];)
        class --;
    if (class < 0)
        return;
    mu_node_class_name(classes, class, name, sizeof name);
    advise(w,
           "a ring in Slurm's order has %d edge%s of %s, in the order above %d; %s%s "
           "srun --distribution=arbitrary",
           before[class], before[class] == 1 ? "" : "s", name, after[class],
           hostfile ? "SLURM_HOSTFILE="
                    : "write it with --hostfile FILE, then "
                      "SLURM_HOSTFILE=FILE",
           hostfile ? hostfile : "");
}

/* ---- NVLink domains -------------------------------------------------------------- */

static void nvlink_domains(struct writer *w, const struct mu_job_nodes *nodes)
{
    int n = nodes->n, domains = 0, largest = 0, without = 0;

    for (int i = 0; i < n; i++) {
        const char *domain = nodes->node[i].nvlink;
        int before = 0, have = 0;

        for (int j = 0; j < n; j++)
            if (strcmp(domain, nodes->node[j].nvlink) == 0) {
                before += j < i;
                have++;
            }
        if (!domain[0]) {
            without++;
            continue;
        }
        domains += before == 0;
        largest = have > largest ? have : largest;
    }
    if (domains > 1)
        advise(
            w,
            "the job has parts of %d NVLink domains, %d nodes in the largest: where "
            "the site has topology/block, sbatch --segment=%d keeps such units whole",
            domains, largest, largest);
    if (domains > 0 && without > 0)
        advise(
            w,
            "%d node%s in no NVLink domain, the others are: see Fabric in the output "
            "of nvidia-smi -q",
            without, without == 1 ? " is" : "s are");
}

/* ---- Switches -------------------------------------------------------------------- */

static int largest_group(const int *group, int n, int groups)
{
    int largest = 0;

    for (int g = 0; g < groups; g++) {
        int have = 0;

        for (int i = 0; i < n; i++)
            have += group[i] == g;
        largest = have > largest ? have : largest;
    }
    return largest;
}

/* Nodes that are alone, while others are together. */
static void lonely(struct writer *w, const struct mu_job_nodes *nodes, int *group,
                   int groups)
{
    int n = nodes->n, alone = 0;
    char *names;

    for (int g = 0; g < groups; g++) {
        int have = 0, last = 0;

        for (int i = 0; i < n; i++)
            if (group[i] == g) {
                have++;
                last = i;
            }
        if (have == 1) {
            group[last] = -1;
            alone++;
        }
    }
    if (alone == 0 || alone * 4 > n)
        return;
    names = names_of(nodes, group, -1);
    if (names)
        advise(w, "%s %s far from all others: leave %s out with --exclude=%s", names,
               alone == 1 ? "is" : "are", alone == 1 ? "it" : "them", names);
    free(names);
}

static void compact(struct writer *w, const struct mu_job_nodes *nodes,
                    const struct mu_node_classes *classes, int *group)
{
    int n = nodes->n, class = 1, groups, least;

    if (classes->n <= 2)
        return;
    /* The nearest class that connects anything. */
    while (class < classes->n - 1 && classes->c[class].pairs == 0)
        class ++;
    groups = mu_node_groups(classes, n, class, group);
    if (groups <= 1)
        return;
    least = largest_group(group, n, groups);
    least = (n + least - 1) / least;
    if (classes->by == MU_DISTANCE_SWITCHES && least < groups)
        advise(w,
               "the job spans %d leaf switches, and %d would hold it: sbatch "
               "--switches=%d@60 waits for that, as long as the site's max_switch_wait "
               "lets "
               "it",
               groups, least, least);
    else if (classes->by == MU_DISTANCE_LATENCY && !nodes->node[0].switches[0])
        advise(
            w,
            "the nodes are in %d groups by round trip, but Slurm names no switches: "
            "with topology.conf (topology/tree) the site lets --switches place a job "
            "compactly",
            groups);
    else if (classes->by == MU_DISTANCE_LATENCY && least < groups)
        advise(w,
               "the nodes are in %d groups by round trip, and %d would hold them: "
               "sbatch --switches=%d@60 waits for that, as long as the site's "
               "max_switch_wait lets "
               "it",
               groups, least, least);
    lonely(w, nodes, group, groups);
}

int mu_node_advise(const struct mu_job_nodes *nodes,
                   const struct mu_node_classes *classes, const int *order,
                   const char *hostfile, struct mu_node_advice *out, struct mu_err *err)
{
    struct mu_node_advice made = { 0 };
    struct writer w = { &made, err, 0 };
    int *group = calloc((size_t)nodes->n, sizeof *group);

    if (!group)
        return mu_err_set(err, ENOMEM, "out of memory");
    silent_pairs(&w, nodes);
    better_order(&w, nodes, classes, order, hostfile);
    nvlink_domains(&w, nodes);
    compact(&w, nodes, classes, group);
    free(group);
    if (w.rc < 0) {
        mu_node_advice_clear(&made);
        return -1;
    }
    *out = made;
    return 0;
}

void mu_node_advice_clear(struct mu_node_advice *advice)
{
    for (int i = 0; i < advice->n; i++)
        free(advice->text[i]);
    *advice = (struct mu_node_advice){ 0 };
}
