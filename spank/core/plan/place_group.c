/* SPDX-License-Identifier: BSD-3-Clause */
/* place_group.c - assigns the cores of one group to its tasks at the least total
 * distance
 */
#include <stdlib.h>

#include "spank/core/plan/place.h"
#include "spank/core/plan/place_cpu.h"

void mu_spread_give(const struct mu_node *node, const struct mu_alloc *alloc,
                    struct mu_slot *slot, int core)
{
    const struct mu_core *c = &node->cores[core];

    for (int i = 0; i < c->ncpus; i++)
        if (mu_cpuset_has(&alloc->cpus, c->cpu[i]))
            mu_cpuset_add(&slot->cpus, c->cpu[i]);
    slot->bound = true;
}

/* One group as a transportation problem. Tasks are the sources. A pool joins the
 * group's classes that are equally far from each of its tasks. Each pool has two sinks.
 * The second, with a high cost, takes the tasks that must share its cores.
 */
struct problem {
    struct mu_spread *s;
    int ntasks, npools;
    int *task;    /* source -> task */
    int *need;    /* cores */
    int *pool_of; /* class -> pool, -1: class of another group */
    int *example; /* pool -> class */
    int *supply;
    int64_t *cost;
    int *flow;
};

#define SHARED_COST (INT64_C(1) << 52) /* above any sum of distances */

static int problem_alloc(struct problem *p)
{
    size_t t = (size_t)p->s->plan->nslots, k = (size_t)p->s->nclasses;

    p->task = calloc(t, sizeof *p->task);
    p->need = calloc(t, sizeof *p->need);
    p->pool_of = calloc(k, sizeof *p->pool_of);
    p->example = calloc(k, sizeof *p->example);
    p->supply = calloc(2 * k, sizeof *p->supply);
    p->cost = calloc(2 * k * t, sizeof *p->cost);
    p->flow = calloc(2 * k * t, sizeof *p->flow);
    return p->task && p->need && p->pool_of && p->example && p->supply && p->cost &&
                   p->flow
               ? 0
               : -1;
}

static void problem_free(struct problem *p)
{
    free(p->task);
    free(p->need);
    free(p->pool_of);
    free(p->example);
    free(p->supply);
    free(p->cost);
    free(p->flow);
}

static int distance(const struct problem *p, int source, int class)
{
    return p->s->distance[p->task[source] * p->s->nclasses + class];
}

static bool equally_far(const struct problem *p, int a, int b)
{
    for (int i = 0; i < p->ntasks; i++)
        if (distance(p, i, a) != distance(p, i, b))
            return false;
    return true;
}

static void fill_pools(struct problem *p, int group)
{
    const struct mu_spread *s = p->s;

    for (int k = 0; k < s->nclasses; k++) {
        int pool = 0;

        p->pool_of[k] = -1;
        if (s->class_group[k] != group)
            continue;
        while (pool < p->npools && !equally_far(p, p->example[pool], k))
            pool++;
        if (pool == p->npools)
            p->example[p->npools++] = k;
        p->pool_of[k] = pool;
        p->supply[pool] += s->classes[k].ncores;
    }
}

/* Distance decides first; on a tie the first tasks get the first pools. With fewer
 * cores than tasks, each core gets `rounds` tasks before any core gets one more.
 */
static void fill_costs(struct problem *p, int ncores, int needed)
{
    int rounds = ncores ? needed / ncores : 1;
    int64_t scale = 1 + (int64_t)p->npools * p->ntasks * (ncores + needed);

    for (int k = 0; k < p->npools; k++) {
        p->supply[p->npools + k] = needed > ncores ? p->supply[k] : 0;
        p->supply[k] *= needed > ncores ? rounds : 1;
    }
    for (int i = 0; i < p->ntasks; i++)
        for (int k = 0; k < p->npools; k++) {
            int64_t cost =
                distance(p, i, p->example[k]) * scale + (int64_t)k * (p->ntasks - i);

            p->cost[i * 2 * p->npools + k] = cost;
            p->cost[i * 2 * p->npools + p->npools + k] = cost + SHARED_COST;
        }
}

static int flow_of(const struct problem *p, int source, int pool)
{
    const int *flow = p->flow + (size_t)source * 2 * (size_t)p->npools;

    return flow[pool] + flow[p->npools + pool];
}

/* With fewer cores than tasks each task gets one core, and neighbours share it. */
static void share_cores(const struct problem *p, const struct mu_node *node,
                        const struct mu_alloc *alloc, int pool, const int *cores, int n)
{
    int total = 0, turn = 0, last = -1;
    struct mu_slot *before = NULL;

    for (int i = 0; i < p->ntasks; i++)
        total += flow_of(p, i, pool);
    for (int i = 0; i < p->ntasks; i++) {
        struct mu_slot *slot = &p->s->plan->slots[p->task[i]];
        int at;

        if (flow_of(p, i, pool) == 0)
            continue;
        at = (int)((long)turn++ * n / total);
        mu_spread_give(node, alloc, slot, p->s->own.cores[cores[at]].core);
        if (at == last) {
            mu_slot_note(before, "shared");
            mu_slot_note(slot, "shared");
        }
        last = at;
        before = slot;
    }
}

static int assign_cores(const struct problem *p, const struct mu_node *node,
                        const struct mu_alloc *alloc, bool shared)
{
    const struct mu_spread *s = p->s;
    int *cores = calloc((size_t)s->own.n, sizeof *cores);
    int *want = calloc((size_t)p->ntasks, sizeof *want);
    int rc = cores && want ? 0 : -1;

    for (int pool = 0; pool < p->npools && rc == 0; pool++) {
        int n = 0;

        for (int c = 0; c < s->own.n; c++)
            if (p->pool_of[s->class_of[c]] == pool)
                cores[n++] = c;
        for (int i = 0; i < p->ntasks; i++)
            want[i] = flow_of(p, i, pool);
        if (shared)
            share_cores(p, node, alloc, pool, cores, n);
        else
            rc = mu_cores_pack(&s->own, cores, n, p->task, want, p->ntasks, s->task_of);
    }
    free(cores);
    free(want);
    return rc;
}

int mu_spread_solve(const struct mu_node *node, const struct mu_alloc *alloc,
                    struct mu_spread *s, int group)
{
    struct problem p = { .s = s };
    int ncores = 0, needed = 0, rc = -1;

    if (problem_alloc(&p) < 0)
        goto out;
    for (int t = 0; t < s->plan->nslots; t++)
        if (s->group[t] == group) {
            p.task[p.ntasks] = t;
            p.need[p.ntasks++] = s->quota[t];
            needed += s->quota[t];
        }
    fill_pools(&p, group);
    for (int k = 0; k < p.npools; k++)
        ncores += p.supply[k];
    fill_costs(&p, ncores, needed);
    if (mu_transport(p.ntasks, 2 * p.npools, p.need, p.supply, p.cost, p.flow) == 0)
        rc = assign_cores(&p, node, alloc, needed > ncores);
out:
    problem_free(&p);
    return rc;
}
