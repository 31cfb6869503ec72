/* SPDX-License-Identifier: BSD-3-Clause */
/* node_order.c - the order of nodes in which neighbours of a ring are near */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "spank/core/nodes/job_nodes.h"

int mu_node_groups(const struct mu_node_classes *classes, int nodes, int class,
                   int *group)
{
    int *queue = malloc(((size_t)nodes + 1) * sizeof *queue), n = 0;

    if (!queue)
        return 0;
    for (int i = 0; i < nodes; i++)
        group[i] = -1;
    for (int i = 0; i < nodes; i++) {
        int have = 1;

        if (group[i] >= 0)
            continue;
        queue[0] = i;
        group[i] = n;
        for (int at = 0; at < have; at++)
            for (int j = 0; j < nodes; j++)
                if (group[j] < 0 && classes->of[queue[at] * nodes + j] <= class) {
                    group[j] = n;
                    queue[have++] = j;
                }
        n++;
    }
    free(queue);
    return n;
}

void mu_ring_edges(const struct mu_node_classes *classes, int nodes, const int *order,
                   int edges[MU_NODE_CLASSES + 2])
{
    memset(edges, 0, (MU_NODE_CLASSES + 2) * sizeof *edges);
    for (int i = 0; i < (nodes == 2 ? 1 : nodes) && nodes > 1; i++) {
        int a = i, b = (i + 1) % nodes;

        if (order) {
            a = order[a];
            b = order[b];
        }
        edges[classes->of[a * nodes + b]]++;
    }
}

/* The groups of a node at every class; order sorts by them, the farthest first. */
struct key {
    int node, classes;
    int group[MU_NODE_CLASSES + 1];
};

static int compare(const void *a, const void *b)
{
    const struct key *x = a, *y = b;

    for (int class = x->classes - 1; class >= 0; class --)
        if (x->group[class] != y->group[class])
            return x->group[class] - y->group[class];
    return x->node - y->node;
}

/* True: the ring of `order` has fewer edges in the farthest class that differs. */
static bool is_better(const struct mu_node_classes *classes, int n, const int *order)
{
    int before[MU_NODE_CLASSES + 2], after[MU_NODE_CLASSES + 2];

    mu_ring_edges(classes, n, NULL, before);
    mu_ring_edges(classes, n, order, after);
    for (int class = MU_NODE_CLASSES + 1; class >= 0; class --)
        if (before[class] != after[class])
            return after[class] < before[class];
    return false;
}

int mu_node_order(const struct mu_node_classes *classes, int nodes, int *order,
                  struct mu_err *err)
{
    struct key *keys = calloc((size_t)nodes, sizeof *keys);
    int *group = malloc((size_t)nodes * sizeof *group);
    int rc = keys && group ? 0 : mu_err_set(err, ENOMEM, "out of memory");

    for (int class = 0; rc == 0 && class < classes->n; class ++) {
        if (mu_node_groups(classes, nodes, class, group) == 0)
            rc = mu_err_set(err, ENOMEM, "out of memory");
        for (int i = 0; rc == 0 && i < nodes; i++) {
            keys[i].node = i;
            keys[i].classes = classes->n;
            keys[i].group[class] = group[i];
        }
    }
    if (rc == 0) {
        qsort(keys, (size_t)nodes, sizeof *keys, compare);
        for (int i = 0; i < nodes; i++)
            order[i] = keys[i].node;
        if (!is_better(classes, nodes, order))
            for (int i = 0; i < nodes; i++)
                order[i] = i;
    }
    free(group);
    free(keys);
    return rc;
}
