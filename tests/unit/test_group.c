/* SPDX-License-Identifier: BSD-3-Clause */
/* test_group.c - groups of muster_split: used like a world, and each failure names its
 * group
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "tests/unit/folder.h"
#include "tests/unit/forked.h"
#include "tests/unit/patience.h"

#define LARGE 20011

static char folder[64];

static int make_folder(void **state)
{
    strcpy(folder, "/tmp/muster-group-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    return folder_remove(folder);
}

static void on_every_layout(const char *what,
                            int (*body)(struct muster *m, int rank, void *arg))
{
    forked_well(what, (struct forked_world){ .size = 6, .nodes = 1 }, body, NULL);
    forked_well(what, (struct forked_world){ .size = 6, .nodes = 2 }, body, NULL);
    forked_well(what, (struct forked_world){ .size = 6, .nodes = 1, .force_tcp = true },
                body, NULL);
}

/* The sum of the world's ranks of g's members, on little and much data. */
static void sum_ranks(struct muster *g, struct muster *m, double want)
{
    static double x[LARGE];
    static const size_t counts[] = { 1, LARGE };

    for (int k = 0; k < 2; k++) {
        for (size_t i = 0; i < counts[k]; i++)
            x[i] = muster_rank(m) + (double)i;
        RANK_OK(muster_allreduce(g, x, counts[k], MUSTER_F64, MUSTER_SUM, NULL));
        for (size_t i = 0; i < counts[k]; i++)
            RANK_CHECK(x[i] == want + (double)i * muster_size(g));
    }
}

/* ---- Members, numbers, collectives ---- */

static int odd_and_even(struct muster *m, int rank, void *arg)
{
    struct muster *g;
    int32_t all[3] = { 0 };

    RANK_OK(muster_split(m, rank % 2, -rank, rank % 2 ? "odd" : "even", &g));
    RANK_CHECK(muster_size(g) == 3 && muster_rank(g) == (5 - rank) / 2);
    RANK_CHECK(strcmp(muster_name(g), rank % 2 ? "odd" : "even") == 0);
    RANK_CHECK(strcmp(muster_name(m), "") == 0);
    for (int r = 0; r < 3; r++) {
        RANK_CHECK(muster_world_rank(g, r) == 4 + rank % 2 - 2 * r);
        RANK_CHECK(strcmp(muster_host(g, r), muster_host(m, muster_world_rank(g, r))) ==
                   0);
    }
    RANK_CHECK(muster_world_rank(g, 3) == -1 && muster_world_rank(m, 5) == 5);
    sum_ranks(g, m, rank % 2 ? 9 : 6);
    RANK_OK(muster_gather(g, &rank, all, 1, MUSTER_I32, 1, NULL));
    for (int r = 0; r < 3 && muster_rank(g) == 1; r++)
        RANK_CHECK(all[r] == muster_world_rank(g, r));
    RANK_OK(muster_barrier(g));
    RANK_OK(muster_finalize(g));
    return muster_finalize(m);
}

static int some_in_none(struct muster *m, int rank, void *arg)
{
    struct muster *g, *inner, *alone;

    RANK_OK(muster_split(m, rank < 2 ? -1 : 0, 0, NULL, &g));
    RANK_CHECK((g == NULL) == (rank < 2));
    if (g) {
        RANK_CHECK(strcmp(muster_name(g), "0") == 0 && muster_rank(g) == rank - 2);
        RANK_OK(muster_split(g, rank / 4, 0, "inner", &inner));
        RANK_CHECK(muster_size(inner) == 2 &&
                   muster_world_rank(inner, 1) == (rank < 4 ? 3 : 5));
        sum_ranks(inner, m, rank < 4 ? 5 : 9);
        sum_ranks(g, m, 14);
        RANK_OK(muster_finalize(inner));
        RANK_OK(muster_finalize(g));
    }
    RANK_OK(muster_split(m, rank, 0, "alone", &alone));
    sum_ranks(alone, m, rank);
    RANK_OK(muster_barrier(alone));
    RANK_OK(muster_finalize(alone));
    return muster_finalize(m);
}

static void a_group_is_used_like_a_world(void **state)
{
    on_every_layout("odd and even", odd_and_even);
    on_every_layout("some in none", some_in_none);
}

