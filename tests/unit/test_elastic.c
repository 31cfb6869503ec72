/* SPDX-License-Identifier: BSD-3-Clause */
/* test_elastic.c - ranks die, the others go on with fewer, with equal weights */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <signal.h>

#include "tests/unit/elastic.h"

#define SHM                                                                            \
    {                                                                                  \
        .size = 4, .elastic = 1, .first_bucket = 256, .bucket_cap = 256                \
    }
#define TCP                                                                            \
    {                                                                                  \
        .size = 4, .elastic = 1, .force_tcp = true, .first_bucket = 256,               \
        .bucket_cap = 256                                                              \
    }
#define NODES                                                                          \
    {                                                                                  \
        .size = 4, .nodes = 2, .elastic = 1, .first_bucket = 256, .bucket_cap = 256    \
    }

static const struct elastic_case cases[] = {
    { "shared memory: one of 4 in a bucket",
      SHM,
      { { 2, 5, IN_BUCKET, 0 } },
      3,
      0,
      "muster: rank 2 (node a, pid ",
      0 },
    { "one of 4 gives up by exit(muster_report(m))",
      NODES,
      { { 3, 5, GIVES_UP, 0 } },
      3,
      0,
      "died or left; 3 of 4 ranks go on",
      0 },
    { "TCP: one of 4 in a bucket",
      TCP,
      { { 2, 5, IN_BUCKET, 0 } },
      3,
      0,
      "died or left; 3 of 4 ranks go on",
      0 },
    { "two nodes: one of 4 in a bucket",
      NODES,
      { { 3, 5, IN_BUCKET, 0 } },
      3,
      0,
      "died or left; 3 of 4 ranks go on",
      0 },
    { "the first rank of another node",
      NODES,
      { { 2, 5, BETWEEN_STEPS, 0 } },
      3,
      0,
      "muster: rank 2 (node b, pid ",
      0 },
    { "shared memory: rank 0",
      SHM,
      { { 0, 5, IN_BUCKET, 0 } },
      3,
      0,
      "muster: rank 0 (node a, pid ",
      0 },
    { "TCP: rank 0", TCP, { { 0, 5, IN_BUCKET, 0 } }, 3, 0, "muster: rank 0 (", 0 },
    { "two nodes: rank 0",
      NODES,
      { { 0, 5, BETWEEN_STEPS, 0 } },
      3,
      0,
      "muster: rank 0 (",
      0 },
    { "behind a sync", SHM, { { 1, 5, AFTER_SYNC, 0 } }, 3, 0, "muster: rank 1 (", 0 },
    { "rank 0 behind a sync",
      SHM,
      { { 0, 5, AFTER_SYNC, 0 } },
      3,
      0,
      "muster: rank 0 (",
      0 },
    { "some have the end of a sync and others do not",
      NODES,
      { { 2, 5, WITH_THE_VOTES, 0 } },
      3,
      0,
      "died or left; 3 of 4 ranks go on",
      0 },
    { "some have the end of the first sync, and the order, and others do not",
      NODES,
      { { 2, 0, WITH_THE_VOTES, 0 } },
      3,
      0,
      "died or left; 3 of 4 ranks go on",
      0 },
    { "some have the end of the second sync and others do not",
      NODES,
      { { 2, 1, WITH_THE_VOTES, 0 } },
      3,
      0,
      "died or left; 3 of 4 ranks go on",
      0 },
    { "behind the first sync",
      SHM,
      { { 0, 0, AFTER_SYNC, 0 } },
      3,
      0,
      "muster: rank 0 (",
      0 },
    { "in the second step",
      TCP,
      { { 0, 1, IN_BUCKET, 0 } },
      3,
      0,
      "muster: rank 0 (",
      0 },
    { "two deaths, one after the other",
      SHM,
      { { 2, 3, IN_BUCKET, 0 }, { 0, 7, BETWEEN_STEPS, 0 } },
      2,
      0,
      "died or left; 2 of 3 ranks go on",
      0 },
    { "two deaths at once",
      SHM,
      { { 2, 5, BETWEEN_STEPS, 0 }, { 3, 5, BETWEEN_STEPS, 0 } },
      2,
      0,
      "go on",
      0 },
    { "a whole node",
      NODES,
      { { 2, 5, BETWEEN_STEPS, 0 }, { 3, 5, BETWEEN_STEPS, 0 } },
      2,
      0,
      "go on",
      0 },
    { "the node of rank 0",
      NODES,
      { { 0, 5, BETWEEN_STEPS, 0 }, { 1, 5, BETWEEN_STEPS, 0 } },
      2,
      0,
      "go on",
      0 },
    { "down to one rank",
      SHM,
      { { 2, 3, IN_BUCKET, 0 }, { 0, 5, BETWEEN_STEPS, 0 }, { 1, 8, IN_BUCKET, 0 } },
      1,
      0,
      "died or left; 1 of 2 ranks go on",
      0 },
    { "one of two",
      { .size = 2, .elastic = 1 },
      { { 1, 5, IN_BUCKET, 0 } },
      1,
      0,
      "died or left; 1 of 2 ranks go on",
      0 },
    { "a survivor that computes is waited for",
      SHM,
      { { 2, 5, IN_BUCKET, 0 } },
      3,
      0,
      "died or left; 3 of 4 ranks go on",
      0.7 },
    { "on the way to finalize",
      SHM,
      { { 3, STEPS, IN_FINALIZE, 0 } },
      3,
      0,
      "died or left; 3 of 4 ranks go on",
      0 },
    { "when all ranks are in finalize",
      NODES,
      { { 2, STEPS, ALL_IN_FINALIZE, 0 } },
      0,
      0,
      "",
      0 },
    { "rank 0, when all ranks are in finalize",
      NODES,
      { { 0, STEPS, ALL_IN_FINALIZE, 0 } },
      0,
      0,
      "",
      0 },
    { "in finalize, and the ranks behind it are too few",
      { .size = 4, .nodes = 2, .elastic = 2 },
      { { 2, STEPS, WITH_THE_RESULT, 0 } },
      0,
      0,
      "muster: rank 2 (node b",
      0 },
    { "rank 0 in finalize, and the ranks behind it are too few",
      { .size = 4, .nodes = 2, .elastic = 3 },
      { { 0, STEPS, WITH_THE_RESULT, 0 } },
      0,
      0,
      "died or left without muster_finalize; ",
      0 },
    { "below the least number of ranks",
      { .size = 4, .elastic = 4 },
      { { 2, 5, IN_BUCKET, 0 } },
      0,
      MUSTER_EPEER,
      "died or left; 3 ranks are left, but MUSTER_ELASTIC asks for at least 4",
      0 },
    { "before the first sync the job ends",
      { .size = 4, .elastic = 1 },
      { { 2, 0, BETWEEN_STEPS, 0 } },
      0,
      MUSTER_EPEER,
      "muster: rank 2 (node a",
      0 },
    { "without elastic the job ends",
      { .size = 4 },
      { { 2, 5, IN_BUCKET, 0 } },
      0,
      MUSTER_EPEER,
      "muster: rank 2 (node a",
      0 },
};

