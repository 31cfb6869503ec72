/* SPDX-License-Identifier: BSD-3-Clause */
/* node_classes.c - classes of distance between nodes, by gaps of their round trips */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "spank/core/nodes/job_nodes.h"

#define GAP_US 2.0     /* a smaller difference is noise of the clock */
#define CLASS_SHARE 50 /* one in so many pairs is needed for a class */

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Where sorted round trips have gaps. first[] has the least value of each class, the
 * nearest first. Returns the number of classes; MU_NODE_CLASSES + 1: too many.
 */
static int cut(const double *us, int n, double ratio, double *first)
{
    int start[MU_NODE_CLASSES * 4 + 1], classes = 0;

    for (int i = 0; i < n; i++) {
        if (i > 0 && (us[i] < ratio * us[i - 1] || us[i] < us[i - 1] + GAP_US))
            continue;
        if (classes == MU_NODE_CLASSES * 4)
            return MU_NODE_CLASSES + 1;
        start[classes++] = i;
    }
    start[classes] = n;
    /* Too few pairs join the nearer class, the nearest ones the next. */
    for (int k = classes - 1; k >= 0 && classes > 1; k--)
        if ((start[k + 1] - start[k]) * CLASS_SHARE < n) {
            int at = k > 0 ? k : 1;

            memmove(start + at, start + at + 1, (size_t)(classes - at) * sizeof *start);
            classes--;
        }
    if (classes > MU_NODE_CLASSES)
        return MU_NODE_CLASSES + 1;
    for (int k = 0; k < classes; k++)
        first[k] = us[start[k]];
    return classes;
}

static bool in_one_domain(const struct mu_job_nodes *nodes, int i, int j)
{
    return nodes->node[i].nvlink[0] &&
           strcmp(nodes->node[i].nvlink, nodes->node[j].nvlink) == 0;
}

/* The pairs' class by their round trips. */
static int by_latency(const struct mu_job_nodes *nodes, struct mu_node_classes *out,
                      struct mu_err *err)
{
    static const double ratios[] = { 1.25, 1.6, 2.5, 5, 1e9 };
    double first[MU_NODE_CLASSES], *us;
    size_t n = (size_t)nodes->n;
    int pairs = 0, classes = 0;

    us = malloc((n * n + 1) * sizeof *us);
    if (!us)
        return mu_err_set(err, ENOMEM, "out of memory");
    for (size_t i = 0; i < n; i++)
        for (size_t j = i + 1; j < n; j++)
            if (nodes->us[i * n + j] > 0)
                us[pairs++] = nodes->us[i * n + j];
    qsort(us, (size_t)pairs, sizeof *us, compare);
    for (size_t r = 0; r < sizeof ratios / sizeof ratios[0]; r++)
        if ((classes = cut(us, pairs, ratios[r], first)) <= MU_NODE_CLASSES)
            break;
    free(us);
    out->n = classes + 1;
    out->by = classes > 0 ? MU_DISTANCE_LATENCY : MU_DISTANCE_NONE;
    for (size_t k = 0; k < n * n; k++) {
        int class = classes;

        if (nodes->us[k] > 0)
            while (class > 1 && nodes->us[k] < first[class - 1])
                class --;
        else
            class = out->n;
        out->of[k] = (signed char)class;
    }
    return 0;
}

/* Switches that two nodes do not share, from the leaf up: 0 one leaf switch. */
static int apart(const char *a, const char *b)
{
    int levels = 1, shared = 0;
    size_t len;

    for (const char *p = a; *p; p++)
        levels += *p == '.';
    for (;; a += len + 1, b += len + 1) {
        len = strcspn(a, ".");
        if (len != strcspn(b, ".") || strncmp(a, b, len) != 0)
            break;
        shared++;
        if (!a[len] || !b[len])
            break;
    }
    return levels - shared;
}

/* False: Slurm does not name the switches of all nodes. */
static bool by_switches(const struct mu_job_nodes *nodes, struct mu_node_classes *out)
{
    int n = nodes->n, most = 0, class;

    for (int i = 0; i < n; i++)
        if (!nodes->node[i].switches[0])
            return false;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            class = apart(nodes->node[i].switches, nodes->node[j].switches);
            class = class < MU_NODE_CLASSES ? class : MU_NODE_CLASSES - 1;
            out->of[i * n + j] = (signed char)(class + 1);
            most = class > most ? class : most;
        }
    out->n = most + 2;
    out->by = MU_DISTANCE_SWITCHES;
    return true;
}

/* Pairs and round trips of each class. */
static int describe(const struct mu_job_nodes *nodes, struct mu_node_classes *out,
                    struct mu_err *err)
{
    int n = nodes->n, have;
    double *us = malloc(((size_t)n * (size_t)n + 1) * sizeof *us);

    if (!us)
        return mu_err_set(err, ENOMEM, "out of memory");
    for (int class = 0; class < out->n; class ++) {
        struct mu_node_class *c = &out->c[class];

        have = 0;
        for (int i = 0; i < n; i++)
            for (int j = i + 1; j < n; j++) {
                if (out->of[i * n + j] != class)
                    continue;
                c->pairs++;
                if (mu_job_nodes_us(nodes, i, j) > 0)
                    us[have++] = mu_job_nodes_us(nodes, i, j);
            }
        if (have == 0)
            continue;
        qsort(us, (size_t)have, sizeof *us, compare);
        c->least = us[0];
        c->median = us[have / 2];
        c->most = us[have - 1];
    }
    free(us);
    return 0;
}

int mu_node_classes_make(const struct mu_job_nodes *nodes, struct mu_node_classes *out,
                         struct mu_err *err)
{
    struct mu_node_classes made = { 0 };
    int n = nodes->n;

    made.of = calloc((size_t)n * (size_t)n, sizeof *made.of);
    if (!made.of)
        return mu_err_set(err, ENOMEM, "out of memory");
    if (by_latency(nodes, &made, err) < 0)
        goto fail;
    if (made.n <= 2) /* class 0, and one of latency at most */
        by_switches(nodes, &made);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            if (i == j || in_one_domain(nodes, i, j))
                made.of[i * n + j] = 0;
    if (describe(nodes, &made, err) < 0)
        goto fail;
    *out = made;
    return 0;
fail:
    mu_node_classes_clear(&made);
    return -1;
}

void mu_node_classes_clear(struct mu_node_classes *classes)
{
    free(classes->of);
    *classes = (struct mu_node_classes){ 0 };
}