/* Rows and columns of 2 x 3: ranks choose their own order between the two. */
static int rows_and_columns(struct muster *m, int rank, void *arg)
{
    struct muster *row, *column;

    RANK_OK(muster_split(m, rank / 3, 0, "row", &row));
    RANK_OK(muster_split(m, rank % 3, 0, "column", &column));
    for (int k = 0; k < 20; k++) {
        sum_ranks(row, m, rank < 3 ? 3 : 12);
        sum_ranks(m, m, 15);
        sum_ranks(column, m, 2 * (rank % 3) + 3);
    }
    RANK_OK(muster_finalize(row));
    RANK_OK(muster_finalize(column));
    return muster_finalize(m);
}

static void a_rank_is_in_several_groups(void **state)
{
    on_every_layout("rows and columns", rows_and_columns);
}

/* ---- ddp, sampler, checkpoint ---- */

static int trains_in_pairs(struct muster *m, int rank, void *arg)
{
    static float data[2][64];
    struct muster_param params[2] = {
        { .name = "a", .count = 64, .dtype = MUSTER_F32, .data = data[0] },
        { .name = "b", .count = 64, .dtype = MUSTER_F32, .data = data[1] }
    };
    struct muster *pair, *other;
    struct muster_ddp *ddp;

    RANK_OK(muster_split(m, rank / 2, 0, "pair", &pair));
    RANK_OK(muster_split(m, rank % 2, 0, "other", &other));
    data[0][5] = (float)rank;
    RANK_OK(muster_ddp_create(pair, params, 2, NULL, &ddp));
    RANK_OK(muster_ddp_broadcast(ddp, 1));
    RANK_CHECK(data[0][5] == (float)(rank | 1));
    for (int step = 0; step < 5; step++) {
        for (int i = 1; i >= 0; i--) {
            float *grad = muster_ddp_grad(ddp, i);

            for (int k = 0; k < 64; k++)
                grad[k] = (float)(rank + step);
            RANK_OK(muster_ddp_grad_ready(ddp, i, NULL));
            /* Rank 0 of the group has this one before a bucket, rank 1 behind it. */
            if (rank % 2 == i)
                sum_ranks(other, m, rank % 2 ? 9 : 6);
        }
        RANK_OK(muster_ddp_sync(ddp, NULL));
        for (int k = 0; k < 64; k++)
            RANK_CHECK(((float *)muster_ddp_grad(ddp, 0))[k] ==
                       (float)(rank / 2 * 2) + 0.5f + (float)step);
    }
    muster_ddp_destroy(ddp);
    RANK_OK(muster_finalize(other));
    RANK_OK(muster_finalize(pair));
    return muster_finalize(m);
}

static void gradients_are_averaged_in_a_group(void **state)
{
    on_every_layout("pairs", trains_in_pairs);
}

static int samples_and_saves(struct muster *m, int rank, void *arg)
{
    struct muster_sampler_options o = { .samples = 12, .batch = 2, .in_order = 1 };
    struct muster_checkpoint_options c = { .sharded = 1 };
    uint64_t index[2], n, step, held = (uint64_t)rank;
    struct muster_item item = { .name = "x",
                                .data = &held,
                                .bytes = 8,
                                .offset = (uint64_t)(rank % 3) * 8,
                                .total = 24 };
    struct muster_checkpoint *checkpoint;
    struct muster_sampler *sampler;
    struct muster *g;
    char name[80];
    int found;

    RANK_OK(muster_split(m, rank / 3, 0, "half", &g));
    RANK_OK(muster_sampler_create(g, &o, &sampler));
    RANK_CHECK(muster_sampler_steps(sampler) == 2);
    RANK_CHECK(muster_sampler_next(sampler, index, &n) == 1 && n == 2);
    RANK_CHECK(index[0] == (uint64_t)(rank % 3) * 2);
    muster_sampler_destroy(sampler);
    snprintf(name, sizeof name, "%s/%d-%d", folder, muster_nodes(m), rank / 3);
    RANK_OK(muster_checkpoint_open(g, name, &c, &checkpoint));
    RANK_OK(muster_checkpoint_save(checkpoint, 7, &item, 1));
    RANK_OK(muster_checkpoint_wait(checkpoint));
    held = 99;
    RANK_OK(muster_checkpoint_load(checkpoint, &item, 1, &step, &found));
    RANK_CHECK(found && step == 7 && held == (uint64_t)rank);
    RANK_OK(muster_checkpoint_close(checkpoint));
    RANK_OK(muster_finalize(g));
    return muster_finalize(m);
}

