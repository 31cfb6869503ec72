/* SPDX-License-Identifier: BSD-3-Clause */
/* place_cpu.c - assigns cores to tasks
 *
 * Each task already has its GPUs. Cores that are equally far from each GPU of the step
 * are a class.
 *   1. place_quota.c joins tasks and classes into groups and sets each task's number of
 *      cores.
 *   2. place_group.c solves the transportation problem tasks x classes of each group
 *      for the least total distance. Of equal solutions the first tasks get the lowest
 *      CPU numbers. Then it assigns the cores of a class one by one.
 */
#include <errno.h>
#include <stdlib.h>

#include "spank/core/plan/place.h"
#include "spank/core/plan/place_cpu.h"

/* The distance of every task to every class: that of its nearest GPU with known
 * locality, 0 if there is none.
 */
static void fill_distances(const struct mu_node *node, struct mu_spread *s)
{
    for (int t = 0; t < s->plan->nslots; t++) {
        const struct mu_slot *slot = &s->plan->slots[t];

        for (int k = 0; k < s->nclasses; k++) {
            int best = -1;

            for (int i = 0; i < slot->ngpus; i++) {
                int d = mu_node_core_distance(node, slot->gpu_node[i],
                                              s->classes[k].example);

                if (node->gpus[slot->gpu_node[i]].local_known && (best < 0 || d < best))
                    best = d;
            }
            s->distance[t * s->nclasses + k] = best < 0 ? 0 : best;
        }
    }
}

static bool same_class(const struct mu_class *a, const struct mu_class *b)
{
    return a->numa == b->numa && a->package == b->package && a->near[0] == b->near[0] &&
           a->near[1] == b->near[1];
}

/* Classes are numbered by their lowest core. */
static void fill_classes(const struct mu_node *node, const struct mu_alloc *alloc,
                         struct mu_spread *s)
{
    for (int c = 0; c < s->own.n; c++) {
        int core = s->own.cores[c].core, k = 0;
        struct mu_class class = { .numa = node->cores[core].numa,
                                  .package = node->cores[core].package,
                                  .example = core };

        for (int i = 0; i < alloc->ngpus; i++)
            if (mu_node_core_distance(node, alloc->gpu_node[i], core) == 0)
                class.near[i / 64] |= UINT64_C(1) << i % 64;
        while (k < s->nclasses && !same_class(&s->classes[k], &class))
            k++;
        if (k == s->nclasses)
            s->classes[s->nclasses++] = class;
        s->classes[k].ncores++;
        s->class_of[c] = k;
    }
}

static int spread_init(const struct mu_node *node, const struct mu_alloc *alloc,
                       struct mu_plan *plan, struct mu_spread *s, struct mu_err *err)
{
    size_t tasks = (size_t)plan->nslots, cores;

    if (mu_cores_own(node, alloc, &s->own, err) < 0)
        return -1;
    cores = (size_t)s->own.n;
    s->plan = plan;
    s->class_of = calloc(cores, sizeof *s->class_of);
    s->task_of = calloc(cores, sizeof *s->task_of);
    s->classes = calloc(cores, sizeof *s->classes);
    s->quota = calloc(tasks, sizeof *s->quota);
    s->group = calloc(tasks, sizeof *s->group);
    s->class_group = calloc(cores, sizeof *s->class_group);
    if (s->class_of && s->task_of && s->classes && s->quota && s->group &&
        s->class_group) {
        for (int c = 0; c < s->own.n; c++)
            s->task_of[c] = -1;
        fill_classes(node, alloc, s);
        s->distance = calloc(tasks * (size_t)s->nclasses, sizeof *s->distance);
        if (s->distance) {
            fill_distances(node, s);
            return 0;
        }
    }
    return mu_err_set(err, ENOMEM, "out of memory");
}

static void spread_clear(struct mu_spread *s)
{
    mu_cores_clear(&s->own);
    free(s->class_of);
    free(s->task_of);
    free(s->classes);
    free(s->quota);
    free(s->group);
    free(s->class_group);
    free(s->distance);
}

/* If no task has a known locality (no GPU, or none with locality), divide the cores
 * evenly. A task that requested fewer keeps those of the NUMA node where it has most,
 * lowest CPUs first, so that small tasks still spread over the machine.
 */
static void trim(struct mu_spread *s, int task, int cpus)
{
    int home = -1, most = 0, have = 0;

    for (int c = 0; c < s->own.n; c++) {
        int here = 0;

        for (int k = c; k < s->own.n; k++)
            here += s->task_of[c] == task && s->task_of[k] == task &&
                    s->own.cores[k].numa == s->own.cores[c].numa;
        if (here > most) {
            most = here;
            home = s->own.cores[c].numa;
        }
    }
    for (int round = 0; round < 2; round++)
        for (int c = 0; c < s->own.n; c++) {
            if (s->task_of[c] != task || (s->own.cores[c].numa == home) != (round == 0))
                continue;
            if (have >= cpus)
                s->task_of[c] = -1;
            else
                have += s->own.cores[c].width;
        }
}

