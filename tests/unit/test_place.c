/* SPDX-License-Identifier: BSD-3-Clause */
/* test_place.c - the planner's two optimisers against trying everything, at random */
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

/* Least cost of giving sources i.. their needs, by trying everything. */
static int64_t try_all(int ns, int nk, int *need, int *supply, const int64_t *cost,
                       int i)
{
    int64_t best = INT64_MAX;

    while (i < ns && need[i] == 0)
        i++;
    if (i == ns)
        return 0;
    need[i]--;
    for (int k = 0; k < nk; k++) {
        int64_t rest;

        if (supply[k] == 0)
            continue;
        supply[k]--;
        rest = try_all(ns, nk, need, supply, cost, i);
        if (rest != INT64_MAX && rest + cost[i * nk + k] < best)
            best = rest + cost[i * nk + k];
        supply[k]++;
    }
    need[i]++;
    return best;
}

static void the_transport_costs_as_little_as_trying_everything_finds(void **state)
{
    for (int run = 0; run < runs; run++) {
        uint64_t seed = first_seed + (uint64_t)run, s = seed;
        int ns = 1 + random_below(&s, 3), nk = 1 + random_below(&s, 4);
        int need[3], supply[4], flow[12], needs = 0, supplies = 0;
        int64_t cost[12], total = 0;

        for (int i = 0; i < ns; i++)
            needs += need[i] = random_below(&s, 4);
        for (int k = 0; k < nk; k++)
            supplies += supply[k] = random_below(&s, 4);
        for (int i = 0; i < ns * nk; i++)
            cost[i] = random_below(&s, 10);
        if (needs > supplies) {
            CHECK(mu_transport(ns, nk, need, supply, cost, flow) < 0, "not refused");
            continue;
        }
        CHECK(mu_transport(ns, nk, need, supply, cost, flow) == 0, "refused");
        for (int i = 0; i < ns; i++) {
            int sum = 0;

            for (int k = 0; k < nk; k++) {
                CHECK(flow[i * nk + k] >= 0, "negative flow");
                sum += flow[i * nk + k];
                total += flow[i * nk + k] * cost[i * nk + k];
            }
            CHECK(sum == need[i], "source %d got %d of %d", i, sum, need[i]);
        }
        for (int k = 0; k < nk; k++) {
            int sum = 0;

            for (int i = 0; i < ns; i++)
                sum += flow[i * nk + k];
            CHECK(sum <= supply[k], "sink %d gave %d of %d", k, sum, supply[k]);
        }
        CHECK(total == try_all(ns, nk, need, supply, cost, 0), "cost %lld",
              (long long)total);
    }
}

/* The fewest groups of these sizes that span localities, by trying everything: GPU i
 * and the later ones go into groups with room; of[g] is a group's locality, -1 none
 * yet, -2 several.
 */
static int fewest_split(const int *locality, int i, int n, int *room, int *of,
                        int ngroups)
{
    int best = INT_MAX, split = 0;

    if (i == n) {
        for (int g = 0; g < ngroups; g++)
            split += of[g] == -2;
        return split;
    }
    for (int g = 0; g < ngroups; g++) {
        int before = of[g], found;

        if (room[g] == 0)
            continue;
        room[g]--;
        of[g] = before == -1 || before == locality[i] ? locality[i] : -2;
        found = fewest_split(locality, i + 1, n, room, of, ngroups);
        if (found < best)
            best = found;
        of[g] = before;
        room[g]++;
    }
    return best;
}

static void groups_of_gpus_span_localities_only_when_they_must(void **state)
{
    for (int run = 0; run < runs / 3; run++) {
        uint64_t seed = first_seed + (uint64_t)run, s = seed;
        struct mu_node node = { 0 };
        struct mu_err err = { 0 };
        int n = 2 + random_below(&s, 6), ngroups = 1 + random_below(&s, n - 1);
        int gpus[8], group[8], locality[8], room[8], of[8], used[8], split = 0;

        synth_cpus(&node, 1 + random_below(&s, 2), 2, 2, 1);
        for (int i = 0; i < n; i++) {
            char busid[MU_BUSID_LEN];

            snprintf(busid, sizeof busid, "0000:%02x:00.0", i + 1);
            gpus[i] = i;
            locality[i] = random_below(&s, node.nnumas);
            synth_gpu(&node, busid, locality[i]);
        }
        synth_links(&node);
        assert_int_equal(mu_node_finish(&node, &err), 0);
        assert_int_equal(mu_gpu_group(&node, gpus, n, n / ngroups, n % ngroups,
                                      ngroups - n % ngroups, group),
                         0);
        for (int g = 0; g < ngroups; g++) {
            room[g] = n / ngroups + (g < n % ngroups);
            of[g] = -1;
            used[g] = 0;
        }
        for (int i = 0; i < n; i++) {
            CHECK(group[i] >= 0 && group[i] < ngroups, "GPU %d in group %d", i,
                  group[i]);
            used[group[i]]++;
            of[group[i]] =
                of[group[i]] == -1 || of[group[i]] == locality[i] ? locality[i] : -2;
        }
        for (int g = 0; g < ngroups; g++) {
            CHECK(used[g] == n / ngroups || used[g] == n / ngroups + 1,
                  "group %d has %d of %d GPUs", g, used[g], n);
            split += of[g] == -2;
            of[g] = -1;
        }
        CHECK(split == fewest_split(locality, 0, n, room, of, ngroups),
              "%d of %d groups span localities", split, ngroups);
        mu_node_clear(&node);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_transport_costs_as_little_as_trying_everything_finds),
        cmocka_unit_test(groups_of_gpus_span_localities_only_when_they_must),
    };

    random_runs(&first_seed, &runs);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