static void a_group_has_samples_and_checkpoints_of_its_own(void **state)
{
    on_every_layout("samples and checkpoints", samples_and_saves);
}

/* ---- What is wrong ---- */

static int misuses(struct muster *m, int rank, void *arg)
{
    static const char longest[] = "a name of forty-eight characters, one too many..";
    struct muster *g;

    RANK_CHECK(muster_split(m, 0, 0, rank ? "b" : "a", &g) == MUSTER_ECONTRACT && !g);
    RANK_CHECK(strcmp(muster_error(m),
                      "muster_split: the group of colour 0 is 'a' on rank 0 (node a), "
                      "but 'b' on rank 1 (node a)") == 0);
    RANK_CHECK(strlen(longest) == 48);
    RANK_CHECK(muster_split(m, 0, 0, rank ? "b" : longest, &g) ==
               (rank ? MUSTER_ECONTRACT : MUSTER_EUSAGE));
    RANK_CHECK(
        strstr(muster_error(m), rank ? "the arguments of rank 0 (node a) are invalid"
                                     : "has 48 characters, use at most 47"));
    RANK_CHECK(muster_split(m, 0, 0, "c", NULL) == MUSTER_EUSAGE);
    RANK_OK(muster_split(m, 0, 0, longest + 1, &g));
    RANK_CHECK(muster_finalize(m) == MUSTER_EUSAGE);
    RANK_CHECK(strstr(muster_error(m), "1 group of muster_split must be finalized"));
    RANK_CHECK(muster_broadcast(g, &rank, 1, MUSTER_I32, 2, NULL) == MUSTER_EUSAGE);
    RANK_CHECK(strncmp(muster_error(g), "group ' name of forty", 21) == 0);
    RANK_CHECK(strstr(muster_error(g), "': muster_broadcast: root 2 is not in 0..1"));
    RANK_OK(muster_finalize(g));
    return muster_finalize(m);
}

static void misuse_is_refused(void **state)
{
    forked_well("misuse", (struct forked_world){ .size = 2, .nodes = 1 }, misuses,
                NULL);
}

static int another_count(struct muster *m, int rank, void *arg)
{
    struct muster *g;
    float x[9] = { 0 };

    RANK_OK(muster_split(m, rank / 2, 0, rank / 2 ? "upper" : "lower", &g));
    if (rank >= 2)
        muster_allreduce(g, x, rank == 3 ? 7 : 8, MUSTER_F32, MUSTER_SUM, NULL);
    else
        muster_barrier(m);
    return 1;
}

static int never_comes(struct muster *m, int rank, void *arg)
{
    struct muster *g;
    float x[9] = { 0 };

    RANK_OK(muster_split(m, rank / 2, 0, rank / 2 ? "upper" : "lower", &g));
    if (rank == 2)
        pause();
    else if (rank == 3)
        muster_allreduce(g, x, 9, MUSTER_F32, MUSTER_SUM, NULL);
    else
        pause();
    return 1;
}

static int dies(struct muster *m, int rank, void *arg)
{
    struct muster *g;
    float x[9] = { 0 };

    RANK_OK(muster_split(m, rank / 2, 0, rank / 2 ? "upper" : "lower", &g));
    if (rank == 2)
        raise(SIGKILL);
    muster_allreduce(g, x, 9, MUSTER_F32, MUSTER_SUM, NULL);
    pause();
    return 1;
}

static void die_now(void *arg)
{
    raise(SIGKILL);
}

/* Rank 3 dies when its group has agreed to end. */
static int dies_in_finalize(struct muster *m, int rank, void *arg)
{
    struct muster *g;

    RANK_OK(muster_split(m, rank / 2, 0, rank / 2 ? "upper" : "lower", &g));
    if (rank == 3)
        forked_before_close(g, die_now, NULL);
    if (muster_finalize(g) != MUSTER_OK)
        return muster_report(NULL);
    pause();
    return 1;
}

