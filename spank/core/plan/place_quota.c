/* SPDX-License-Identifier: BSD-3-Clause */
/* place_quota.c - groups tasks with the cores that they may use; each task's number of
 * cores
 *
 * With cpus=local, tasks and classes of cores that are local to each other are joined
 * into groups. GPUs of one locality, or of localities that overlap, are therefore in
 * one group. A group with fewer cores than tasks joins the nearest other one. If only
 * some tasks have an unknown locality, they share the cores that are local to no task.
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>

#include "spank/core/plan/place.h"
#include "spank/core/plan/place_cpu.h"

/* Union-find over tasks (0..ntasks-1) and classes (ntasks + k). The root of a set is
 * its lowest member, so that sets are in task order.
 */
struct sets {
    int ntasks, n;
    int *parent;
    int *tasks, *cores; /* of a root: how many its set has */
};

static int root(struct sets *u, int i)
{
    while (u->parent[i] != i)
        i = u->parent[i] = u->parent[u->parent[i]];
    return i;
}

static void join(struct sets *u, int a, int b)
{
    a = root(u, a);
    b = root(u, b);
    if (a == b)
        return;
    if (a > b) {
        int swap = a;

        a = b;
        b = swap;
    }
    u->parent[b] = a;
    u->tasks[a] += u->tasks[b];
    u->cores[a] += u->cores[b];
}

static int sets_init(struct sets *u, const struct mu_spread *s)
{
    size_t n;

    u->ntasks = s->plan->nslots;
    u->n = u->ntasks + s->nclasses;
    n = (size_t)u->n;
    u->parent = calloc(n, sizeof *u->parent);
    u->tasks = calloc(n, sizeof *u->tasks);
    u->cores = calloc(n, sizeof *u->cores);
    if (!u->parent || !u->tasks || !u->cores)
        return -1;
    for (int i = 0; i < u->n; i++) {
        u->parent[i] = i;
        u->tasks[i] = i < u->ntasks;
        u->cores[i] = i < u->ntasks ? 0 : s->classes[i - u->ntasks].ncores;
    }
    return 0;
}

static void sets_clear(struct sets *u)
{
    free(u->parent);
    free(u->tasks);
    free(u->cores);
}

/* True if all GPUs of both tasks are known to have one locality, even if the step owns
 * no core there.
 */
static bool same_known_locality(const struct mu_node *node, const struct mu_slot *a,
                                const struct mu_slot *b)
{
    for (int i = 0; i < a->ngpus; i++)
        for (int k = 0; k < b->ngpus; k++) {
            const struct mu_gpu *x = &node->gpus[a->gpu_node[i]],
                                *y = &node->gpus[b->gpu_node[k]];

            if (!x->local_known || !y->local_known || !mu_gpu_same_locality(x, y))
                return false;
        }
    return a->ngpus > 0 && b->ngpus > 0;
}

static bool has_locality(const struct mu_node *node, const struct mu_slot *slot)
{
    for (int i = 0; i < slot->ngpus; i++)
        if (node->gpus[slot->gpu_node[i]].local_known)
            return true;
    return false;
}

/* Join the tasks of unknown locality with the cores that are local to no task. If there
 * are none, join_short finds cores for each of these tasks.
 */
static void join_unknown(struct sets *u, const struct mu_node *node,
                         const struct mu_spread *s)
{
    int first = -1, free_class = -1;

    for (int k = 0; k < s->nclasses && free_class < 0; k++)
        if (u->tasks[root(u, u->ntasks + k)] == 0)
            free_class = k;
    for (int t = 0; t < u->ntasks && free_class >= 0; t++) {
        if (has_locality(node, &s->plan->slots[t]))
            continue;
        first = first < 0 ? t : first;
        join(u, first, t);
    }
    for (int k = free_class; k < s->nclasses && first >= 0; k++)
        if (u->tasks[root(u, u->ntasks + k)] == 0)
            join(u, first, u->ntasks + k);
}

/* Join tasks of one locality, tasks with their local cores, and the cores of one NUMA
 * node that are local to no task.
 */
static void join_local(struct sets *u, const struct mu_node *node,
                       const struct mu_spread *s)
{
    for (int t = 0; t < u->ntasks; t++)
        for (int other = t + 1; other < u->ntasks; other++)
            if (same_known_locality(node, &s->plan->slots[t], &s->plan->slots[other]))
                join(u, t, other);
    for (int k = 0; k < s->nclasses; k++)
        for (int t = 0; t < u->ntasks; t++)
            if (s->distance[t * s->nclasses + k] == 0 &&
                has_locality(node, &s->plan->slots[t]))
                join(u, t, u->ntasks + k);
    join_unknown(u, node, s);
    for (int k = 0; k < s->nclasses; k++)
        for (int other = k + 1; other < s->nclasses; other++)
            if (u->tasks[root(u, u->ntasks + k)] == 0 &&
                u->tasks[root(u, u->ntasks + other)] == 0 &&
                s->classes[k].numa == s->classes[other].numa)
                join(u, u->ntasks + k, u->ntasks + other);
}

