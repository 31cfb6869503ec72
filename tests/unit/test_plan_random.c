/* SPDX-License-Identifier: BSD-3-Clause */
/* test_plan_random.c - what holds for every plan, on thousands of random machines */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "spank/core/plan/place.h"
#include "tests/unit/random_node.h"
#include "tests/unit/synth.h"

static uint64_t first_seed;
static int runs = 3000;

/* How many cores of the node have a CPU in the set. */
static int cores_in(const struct mu_node *node, const struct mu_cpuset *set)
{
    int n = 0;

    for (int c = 0; c < node->ncores; c++)
        for (int i = 0; i < node->cores[c].ncpus; i++)
            if (mu_cpuset_has(set, node->cores[c].cpu[i])) {
                n++;
                break;
            }
    return n;
}

static void check_sets(const struct mu_node *node, const struct mu_alloc *alloc,
                       const struct mu_plan *plan, uint64_t seed)
{
    struct mu_cpuset used = { 0 };
    bool scarce = cores_in(node, &alloc->cpus) < plan->nslots;

    for (int t = 0; t < plan->nslots; t++) {
        const struct mu_slot *slot = &plan->slots[t];

        CHECK(!mu_cpuset_empty(&slot->cpus), "task %d has no CPU", t);
        CHECK(mu_cpuset_inside(&slot->cpus, &alloc->cpus), "task %d: CPU not owned", t);
        CHECK(scarce || !mu_cpuset_intersects(&slot->cpus, &used), "task %d: CPU twice",
              t);
        mu_cpuset_or(&used, &slot->cpus);
        for (int c = 0; c < node->ncores; c++) {
            int mine = 0, owned = 0;

            for (int i = 0; i < node->cores[c].ncpus; i++) {
                mine += mu_cpuset_has(&slot->cpus, node->cores[c].cpu[i]);
                owned += mu_cpuset_has(&alloc->cpus, node->cores[c].cpu[i]);
            }
            CHECK(mine == 0 || mine == owned, "task %d: core %d is split", t, c);
        }
        for (int m = mu_cpuset_next(&slot->mems, -1); m >= 0;
             m = mu_cpuset_next(&slot->mems, m))
            for (int i = 0; i < node->nnumas; i++)
                CHECK(node->numas[i].os_index != m ||
                          (node->numas[i].memory > 0 && !node->numas[i].gpu_memory),
                      "task %d: memory node %d has no memory for it", t, m);
    }
}

static bool same_place(const struct mu_node *node, const struct mu_slot *a,
                       const struct mu_slot *b)
{
    return a->ngpus == 1 && b->ngpus == 1 &&
           mu_gpu_same_locality(&node->gpus[a->gpu_node[0]],
                                &node->gpus[b->gpu_node[0]]);
}

/* Tasks of one locality (of the whole step under cpus=all) differ by a core at most,
 * the first ones have more; under cpus=all nothing is left over.
 */
static void check_quotas(const struct mu_node *node, const struct mu_alloc *alloc,
                         const struct mu_plan *plan, bool all, uint64_t seed)
{
    int sum = 0, ncores = cores_in(node, &alloc->cpus);

    for (int t = 0; t < plan->nslots; t++) {
        int n = cores_in(node, &plan->slots[t].cpus);

        sum += n;
        for (int u = t + 1; u < plan->nslots; u++) {
            int m = cores_in(node, &plan->slots[u].cpus);

            if (all || same_place(node, &plan->slots[t], &plan->slots[u]))
                CHECK(n == m || n == m + 1, "tasks %d and %d: %d and %d cores", t, u, n,
                      m);
        }
    }
    if (all && ncores >= plan->nslots)
        CHECK(sum == ncores, "%d of %d cores dealt out", sum, ncores);
}

static int task_distance(const struct mu_node *node, const struct mu_slot *slot,
                         int core)
{
    int best = 0;

    for (int i = 0; i < slot->ngpus; i++) {
        int d = mu_node_core_distance(node, slot->gpu_node[i], core);

        if (i == 0 || d < best)
            best = d;
    }
    return best;
}

/* Cores as an exchange sees them. */
struct market {
    int ncores, ntasks;
    const bool *among; /* tasks that take part */
    int *core;         /* index into node->cores */
    int *owner;        /* task, -1 free */
    int *distance;     /* ntasks x ncores */
    long *gain;
};

/* One round of: task A gives core c and takes `to`, whose owner takes another, and so
 * on. gain[c] becomes the least change of the total when c is to be given up.
 */
static bool trade(struct market *m)
{
    bool changed = false;

    for (int c = 0; c < m->ncores; c++) {
        const int *distance;

        if (m->owner[c] < 0)
            continue;
        distance = m->distance + (size_t)m->owner[c] * (size_t)m->ncores;
        for (int to = 0; to < m->ncores; to++) {
            long d;

            if (m->owner[to] == m->owner[c] || m->gain[to] == LONG_MAX)
                continue;
            d = distance[to] - distance[c] + m->gain[to];
            if (d < m->gain[c]) {
                m->gain[c] = d;
                changed = true;
            }
        }
    }
    return changed;
}