static bool dies(const struct elastic_case *c, int rank)
{
    for (int i = 0; i < 3; i++)
        if (c->death[i].phase != NEVER && c->death[i].rank == rank)
            return true;
    return false;
}

static int survivors(const struct elastic_case *c)
{
    int n = 0;

    for (int k = 0; k < c->world.size; k++)
        n += !dies(c, k);
    return n;
}

static double check(const struct elastic_case *c, const struct told *told,
                    const struct forked_result *r)
{
    double sum = 0, last = 0;
    int spoke = 0, first = -1;

    for (int k = 0; k < c->world.size; k++) {
        if (dies(c, k)) {
            if (r->status[k] !=
                (c->death[0].phase == GIVES_UP ? MUSTER_EUSAGE : 128 + SIGKILL))
                fail_msg("%s: rank %d did not die: %d\n%s", c->name, k, r->status[k],
                         r->text);
            continue;
        }
        spoke += r->status[k] == c->status;
        /* Who did not speak is ended by the one that did. */
        if (r->status[k] != c->status &&
            !(c->status != 0 && r->status[k] == 128 + SIGKILL))
            fail_msg("%s: rank %d: status %d\n%s", c->name, k, r->status[k], r->text);
        if (c->status != 0)
            continue;
        if (first < 0) {
            first = k;
            sum = told->sum[k];
        }
        if (told->steps[k] != STEPS || told->sum[k] != sum)
            fail_msg("%s: rank %d: %d steps, weights %g, not %d and %g\n%s", c->name, k,
                     told->steps[k], told->sum[k], STEPS, sum, r->text);
        if (told->size[k] < survivors(c))
            fail_msg("%s: rank %d is one of %d at the end, and %d live\n%s", c->name, k,
                     told->size[k], survivors(c), r->text);
        if (c->left > 0 && told->size[k] > c->left + (c->death[0].phase == IN_FINALIZE))
            fail_msg("%s: rank %d is one of %d at the end, not of %d\n%s", c->name, k,
                     told->size[k], c->left, r->text);
        if (told->position[k] != told->position[first])
            fail_msg("%s: rank %d is at sample %d, rank %d at %d\n%s", c->name, k,
                     (int)told->position[k], first, (int)told->position[first],
                     r->text);
        if (told->good_at[k] > last)
            last = told->good_at[k];
    }
    if (spoke == 0 || !strstr(r->text, c->expect))
        fail_msg("%s: '%s' is not in\n%s", c->name, c->expect, r->text);
    return last > 0 ? last - told->died_at : 0;
}

