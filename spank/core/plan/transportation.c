/* SPDX-License-Identifier: BSD-3-Clause */
/* transportation.c - solves the transportation problem by successive shortest paths
 *
 * Each source in turn sends along the cheapest path of the residual graph to a sink
 * that still has supply. A path may pass through a full sink and move units of an
 * earlier source to another sink. The residual graph never holds a negative cycle, so
 * the result is optimal. Bellman-Ford is used, because backward edges have negative
 * costs and the graphs are small (tasks x classes of cores).
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "spank/core/plan/place.h"

#define FAR INT64_MAX

struct net {
    int nsources, nsinks;
    const int64_t *cost;
    int *flow;
    int *left;          /* of each sink */
    int64_t *to_source; /* path lengths */
    int64_t *to_sink;
    int *sink_before;   /* of a source on its path, -1 at the start */
    int *source_before; /* of a sink */
};

/* One round over all edges; true when a length became shorter. */
static bool relax(struct net *net)
{
    bool changed = false;

    for (int i = 0; i < net->nsources; i++) {
        const int64_t *cost = net->cost + (size_t)i * net->nsinks;

        if (net->to_source[i] == FAR)
            continue;
        for (int k = 0; k < net->nsinks; k++)
            if (net->to_source[i] + cost[k] < net->to_sink[k]) {
                net->to_sink[k] = net->to_source[i] + cost[k];
                net->source_before[k] = i;
                changed = true;
            }
    }
    for (int i = 0; i < net->nsources; i++) {
        const int64_t *cost = net->cost + (size_t)i * net->nsinks;
        const int *flow = net->flow + (size_t)i * net->nsinks;

        for (int k = 0; k < net->nsinks; k++)
            if (flow[k] > 0 && net->to_sink[k] != FAR &&
                net->to_sink[k] - cost[k] < net->to_source[i]) {
                net->to_source[i] = net->to_sink[k] - cost[k];
                net->sink_before[i] = k;
                changed = true;
            }
    }
    return changed;
}

/* The nearest sink with supply, or -1. */
static int find_path(struct net *net, int source)
{
    int best = -1;

    for (int i = 0; i < net->nsources; i++)
        net->to_source[i] = FAR;
    for (int k = 0; k < net->nsinks; k++)
        net->to_sink[k] = FAR;
    net->to_source[source] = 0;
    net->sink_before[source] = -1;
    while (relax(net))
        ;
    for (int k = 0; k < net->nsinks; k++)
        if (net->left[k] > 0 && net->to_sink[k] != FAR &&
            (best < 0 || net->to_sink[k] < net->to_sink[best]))
            best = k;
    return best;
}

/* Send up to `want` units to sink along its path; returns the number. */
static int push(struct net *net, int sink, int want)
{
    int n = want < net->left[sink] ? want : net->left[sink];

    for (int k = sink;;) {
        int i = net->source_before[k];

        k = net->sink_before[i];
        if (k < 0)
            break;
        if (net->flow[(size_t)i * net->nsinks + k] < n)
            n = net->flow[(size_t)i * net->nsinks + k];
    }
    net->left[sink] -= n;
    for (int k = sink;;) {
        int i = net->source_before[k];

        net->flow[(size_t)i * net->nsinks + k] += n;
        k = net->sink_before[i];
        if (k < 0)
            break;
        net->flow[(size_t)i * net->nsinks + k] -= n;
    }
    return n;
}

int mu_transport(int nsources, int nsinks, const int *need, const int *supply,
                 const int64_t *cost, int *flow)
{
    struct net net = {
        .nsources = nsources, .nsinks = nsinks, .cost = cost, .flow = flow
    };
    int rc = -1;

    net.left = calloc((size_t)nsinks + 1, sizeof *net.left);
    net.to_source = calloc((size_t)nsources + 1, sizeof *net.to_source);
    net.to_sink = calloc((size_t)nsinks + 1, sizeof *net.to_sink);
    net.sink_before = calloc((size_t)nsources + 1, sizeof *net.sink_before);
    net.source_before = calloc((size_t)nsinks + 1, sizeof *net.source_before);
    if (!net.left || !net.to_source || !net.to_sink || !net.sink_before ||
        !net.source_before)
        goto out;
    memset(flow, 0, (size_t)nsources * (size_t)nsinks * sizeof *flow);
    memcpy(net.left, supply, (size_t)nsinks * sizeof *supply);
    for (int i = 0; i < nsources; i++)
        for (int want = need[i]; want > 0;) {
            int sink = find_path(&net, i);

            if (sink < 0)
                goto out;
            want -= push(&net, sink, want);
        }
    rc = 0;
out:
    free(net.left);
    free(net.to_source);
    free(net.to_sink);
    free(net.sink_before);
    free(net.source_before);
    return rc;
}