/* Rank 0 waits first, for rank 2, which waits for rank 3. */
static int waits_for_one_that_waits(struct muster *m, int rank, void *arg)
{
    struct muster *row, *column;
    float x[9] = { 0 };

    RANK_OK(muster_split(m, rank / 2, 0, "row", &row));
    RANK_OK(muster_split(m, rank % 2, 0, "column", &column));
    if (rank % 2)
        pause();
    if (rank == 2) {
        usleep(300000);
        muster_allreduce(row, x, 9, MUSTER_F32, MUSTER_SUM, NULL);
    }
    muster_barrier(column);
    return 1;
}

/* Rank *stopped of the world is stopped; the other one of its column waits for it, and
 * is waited for in its row.
 */
static int waits_for_a_stopped_rank(struct muster *m, int rank, void *stopped)
{
    int victim = *(int *)stopped;
    struct muster *row, *column;

    RANK_OK(muster_split(m, rank / 2, 0, "row", &row));
    RANK_OK(muster_split(m, rank % 2, 0, "column", &column));
    if (rank == victim)
        raise(SIGSTOP);
    if (rank % 2 == victim % 2)
        muster_barrier(column);
    else if (rank / 2 != victim / 2)
        muster_barrier(row);
    pause();
    return 1;
}

static int in_each_others_way(struct muster *m, int rank, void *arg)
{
    struct muster *one, *two;
    float x[9] = { 0 };

    RANK_OK(muster_split(m, rank / 2, 0, "one", &one));
    RANK_OK(muster_split(m, rank / 2, 0, "two", &two));
    if (rank >= 2)
        pause();
    if (rank == 1)
        usleep(100000);
    muster_allreduce(rank ? two : one, x, 9, MUSTER_F32, MUSTER_SUM, NULL);
    return 1;
}

/* Every rank ends with this status, and standard error has this sentence alone. */
static void ends_with(int (*body)(struct muster *, int, void *), void *arg, int status,
                      double timeout, bool tcp, const char *first, const char *second)
{
    struct forked_world w = {
        .size = 4, .nodes = 2, .timeout = timeout, .force_tcp = tcp
    };
    struct forked_result r;
    const char *line;

    forked_run(&w, body, arg, 60, &r);
    for (int i = 0; i < 4; i++)
        if (r.status[i] != status && r.status[i] != 128 + SIGKILL)
            fail_msg("rank %d ended with %d:\n%s", i, r.status[i], r.text);
    line = strstr(r.text, "muster: ");
    if (!line || !strstr(line, first) || !strstr(line, second) ||
        strstr(line + 1, "muster: "))
        fail_msg("one line with '%s' and '%s' was expected:\n%s", first, second,
                 r.text);
    forked_clear(&r);
}

static void a_failure_of_a_group_ends_the_job_with_its_name(void **state)
{
    for (int tcp = 0; tcp < 2; tcp++) {
        ends_with(another_count, NULL, MUSTER_ECONTRACT, 0, tcp, "group 'upper': ",
                  "(node b, rank 3 of the world) calls all-reduce of 7 f32");
        ends_with(never_comes, NULL, MUSTER_ETIMEOUT, 1 * PATIENCE, tcp,
                  "group 'upper': rank 0 (node b, rank 2 of the world",
                  "has not entered all-reduce of 9 f32");
        ends_with(dies, NULL, MUSTER_EPEER, 0, tcp, "rank 2 (node b", " died");
        ends_with(dies_in_finalize, NULL, MUSTER_EPEER, 0, tcp, "rank 3 (node b",
                  " died");
    }
}

static void a_rank_that_waits_in_another_group_is_not_to_blame(void **state)
{
    ends_with(waits_for_one_that_waits, NULL, MUSTER_ETIMEOUT, 1 * PATIENCE, false,
              "group 'row': rank 1 (node b, rank 3 of the world",
              "has not entered all-reduce of 9 f32");
    ends_with(in_each_others_way, NULL, MUSTER_ETIMEOUT, 1 * PATIENCE, false,
              "has not entered all-reduce of 9 f32; 1 other waits; it waits for "
              "all-reduce of 9 f32 in group '",
              "group '");
}