static int cpus_of(const struct mu_spread *s, int task)
{
    int n = 0;

    for (int c = 0; c < s->own.n; c++)
        n += s->task_of[c] == task ? s->own.cores[c].width : 0;
    return n;
}

/* Cores that a trimmed task released go to tasks with too few, lowest first. */
static void fill_up(struct mu_spread *s, int task, int cpus)
{
    int have = cpus_of(s, task);

    for (int c = 0; c < s->own.n && have < cpus; c++)
        if (s->task_of[c] < 0) {
            s->task_of[c] = task;
            have += s->own.cores[c].width;
        }
}

/* A task of narrow cores may have fewer CPUs than it requested. Each such task gets one
 * more core while cores are left. True if a quota grew.
 */
static bool grow(struct mu_spread *s, int cpus)
{
    int used = 0;
    bool grew = false;

    for (int t = 0; t < s->plan->nslots; t++)
        used += s->quota[t];
    for (int t = 0; t < s->plan->nslots && used < s->own.n; t++) {
        if (cpus_of(s, t) < cpus) {
            s->quota[t]++;
            used++;
            grew = true;
        }
    }
    return grew;
}

static int solve(const struct mu_node *node, const struct mu_alloc *alloc,
                 struct mu_spread *s)
{
    int groups = 0;

    for (int t = 0; t < s->plan->nslots; t++)
        if (s->group[t] >= groups)
            groups = s->group[t] + 1;
    for (int g = 0; g < groups; g++)
        if (mu_spread_solve(node, alloc, s, g) < 0)
            return -1;
    return 0;
}

/* True if the task keeps the CPUs that it requested without one of its cores. */
static bool has_spare(const struct mu_spread *s, int task, int cpus)
{
    int have = cpus_of(s, task);

    for (int c = 0; c < s->own.n; c++)
        if (s->task_of[c] == task && have - s->own.cores[c].width >= cpus)
            return true;
    return false;
}

static int count_short(const struct mu_spread *s, int cpus)
{
    int n = 0;

    for (int t = 0; t < s->plan->nslots; t++)
        n += cpus_of(s, t) < cpus;
    return n;
}

static int solve_anew(const struct mu_node *node, const struct mu_alloc *alloc,
                      struct mu_spread *s)
{
    for (int c = 0; c < s->own.n; c++)
        s->task_of[c] = -1;
    return solve(node, alloc, s);
}

/* Where cores differ in width (threads off line, efficiency cores), a larger quota may
 * be one core too many for the wide cores that the task got. It is lowered unless
 * another task then has too few. A task with too few gets the released cores.
 */
static int even_out(const struct mu_node *node, const struct mu_alloc *alloc,
                    struct mu_spread *s)
{
    int cpus = alloc->cpus_per_task, before = count_short(s, cpus);

    for (int t = 0; t < s->plan->nslots; t++)
        while (s->quota[t] > 1 && has_spare(s, t, cpus)) {
            s->quota[t]--;
            if (solve_anew(node, alloc, s) < 0)
                return -1;
            if (count_short(s, cpus) <= before)
                continue;
            s->quota[t]++;
            if (solve_anew(node, alloc, s) < 0)
                return -1;
            break;
        }
    while (before > 0 && grow(s, cpus))
        if (solve_anew(node, alloc, s) < 0)
            return -1;
    return 0;
}

/* With fewer cores than tasks, the slots have their cores already. */
static int meet_request(const struct mu_node *node, const struct mu_alloc *alloc,
                        struct mu_spread *s)
{
    if (s->own.n < s->plan->nslots)
        return 0;
    while (s->by_request && grow(s, alloc->cpus_per_task))
        if (solve_anew(node, alloc, s) < 0)
            return -1;
    if (s->by_request)
        return even_out(node, alloc, s);
    for (int t = 0; t < s->plan->nslots; t++)
        trim(s, t, alloc->cpus_per_task);
    for (int t = 0; t < s->plan->nslots; t++)
        fill_up(s, t, alloc->cpus_per_task);
    return 0;
}

static int spread(const struct mu_node *node, const struct mu_alloc *alloc,
                  const struct mu_opts *opts, struct mu_spread *s, struct mu_err *err)
{
    if (mu_spread_quotas(node, alloc, opts, s, err) < 0)
        return -1;
    if (solve_anew(node, alloc, s) < 0 ||
        (alloc->cpus_per_task > 0 && meet_request(node, alloc, s) < 0))
        return mu_err_set(err, ENOMEM, "out of memory");
    for (int c = 0; c < s->own.n; c++)
        if (s->task_of[c] >= 0)
            mu_spread_give(node, alloc, &s->plan->slots[s->task_of[c]],
                           s->own.cores[c].core);
    return 0;
}

int mu_place_cpu(const struct mu_node *node, const struct mu_alloc *alloc,
                 const struct mu_opts *opts, struct mu_plan *plan, struct mu_err *err)
{
    struct mu_spread s = { 0 };
    int rc = spread_init(node, alloc, plan, &s, err);

    if (rc == 0)
        rc = spread(node, alloc, opts, &s, err);
    if (rc == 0)
        mu_spread_report(node, alloc, opts, &s);
    spread_clear(&s);
    return rc;
}