static double run_case(const struct elastic_case *c)
{
    struct told *told = forked_shared(sizeof *told);
    struct run run = { .c = c, .told = told };
    struct forked_result r;
    double took;

    forked_run(&c->world, elastic_train, &run, 40, &r);
    took = check(c, told, &r);
    print_message("# %.3f s: %s: %.*s\n", took, c->name, (int)strcspn(r.text, "\n"),
                  r.text);
    forked_clear(&r);
    return took;
}

static void survivors_go_on_with_equal_weights(void **state)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        run_case(&cases[i]);
}

/* Another rank dies 0 .. 60 ms behind the first: in the agreement, while the survivors
 * connect, or behind that. Whoever it is.
 */
static void a_second_death_in_the_agreement_is_survived(void **state)
{
    static const double after[] = { 0,     0.0003, 0.001, 0.002, 0.003,
                                    0.005, 0.008,  0.012, 0.02,  0.03 };
    static const struct forked_world worlds[] = { SHM, TCP, NODES };

    for (size_t w = 0; w < sizeof worlds / sizeof worlds[0]; w++)
        for (size_t i = 0; i < sizeof after / sizeof after[0]; i++) {
            struct elastic_case c = { .world = worlds[w], .expect = "go on" };
            char name[96];

            c.death[0] = (struct death){ 2, 5, IN_BUCKET, 0 };
            c.death[1] = (struct death){ i % 2 ? 3 : 0, 0, BEHIND_ANOTHER, after[i] };
            snprintf(name, sizeof name, "world %zu: rank %d %.1f ms behind rank 2", w,
                     c.death[1].rank, after[i] * 1e3);
            c.name = name;
            run_case(&c);
        }
}

/* ---- Memory that some have freed already --------------------------------------------
 */

enum { PATCH = 4096 / sizeof(float), SPREAD = 3 * PATCH };

static void paint(float *p, size_t n, float value)
{
    for (size_t i = 0; i < n; i++)
        p[i] = value;
}

/* To free is no collective: when rank 3 dies rank 0 has freed, and has allocated anew,
 * and the others are about to. What they have must not lie on what rank 0 has.
 */
static int free_body(struct muster *m, int rank, void *arg)
{
    struct muster_param p = { .name = "a", .count = 4, .dtype = MUSTER_F32 };
    struct muster_ddp *ddp;
    float *gone, *stays, *more, *late = NULL;
    int rc = MUSTER_OK;

    RANK_OK(muster_ddp_create(m, &p, 1, NULL, &ddp));
    gone = muster_alloc(m, PATCH * sizeof *gone);
    stays = muster_alloc(m, SPREAD * sizeof *stays);
    RANK_OK(muster_ddp_sync(ddp, NULL));
    paint(gone, PATCH, 50);
    paint(stays, SPREAD, (float)rank);
    if (rank == 0) {
        muster_free(m, gone);
        late = muster_alloc(m, SPREAD * sizeof *late);
        paint(late, SPREAD, 70);
    } else if (rank == 3) {
        kill(getpid(), SIGKILL);
    }
    while (rc == MUSTER_OK)
        rc = muster_barrier(m);
    RANK_CHECK(rc == MUSTER_ESHRUNK);
    more = muster_alloc(m, PATCH * sizeof *more);
    paint(more, PATCH, 80);
    if (rank > 0) {
        RANK_CHECK(gone[0] == 50 && gone[PATCH - 1] == 50);
        paint(gone, PATCH, 60);
        late = muster_alloc(m, SPREAD * sizeof *late);
        paint(late, SPREAD, 70);
    }
    RANK_OK(muster_barrier(m));
    for (size_t i = 0; i < SPREAD; i++)
        RANK_CHECK(stays[i] == (float)rank && late[i] == 70);
    for (int step = 0; step < 3; step++) {
        paint(late, SPREAD, 1);
        RANK_OK(muster_allreduce(m, stays, SPREAD, MUSTER_F32, MUSTER_SUM, NULL));
        RANK_OK(muster_allreduce(m, late, SPREAD, MUSTER_F32, MUSTER_SUM, NULL));
        for (size_t i = 0; i < SPREAD; i++)
            RANK_CHECK(stays[i] == 3 && late[i] == 3);
        paint(stays, SPREAD, 1);
    }
    muster_ddp_destroy(ddp);
    return muster_finalize(m);
}

static void memory_that_some_have_freed_shifts_nothing(void **state)
{
    struct forked_world w = { .size = 4, .elastic = 2 };
    struct forked_result r;

    forked_run(&w, free_body, NULL, 60, &r);
    for (int k = 0; k < 3; k++)
        if (r.status[k] != 0)
            fail_msg("rank %d ended with %d\n%s", k, r.status[k], r.text);
    forked_clear(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(survivors_go_on_with_equal_weights),
        cmocka_unit_test(a_second_death_in_the_agreement_is_survived),
        cmocka_unit_test(memory_that_some_have_freed_shifts_nothing),
    };

    return cmocka_run_group_tests_name("elastic", tests, NULL, NULL);
}