/* It is found later than a rank that only waits, and later still at the root. */
static void a_rank_that_waits_for_a_stopped_one_is_not_to_blame(void **state)
{
    int stopped = 3;

    ends_with(waits_for_a_stopped_rank, &stopped, MUSTER_ETIMEOUT, 1 * PATIENCE, false,
              "group 'column': rank 1 (node b, rank 3 of the world", "does not answer");
    stopped = 1;
    ends_with(waits_for_a_stopped_rank, &stopped, MUSTER_ETIMEOUT, 1 * PATIENCE, false,
              "group 'column': rank 0 (node a, rank 1 of the world", "does not answer");
}

/* ---- Fewer ranks ---- */

static int outlives(struct muster *m, int rank, void *arg)
{
    static float data[8];
    struct muster_param p = {
        .name = "a", .count = 8, .dtype = MUSTER_F32, .data = data
    };
    struct muster *g, *again;
    struct muster_ddp *ddp;
    _Atomic int *have_group = arg;
    float x = 1;

    RANK_OK(muster_ddp_create(m, &p, 1, NULL, &ddp));
    RANK_OK(muster_ddp_grad_ready(ddp, 0, NULL));
    RANK_OK(muster_ddp_sync(ddp, NULL));
    RANK_OK(muster_split(m, rank / 2, 0, rank / 2 ? "upper" : "lower", &g));
    ++*have_group;
    while (rank == 3 && *have_group < 4)
        usleep(1000);
    if (rank == 3)
        raise(SIGKILL);
    if (rank == 2) {
        RANK_CHECK(muster_allreduce(g, &x, 1, MUSTER_F32, MUSTER_SUM, NULL) ==
                   MUSTER_EPEER);
        RANK_CHECK(strstr(muster_error(g), "group 'upper': rank 1 (node b, rank 3 of "
                                           "the world") &&
                   strstr(muster_error(g), "died"));
        RANK_CHECK(muster_barrier(g) == MUSTER_EPEER);
    } else {
        for (int i = 0; i < 50; i++) {
            x = 1;
            RANK_OK(muster_allreduce(g, &x, 1, MUSTER_F32, MUSTER_SUM, NULL));
            RANK_CHECK(x == 2);
        }
    }
    x = 1;
    RANK_CHECK(muster_allreduce(m, &x, 1, MUSTER_F32, MUSTER_SUM, NULL) ==
               MUSTER_ESHRUNK);
    RANK_CHECK(muster_size(m) == 3);
    if (rank < 2) { /* it goes on in the smaller world too */
        x = 1;
        RANK_OK(muster_allreduce(g, &x, 1, MUSTER_F32, MUSTER_SUM, NULL));
        RANK_CHECK(x == 2);
        RANK_OK(muster_finalize(g));
    } else {
        RANK_CHECK(muster_finalize(g) == MUSTER_EPEER);
    }
    RANK_OK(muster_split(m, 0, 0, "again", &again));
    x = 1;
    RANK_OK(muster_allreduce(again, &x, 1, MUSTER_F32, MUSTER_SUM, NULL));
    RANK_CHECK(x == 3);
    RANK_OK(muster_finalize(again));
    muster_ddp_destroy(ddp);
    return muster_finalize(m);
}

static void groups_without_a_loss_go_on(void **state)
{
    forked_lose_rank_3(outlives, sizeof(_Atomic int));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_group_is_used_like_a_world),
        cmocka_unit_test(a_rank_is_in_several_groups),
        cmocka_unit_test(gradients_are_averaged_in_a_group),
        cmocka_unit_test(a_group_has_samples_and_checkpoints_of_its_own),
        cmocka_unit_test(misuse_is_refused),
        cmocka_unit_test(a_failure_of_a_group_ends_the_job_with_its_name),
        cmocka_unit_test(a_rank_that_waits_in_another_group_is_not_to_blame),
        cmocka_unit_test(a_rank_that_waits_for_a_stopped_one_is_not_to_blame),
        cmocka_unit_test(groups_without_a_loss_go_on),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