/* A plan has the least total distance under its quotas exactly when no chain of trades
 * that ends at a free core, and no ring of trades, lowers it.
 */
static bool can_be_better(struct market *m)
{
    bool changed = true;

    for (int c = 0; c < m->ncores; c++)
        m->gain[c] = m->owner[c] < 0 ? 0 : LONG_MAX;
    for (int round = 0; round <= m->ncores && changed; round++)
        changed = trade(m);
    for (int c = 0; c < m->ncores; c++)
        changed |= m->gain[c] < 0;
    if (changed)
        return true;
    memset(m->gain, 0, (size_t)m->ncores * sizeof *m->gain);
    changed = true;
    for (int round = 0; round <= m->ncores && changed; round++)
        changed = trade(m);
    return changed;
}

/* Cores of the market: those of its tasks, and the free ones that the step owns. */
static void open_market(struct market *m, const struct mu_node *node,
                        const struct mu_alloc *alloc, const struct mu_plan *plan,
                        const bool *among, bool with_free)
{
    size_t n = (size_t)node->ncores, t = (size_t)plan->nslots;

    *m = (struct market){ .ntasks = plan->nslots, .among = among };
    m->core = calloc(n, sizeof *m->core);
    m->owner = calloc(n, sizeof *m->owner);
    m->gain = calloc(n, sizeof *m->gain);
    m->distance = calloc(n * t, sizeof *m->distance);
    assert_true(m->core && m->owner && m->gain && m->distance);
    for (int c = 0; c < node->ncores; c++) {
        int owner = -1, cpu = -1;

        for (int i = 0; i < node->cores[c].ncpus && cpu < 0; i++)
            if (mu_cpuset_has(&alloc->cpus, node->cores[c].cpu[i]))
                cpu = node->cores[c].cpu[i];
        for (int s = 0; s < plan->nslots; s++)
            if (mu_cpuset_has(&plan->slots[s].cpus, cpu))
                owner = s;
        if (cpu < 0 || (owner < 0 ? !with_free : !among[owner]))
            continue;
        m->core[m->ncores] = c;
        m->owner[m->ncores++] = owner;
    }
    for (int s = 0; s < plan->nslots; s++)
        for (int c = 0; c < m->ncores; c++)
            m->distance[s * m->ncores + c] =
                task_distance(node, &plan->slots[s], m->core[c]);
}

static void close_market(struct market *m)
{
    free(m->core);
    free(m->owner);
    free(m->gain);
    free(m->distance);
}

/* Is a core of task t's local to task u, too? */
static bool meet(const struct mu_node *node, const struct mu_plan *plan, int t, int u)
{
    for (int c = 0; c < node->ncores; c++)
        for (int i = 0; i < node->cores[c].ncpus; i++)
            if (mu_cpuset_has(&plan->slots[t].cpus, node->cores[c].cpu[i]) &&
                task_distance(node, &plan->slots[u], c) == 0)
                return true;
    return false;
}

/* The tasks that share with the first one not yet seen. */
static bool next_group(const struct mu_node *node, const struct mu_plan *plan,
                       bool *seen, bool *among)
{
    int first = 0;
    bool grew = true;

    memset(among, 0, (size_t)plan->nslots * sizeof *among);
    while (first < plan->nslots && seen[first])
        first++;
    if (first == plan->nslots)
        return false;
    among[first] = true;
    while (grew) {
        grew = false;
        for (int t = 0; t < plan->nslots; t++)
            for (int u = 0; u < plan->nslots; u++)
                if (among[t] && !among[u] &&
                    (meet(node, plan, t, u) || meet(node, plan, u, t)))
                    grew = among[u] = true;
    }
    for (int t = 0; t < plan->nslots; t++)
        seen[t] |= among[t];
    return true;
}

static void check_least(const struct mu_node *node, const struct mu_alloc *alloc,
                        const struct mu_plan *plan, bool all, uint64_t seed)
{
    bool *seen = calloc((size_t)plan->nslots, 1),
         *among = calloc((size_t)plan->nslots, 1);
    struct market m;

    assert_true(seen && among);
    if (all || alloc->cpus_per_task > 0) {
        memset(among, true, (size_t)plan->nslots);
        open_market(&m, node, alloc, plan, among, true);
        CHECK(!can_be_better(&m), "total distance is not the least");
        close_market(&m);
    } else {
        while (next_group(node, plan, seen, among)) {
            open_market(&m, node, alloc, plan, among, false);
            CHECK(!can_be_better(&m), "total distance of a group is not the least");
            close_market(&m);
        }
    }
    free(seen);
    free(among);
}

static char *plan_it(const struct random_case *c, struct mu_plan *plan)
{
    char options[64];

    snprintf(options, sizeof options, "share=yes%s", c->cpus_all ? ",cpus=all" : "");
    return synth_plan(&c->node, &c->alloc, options, plan);
}

static bool places_known(const struct random_case *c)
{
    for (int i = 0; i < c->alloc.ngpus; i++)
        if (c->node.gpus[c->alloc.gpu_node[i]].local_known)
            return true;
    return false;
}

