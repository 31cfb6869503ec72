/* SPDX-License-Identifier: BSD-3-Clause */
/* job_nodes_text.c - prints classes, order and advice */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "spank/core/nodes/job_nodes.h"
#include "spank/core/slurm/hostlist.h"

void mu_node_class_name(const struct mu_node_classes *classes, int class, char *out,
                        size_t len)
{
    if (class == 0)
        snprintf(out, len, "one NVLink domain");
    else if (class >= classes->n)
        snprintf(out, len, "no answer");
    else if (classes->by == MU_DISTANCE_SWITCHES)
        snprintf(out, len, "%d level%s of switches", class, class == 1 ? "" : "s");
    else
        snprintf(out, len, "a round trip of %.0f us", classes->c[class].median);
}

char *mu_node_names(const struct mu_job_nodes *nodes, const int *order)
{
    struct mu_hostlist list = { 0 };
    struct mu_err err = { 0 };
    char *text = NULL;
    int rc = 0;

    for (int i = 0; rc == 0 && i < nodes->n; i++)
        rc = mu_hostlist_add(&list, nodes->node[order ? order[i] : i].name, &err);
    if (rc == 0)
        text = mu_hostlist_format(&list);
    mu_hostlist_clear(&list);
    return text;
}

static void print_classes(FILE *out, const struct mu_job_nodes *nodes,
                          const struct mu_node_classes *classes, const int *order)
{
    int before[MU_NODE_CLASSES + 2], after[MU_NODE_CLASSES + 2];
    char name[96];

    mu_ring_edges(classes, nodes->n, NULL, before);
    mu_ring_edges(classes, nodes->n, order, after);
    fprintf(out, "%-28s %8s %10s %18s %12s %12s\n", "distance", "pairs", "median us",
            "least to most us", "ring before", "ring after");
    for (int class = 0; class < classes->n; class ++) {
        const struct mu_node_class *c = &classes->c[class];
        char range[40] = "-", median[24] = "-";

        if (c->pairs == 0)
            continue;
        if (c->median > 0) {
            snprintf(range, sizeof range, "%.1f to %.1f", c->least, c->most);
            snprintf(median, sizeof median, "%.1f", c->median);
        }
        mu_node_class_name(classes, class, name, sizeof name);
        fprintf(out, "%-28s %8d %10s %18s %12d %12d\n", name, c->pairs, median, range,
                before[class], after[class]);
    }
}

/* NVLink domains, and Grace: what the nodes themselves are. */
static void print_units(FILE *out, const struct mu_job_nodes *nodes)
{
    int grace = 0, near = 0, gpus = 0;

    for (int i = 0; i < nodes->n; i++) {
        const struct mu_job_node *node = &nodes->node[i];
        struct mu_hostlist list = { 0 };
        struct mu_err err = { 0 };
        char *names = NULL;
        int first = i;

        if (strcmp(node->cpu, "grace") == 0) {
            grace++;
            near += node->near > 0 ? node->near : 0;
            gpus += node->gpus > 0 ? node->gpus : 0;
        }
        for (int j = 0; node->nvlink[0] && j < nodes->n; j++)
            if (strcmp(node->nvlink, nodes->node[j].nvlink) == 0) {
                first = j < first ? j : first;
                mu_hostlist_add(&list, nodes->node[j].name, &err);
            }
        if (node->nvlink[0] && first == i && (names = mu_hostlist_format(&list)))
            fprintf(out, "NVLink domain %s: %d node%s, %s\n", node->nvlink, list.n,
                    mu_plural(list.n), names);
        free(names);
        mu_hostlist_clear(&list);
    }
    if (grace > 0)
        fprintf(out,
                "Grace: %d node%s, %d of %d GPUs in one package with their CPUs "
                "(NVLink-C2C)\n",
                grace, grace == 1 ? "" : "s", near, gpus);
}

int mu_job_nodes_text(FILE *out, const struct mu_job_nodes *nodes,
                      const struct mu_node_classes *classes, const int *order,
                      const struct mu_node_advice *advice)
{
    char *names = mu_node_names(nodes, order);

    if (!names)
        return -1;
    fprintf(out, "%d node%s, by %s\n", nodes->n, mu_plural(nodes->n),
            classes->by == MU_DISTANCE_LATENCY    ? "round trip"
            : classes->by == MU_DISTANCE_SWITCHES ? "Slurm's switches"
                                                  : "nothing: no distance is known");
    print_classes(out, nodes, classes, order);
    print_units(out, nodes);
    fprintf(out, "order: %s\n", names);
    for (int i = 0; i < advice->n; i++)
        fprintf(out, "advice: %s\n", advice->text[i]);
    free(names);
    return 0;
}

static const char *or_dash(const char *text)
{
    return text[0] ? text : "-";
}

void mu_job_nodes_tsv(FILE *out, const struct mu_job_nodes *nodes,
                      const struct mu_node_classes *classes, const int *order)
{
    fputs("position\tnode\tgpus\tnvlink\tswitches\tclass\tus\n", out);
    for (int i = 0; i < nodes->n; i++) {
        const struct mu_job_node *node = &nodes->node[order[i]];
        int next = order[(i + 1) % nodes->n];
        double us = mu_job_nodes_us(nodes, order[i], next);

        char gpus[16] = "-", time[24] = "-";

        if (node->gpus >= 0)
            snprintf(gpus, sizeof gpus, "%d", node->gpus);
        if (us > 0)
            snprintf(time, sizeof time, "%.1f", us);
        fprintf(out, "%d\t%s\t%s\t%s\t%s\t%d\t%s\n", i, node->name, gpus,
                or_dash(node->nvlink), or_dash(node->switches),
                classes->of[order[i] * nodes->n + next], time);
    }
}
