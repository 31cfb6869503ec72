/* SPDX-License-Identifier: BSD-3-Clause */
/* gpu_group.c - divides the GPUs of a step into groups within a locality where possible
 *
 * Three rounds: groups inside one locality, then inside one package, then anywhere. A
 * round first finds how many groups its bins can hold (a reachability table over bins),
 * then forms them out of neighbours.
 */
#include <stdlib.h>

#include "spank/core/plan/place.h"

struct grouping {
    const struct mu_node *node;
    const int *gpus;
    int ngpus;
    int size;               /* of a small group; a big one has one more */
    int nbig, nsmall;       /* groups still to form */
    int ngroups;            /* formed so far */
    int *group;             /* per position, -1 none */
    int bin[MU_GPUS_MAX];   /* per position, this round */
    int count[MU_GPUS_MAX]; /* free GPUs of each bin */
    int nbins;
};

enum round { BY_LOCALITY, BY_PACKAGE, BY_NODE };

bool mu_gpu_same_locality(const struct mu_gpu *a, const struct mu_gpu *b)
{
    if (!a->local_known || !b->local_known)
        return true;
    if (mu_cpuset_empty(&a->local) || mu_cpuset_empty(&b->local))
        return a->numa >= 0 && a->numa == b->numa;
    return mu_cpuset_equal(&a->local, &b->local);
}

static bool same_bin(const struct mu_gpu *a, const struct mu_gpu *b, enum round round)
{
    switch (round) {
    case BY_LOCALITY:
        return a->local_known == b->local_known && mu_gpu_same_locality(a, b);
    case BY_PACKAGE:
        return a->package == b->package;
    case BY_NODE:
        break;
    }
    return true;
}

static void fill_bins(struct grouping *g, enum round round)
{
    int first[MU_GPUS_MAX];

    g->nbins = 0;
    for (int i = 0; i < g->ngpus; i++) {
        int b = 0;

        if (g->group[i] >= 0)
            continue;
        while (b < g->nbins && !same_bin(&g->node->gpus[g->gpus[first[b]]],
                                         &g->node->gpus[g->gpus[i]], round))
            b++;
        if (b == g->nbins) {
            first[b] = i;
            g->count[b] = 0;
            g->nbins++;
        }
        g->bin[i] = b;
        g->count[b]++;
    }
}

static bool fits(const struct grouping *g, int bin, int big, int small)
{
    return big * (g->size + 1) + small * g->size <= g->count[bin];
}

/* reach[b][x][y]: true if the first b bins can hold x big and y small groups at once.
 */
static void fill_reach(const struct grouping *g, char *reach, int nx, int ny)
{
    size_t layer = (size_t)nx * (size_t)ny;

    reach[0] = 1;
    for (int b = 0; b < g->nbins; b++)
        for (int x0 = 0; x0 < nx; x0++)
            for (int y0 = 0; y0 < ny; y0++) {
                if (!reach[(size_t)b * layer + (size_t)(x0 * ny + y0)])
                    continue;
                for (int x = 0; x0 + x < nx && fits(g, b, x, 0); x++)
                    for (int y = 0; y0 + y < ny && fits(g, b, x, y); y++)
                        reach[(size_t)(b + 1) * layer +
                              (size_t)((x0 + x) * ny + y0 + y)] = 1;
            }
}

/* Set how many of x big and y small groups one bin holds: as few as possible, so that
 * the bins before it can hold the rest.
 */
static void take_least(const struct grouping *g, const char *before, int ny, int bin,
                       int *x, int *y, int *big, int *small)
{
    for (int n = 0; n <= *x + *y; n++)
        for (int b = 0; b <= n && b <= *x; b++) {
            int s = n - b;

            if (s > *y || !fits(g, bin, b, s) || !before[(*x - b) * ny + *y - s])
                continue;
            *big = b;
            *small = s;
            *x -= b;
            *y -= s;
            return;
        }
}

/* Set how many big and small groups each bin holds, so that the total is largest. On a
 * tie there are more big groups, and the first bins hold as many as possible.
 */
static int choose(const struct grouping *g, int *big, int *small)
{
    int nx = g->nbig + 1, ny = g->nsmall + 1, x = 0, y = 0;
    size_t layer = (size_t)nx * (size_t)ny;
    char *reach = calloc((size_t)g->nbins + 1, layer);
    const char *last;

    if (!reach)
        return -1;
    fill_reach(g, reach, nx, ny);
    last = reach + (size_t)g->nbins * layer;
    for (int i = 0; i < nx; i++)
        for (int k = 0; k < ny; k++)
            if (last[i * ny + k] && i + k >= x + y) {
                x = i;
                y = k;
            }
    for (int b = g->nbins - 1; b >= 0; b--)
        take_least(g, reach + (size_t)b * layer, ny, b, &x, &y, &big[b], &small[b]);
    free(reach);
    return 0;
}