/* The class outside `set` that is nearest to one of its tasks. On a tie, the one whose
 * group has most cores for each task, then the one with the lowest CPUs.
 */
static int nearest_class(struct sets *u, const struct mu_spread *s, int set)
{
    int best = -1, least = INT_MAX;
    long best_cores = 0, best_tasks = 1;

    for (int k = 0; k < s->nclasses; k++) {
        int other = root(u, u->ntasks + k), d = INT_MAX;
        long cores, tasks;

        if (other == set)
            continue;
        for (int t = 0; t < u->ntasks; t++)
            if (root(u, t) == set && s->distance[t * s->nclasses + k] < d)
                d = s->distance[t * s->nclasses + k];
        cores = u->cores[set] + u->cores[other];
        tasks = u->tasks[set] + u->tasks[other];
        if (d < least || (d == least && cores * best_tasks > best_cores * tasks)) {
            best = k;
            least = d;
            best_cores = cores;
            best_tasks = tasks;
        }
    }
    return best;
}

static void join_short(struct sets *u, const struct mu_spread *s)
{
    for (int t = 0; t < u->ntasks;) {
        int set = root(u, t), k;

        if (u->cores[set] >= u->tasks[set] || (k = nearest_class(u, s, set)) < 0) {
            t++;
            continue;
        }
        join(u, set, u->ntasks + k);
    }
}

/* Divide the cores of a group evenly among its tasks; the first ones get the remainder.
 * Each task gets at least one and at most `most` (0: no limit).
 */
static void divide_evenly(struct mu_spread *s, int group, int most)
{
    int ncores = 0, ntasks = 0, turn = 0;

    for (int k = 0; k < s->nclasses; k++)
        ncores += s->class_group[k] == group ? s->classes[k].ncores : 0;
    for (int t = 0; t < s->plan->nslots; t++)
        ntasks += s->group[t] == group;
    for (int t = 0; t < s->plan->nslots; t++) {
        int n;

        if (s->group[t] != group)
            continue;
        n = ncores / ntasks + (turn++ < ncores % ntasks);
        if (most > 0 && n > most)
            n = most;
        s->quota[t] = n > 0 ? n : 1;
    }
}

static int group_locally(const struct mu_node *node, struct mu_spread *s)
{
    struct sets u = { 0 };
    int rc = -1, ngroups = 0;

    if (sets_init(&u, s) < 0)
        goto out;
    join_local(&u, node, s);
    join_short(&u, s);
    for (int k = 0; k < s->nclasses; k++)
        s->class_group[k] = -1;
    for (int t = 0; t < u.ntasks; t++) {
        if (root(&u, t) != t) {
            s->group[t] = s->group[root(&u, t)];
            continue;
        }
        s->group[t] = ngroups;
        for (int k = 0; k < s->nclasses; k++)
            if (root(&u, u.ntasks + k) == t)
                s->class_group[k] = ngroups;
        ngroups++;
    }
    for (int g = 0; g < ngroups; g++)
        divide_evenly(s, g, 0);
    rc = 0;
out:
    sets_clear(&u);
    return rc;
}

int mu_spread_quotas(const struct mu_node *node, const struct mu_alloc *alloc,
                     const struct mu_opts *opts, struct mu_spread *s,
                     struct mu_err *err)
{
    int most = 0;

    s->no_locality = true;
    for (int t = 0; t < s->plan->nslots; t++)
        for (int i = 0; i < s->plan->slots[t].ngpus; i++)
            s->no_locality &= !node->gpus[s->plan->slots[t].gpu_node[i]].local_known;
    s->by_request = alloc->cpus_per_task > 0 && !s->no_locality;
    if (!s->no_locality && !s->by_request && opts->cpus != MU_CPUS_ALL) {
        if (group_locally(node, s) < 0)
            return mu_err_set(err, ENOMEM, "out of memory");
        return 0;
    }
    if (s->by_request)
        most = (alloc->cpus_per_task + s->own.width - 1) / s->own.width;
    divide_evenly(s, 0, most); /* calloc put all tasks and classes into group 0 */
    return 0;
}