static void plans_of_random_machines_keep_the_rules(void **state)
{
    for (int run = 0; run < runs; run++) {
        uint64_t seed = first_seed + (uint64_t)run;
        struct random_case c;
        struct mu_plan plan;
        bool all, scarce;
        char *rows;

        random_case_make(seed, 0, false, &c);
        rows = plan_it(&c, &plan);
        CHECK(strncmp(rows, "error:", 6) != 0, "%s", rows);
        check_sets(&c.node, &c.alloc, &plan, seed);
        scarce = cores_in(&c.node, &c.alloc.cpus) < plan.nslots;
        all = c.cpus_all || !places_known(&c);
        if (c.alloc.cpus_per_task == 0)
            check_quotas(&c.node, &c.alloc, &plan, all, seed);
        if (!scarce && places_known(&c))
            check_least(&c.node, &c.alloc, &plan, all, seed);
        free(rows);
        mu_plan_clear(&plan);
        mu_node_clear(&c.node);
    }
}

static void the_answer_does_not_depend_on_the_order_of_the_input(void **state)
{
    for (int run = 0; run < runs; run++) {
        uint64_t seed = first_seed + (uint64_t)run;
        struct random_case a, b;
        struct mu_plan plan_a, plan_b;
        char *rows_a, *rows_b, *said_a, *said_b;

        random_case_make(seed, 0, false, &a);
        random_case_make(seed, seed ^ 0x5555, false, &b);
        rows_a = plan_it(&a, &plan_a);
        rows_b = plan_it(&b, &plan_b);
        said_a = synth_said(&plan_a);
        said_b = synth_said(&plan_b);
        CHECK(strcmp(rows_a, rows_b) == 0, "one order:\n%sother:\n%s", rows_a, rows_b);
        CHECK(strcmp(said_a, said_b) == 0, "one order:\n%sother:\n%s", said_a, said_b);
        free(rows_a);
        free(rows_b);
        free(said_a);
        free(said_b);
        mu_plan_clear(&plan_a);
        mu_plan_clear(&plan_b);
        mu_node_clear(&a.node);
        mu_node_clear(&b.node);
    }
}

/* Give each core to a task or to nobody, in every way; the least total distance. */
static long try_cores(const struct mu_node *node, const struct mu_plan *plan,
                      const int *cores, int n, int *need)
{
    long best = LONG_MAX;
    int open = 0;

    for (int t = 0; t < plan->nslots; t++)
        open += need[t];
    if (open == 0)
        return 0;
    if (open > n)
        return LONG_MAX;
    best = try_cores(node, plan, cores + 1, n - 1, need);
    for (int t = 0; t < plan->nslots; t++) {
        long rest;

        if (need[t] == 0)
            continue;
        need[t]--;
        rest = try_cores(node, plan, cores + 1, n - 1, need);
        need[t]++;
        if (rest != LONG_MAX &&
            rest + task_distance(node, &plan->slots[t], *cores) < best)
            best = rest + task_distance(node, &plan->slots[t], *cores);
    }
    return best;
}

static void small_plans_are_as_near_as_trying_everything_finds(void **state)
{
    int tried = 0;

    for (int run = 0; run < runs; run++) {
        uint64_t seed = first_seed + (uint64_t)run;
        struct random_case c;
        struct mu_plan plan;
        int cores[8], need[4], n = 0;
        long total = 0, least;
        char *rows;

        random_case_make(seed, 0, true, &c);
        c.cpus_all = true;
        rows = plan_it(&c, &plan);
        for (int i = 0; i < c.node.ncores; i++)
            for (int h = 0; h < c.node.cores[i].ncpus; h++)
                if (mu_cpuset_has(&c.alloc.cpus, c.node.cores[i].cpu[h])) {
                    cores[n++] = i;
                    break;
                }
        if (n >= plan.nslots && places_known(&c)) {
            for (int t = 0; t < plan.nslots; t++) {
                need[t] = cores_in(&c.node, &plan.slots[t].cpus);
                for (int i = 0; i < n; i++)
                    for (int h = 0; h < c.node.cores[cores[i]].ncpus; h++)
                        if (mu_cpuset_has(&plan.slots[t].cpus,
                                          c.node.cores[cores[i]].cpu[h])) {
                            total += task_distance(&c.node, &plan.slots[t], cores[i]);
                            break;
                        }
            }
            least = try_cores(&c.node, &plan, cores, n, need);
            CHECK(total == least, "total distance %ld, least %ld:\n%s", total, least,
                  rows);
            tried++;
        }
        free(rows);
        mu_plan_clear(&plan);
        mu_node_clear(&c.node);
    }
    assert_true(runs < 1000 || tried > runs / 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_of_random_machines_keep_the_rules),
        cmocka_unit_test(the_answer_does_not_depend_on_the_order_of_the_input),
        cmocka_unit_test(small_plans_are_as_near_as_trying_everything_finds),
    };

    random_runs(&first_seed, &runs);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