/* How close two GPUs (positions) of one task would be: NVLinks first, then the PCI
 * path.
 */
static long affinity(const struct grouping *g, int i, int k)
{
    int n = g->node->ngpus, at = g->gpus[i] * n + g->gpus[k];
    long a = 0;

    if (g->node->nvlinks)
        a += 64L * g->node->nvlinks[at];
    if (g->node->gpu_gpu)
        a += MU_NEAR_NONE - g->node->gpu_gpu[at];
    return a;
}

static long group_affinity(const struct grouping *g, int i, int group, int except)
{
    long sum = 0;

    for (int k = 0; k < g->ngpus; k++)
        if (k != i && k != except && g->group[k] == group)
            sum += affinity(g, i, k);
    return sum;
}

/* Form a new group in a bin: its first free GPU and, one by one, the nearest others. */
static void form(struct grouping *g, int bin, int size)
{
    int group = g->ngroups++;

    for (int n = 0; n < size; n++) {
        int best = -1;
        long most = -1;

        for (int i = 0; i < g->ngpus; i++) {
            long p;

            if (g->bin[i] != bin || g->group[i] >= 0)
                continue;
            p = group_affinity(g, i, group, -1);
            if (p > most) {
                most = p;
                best = i;
            }
        }
        g->group[best] = group;
    }
}

/* Swap GPUs between this round's groups of a bin, or with free GPUs, as long as nearer
 * ones get into one group. Adding GPUs one by one does not always find the best groups.
 */
static void improve(struct grouping *g, int bin, int first_group)
{
    bool better = true;

    while (better) {
        better = false;
        for (int i = 0; i < g->ngpus; i++)
            for (int k = i + 1; k < g->ngpus; k++) {
                int a = g->group[i], b = g->group[k];
                long now, then;

                if (g->bin[i] != bin || g->bin[k] != bin || a == b ||
                    (a >= 0 && a < first_group) || (b >= 0 && b < first_group))
                    continue;
                now = (a >= 0 ? group_affinity(g, i, a, -1) : 0) +
                      (b >= 0 ? group_affinity(g, k, b, -1) : 0);
                then = (b >= 0 ? group_affinity(g, i, b, k) : 0) +
                       (a >= 0 ? group_affinity(g, k, a, i) : 0);
                if (then <= now)
                    continue;
                g->group[i] = b;
                g->group[k] = a;
                better = true;
            }
    }
}

static int form_round(struct grouping *g, enum round round)
{
    int big[MU_GPUS_MAX] = { 0 }, small[MU_GPUS_MAX] = { 0 };

    fill_bins(g, round);
    if (choose(g, big, small) < 0)
        return -1;
    for (int b = 0; b < g->nbins; b++) {
        int first = g->ngroups;

        for (int n = 0; n < big[b]; n++)
            form(g, b, g->size + 1);
        for (int n = 0; n < small[b]; n++)
            form(g, b, g->size);
        g->nbig -= big[b];
        g->nsmall -= small[b];
        if (g->ngroups > first)
            improve(g, b, first);
    }
    return 0;
}

/* Number the groups by their first GPU. */
static void renumber(struct grouping *g)
{
    int to[MU_GPUS_MAX], n = 0;

    for (int i = 0; i < g->ngroups; i++)
        to[i] = -1;
    for (int i = 0; i < g->ngpus; i++) {
        if (g->group[i] < 0)
            continue;
        if (to[g->group[i]] < 0)
            to[g->group[i]] = n++;
        g->group[i] = to[g->group[i]];
    }
}

int mu_gpu_group(const struct mu_node *node, const int *gpus, int ngpus, int size,
                 int nbig, int nsmall, int *group)
{
    struct grouping g = { .node = node,
                          .gpus = gpus,
                          .ngpus = ngpus,
                          .size = size,
                          .nbig = nbig,
                          .nsmall = nsmall,
                          .group = group };

    for (int i = 0; i < ngpus; i++) {
        group[i] = -1;
        g.bin[i] = -1;
    }
    for (int round = BY_LOCALITY; round <= BY_NODE; round++)
        if (g.nbig + g.nsmall > 0 && form_round(&g, (enum round)round) < 0)
            return -1;
    renumber(&g);
    return 0;
}
