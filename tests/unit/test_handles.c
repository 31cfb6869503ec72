/* SPDX-License-Identifier: BSD-3-Clause */
/* test_handles.c - collectives and messages that only start: muster_start, _wait, _test
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

#include "tests/unit/forked.h"
#include "tests/unit/patience.h"

enum { RANKS = 6, MANY = 12, COUNT = 5003, LARGE = 3 << 20 };

static void on_every_layout(const char *what,
                            int (*body)(struct muster *m, int rank, void *arg))
{
    forked_well(what, (struct forked_world){ .size = RANKS, .nodes = 1 }, body, NULL);
    forked_well(what, (struct forked_world){ .size = RANKS, .nodes = 2 }, body, NULL);
    forked_well(what,
                (struct forked_world){ .size = RANKS, .nodes = 1, .force_tcp = true },
                body, NULL);
}

/* ---- Several in flight ---- */

/* Number k of group g, by kind; x and y have COUNT * RANKS elements. */
static void start_one(struct muster *g, int k, int32_t *x, int32_t *y,
                      struct muster_handle **h)
{
    struct muster *m = g;
    int n = muster_size(g), me = muster_rank(g);
    static const size_t counts[] = { 1, 700, COUNT };
    size_t count = counts[k % 3];

    for (size_t i = 0; i < count * (size_t)n; i++)
        x[i] = me * 1000 + k + (int32_t)(i % 7);
    RANK_OK(muster_start(g, h));
    switch (k % 4) {
    case 0:
        RANK_OK(muster_allreduce(g, x, count, MUSTER_I32, MUSTER_SUM, NULL));
        break;
    case 1:
        RANK_OK(muster_alltoall(g, x, y, count, MUSTER_I32, NULL));
        break;
    case 2:
        RANK_OK(muster_reduce(g, x, y, count, MUSTER_I32, MUSTER_MAX, k % n, NULL));
        break;
    default:
        RANK_OK(muster_sendrecv(g, x, count, (me + 1) % n, y, count, (me + n - 1) % n,
                                MUSTER_I32, NULL));
    }
    RANK_CHECK(*h);
}

static void check_one(struct muster *g, int k, const int32_t *x, const int32_t *y)
{
    struct muster *m = g;
    int n = muster_size(g), me = muster_rank(g), left = (me + n - 1) % n;
    static const size_t counts[] = { 1, 700, COUNT };
    size_t count = counts[k % 3];

    for (size_t i = 0; i < count; i++) {
        int32_t own = k + (int32_t)(i % 7);

        if (k % 4 == 0)
            RANK_CHECK(x[i] == n * own + 1000 * n * (n - 1) / 2);
        else if (k % 4 == 1)
            RANK_CHECK(y[i] == k + (int32_t)(((size_t)me * count + i) % 7));
        else if (k % 4 == 2)
            RANK_CHECK(me != k % n || y[i] == own + 1000 * (n - 1));
        else
            RANK_CHECK(y[i] == own + left * 1000);
    }
}

static int32_t in[2][MANY][COUNT * RANKS], out[2][MANY][COUNT * RANKS];

/* Each rank starts those of the two groups and waits for all in an order of its own. */
static int has_many_in_flight(struct muster *m, int rank, void *arg)
{
    struct muster *g[2];
    struct muster_handle *h[2][MANY];
    int next[2] = { 0, 0 };

    RANK_OK(muster_split(m, rank / 3, 0, "row", &g[0]));
    RANK_OK(muster_split(m, rank % 3, 0, "column", &g[1]));
    for (int round = 0; round < 3; round++) {
        next[0] = next[1] = 0;
        for (int i = 0; i < 2 * MANY; i++) {
            int which = (i * 5 + rank * 3) % 7 < 3;

            which = next[which] == MANY ? !which : which;
            start_one(g[which], next[which], in[which][next[which]],
                      out[which][next[which]], &h[which][next[which]]);
            next[which]++;
        }
        for (int i = 0; i < 2 * MANY; i++) {
            int at = (i * (rank % 2 ? 5 : 7) + rank) % (2 * MANY);

            RANK_OK(muster_wait(h[at / MANY][at % MANY], at % 3 ? 15 : 0));
            check_one(g[at / MANY], at % MANY, in[at / MANY][at % MANY],
                      out[at / MANY][at % MANY]);
        }
    }
    RANK_OK(muster_finalize(g[0]));
    RANK_OK(muster_finalize(g[1]));
    return muster_finalize(m);
}

static void several_are_in_flight_on_several_groups(void **state)
{
    on_every_layout("many in flight", has_many_in_flight);
}

/* ---- Messages ---- */

/* More than the kernel takes at once, in both directions, joined in another order. */
static int crosses(struct muster *m, int rank, void *arg)
{
    static uint8_t sent[2][LARGE], got[2][LARGE];
    struct muster_handle *h[4];
    int other = rank ^ 1;

    memset(sent[0], rank + 1, LARGE);
    memset(sent[1], rank + 101, LARGE);
    for (int k = 0; k < 2; k++) {
        RANK_OK(muster_start(m, &h[k]));
        RANK_OK(muster_send(m, sent[k], LARGE, MUSTER_BYTE, other, NULL));
    }
    for (int k = 0; k < 2; k++) {
        RANK_OK(muster_start(m, &h[2 + k]));
        RANK_OK(muster_recv(m, got[k], LARGE, MUSTER_BYTE, other, NULL));
    }
    RANK_OK(muster_wait(h[1], 0));
    RANK_OK(muster_wait(h[0], 0));
    RANK_OK(muster_wait(h[3], 0));
    RANK_CHECK(got[1][0] == other + 101 && got[1][LARGE - 1] == other + 101);
    RANK_OK(muster_wait(h[2], 0));
    RANK_CHECK(got[0][0] == other + 1 && got[0][LARGE - 1] == other + 1);
    return muster_finalize(m);
}

/* Rank 0 is in a barrier, or computes, while its message is on the way. */
static int moves_meanwhile(struct muster *m, int rank, void *arg)
{
    static uint8_t x[LARGE];
    struct muster_handle *h = NULL;
    int done = 0;

    memset(x, rank + 1, sizeof x);
    if (rank == 0) {
        RANK_OK(muster_start(m, &h));
        RANK_OK(muster_send(m, x, LARGE, MUSTER_BYTE, 1, NULL));
    } else if (rank == 1) {
        RANK_OK(muster_recv(m, x, LARGE, MUSTER_BYTE, 0, NULL));
        RANK_CHECK(x[0] == 1 && x[LARGE - 1] == 1);
    }
    RANK_OK(muster_barrier(m));
    RANK_OK(muster_wait(h, 0));
    if (rank == 1) {
        RANK_OK(muster_start(m, &h));
        RANK_OK(muster_recv(m, x, 1, MUSTER_BYTE, 0, NULL));
        RANK_OK(muster_test(h, &done));
        RANK_CHECK(done == 0);
    }
    RANK_OK(muster_barrier(m));
    if (rank == 0) {
        x[0] = 77;
        RANK_OK(muster_send(m, x, 1, MUSTER_BYTE, 1, NULL));
    } else if (rank == 1) {
        for (int i = 0; i < 4000 && !done; i++) {
            usleep(1000);
            RANK_OK(muster_test(h, &done));
        }
        RANK_CHECK(done == 1 && x[0] == 77);
        RANK_OK(muster_wait(h, 0));
    }
    return muster_finalize(m);
}

static void messages_move_while_nobody_waits(void **state)
{
    on_every_layout("crossing messages", crosses);
    on_every_layout("messages meanwhile", moves_meanwhile);
}

/* ---- Beside gradients ---- */

static int trains_beside(struct muster *m, int rank, void *arg)
{
    static float data[2][64], x[RANKS];
    struct muster_param params[2] = {
        { .name = "a", .count = 64, .dtype = MUSTER_F32, .data = data[0] },
        { .name = "b", .count = 64, .dtype = MUSTER_F32, .data = data[1] }
    };
    struct muster_handle *h;
    struct muster_ddp *ddp;
    struct muster *other;

    RANK_OK(muster_split(m, 0, 0, "other", &other));
    RANK_OK(muster_ddp_create(m, params, 2, NULL, &ddp));
    for (int step = 0; step < 5; step++) {
        for (int i = 1; i >= 0; i--) {
            float *grad = muster_ddp_grad(ddp, i);

            for (int k = 0; k < 64; k++)
                grad[k] = (float)(rank + step);
            if (rank % 2 == i) { /* behind the first bucket, or before it */
                x[0] = (float)rank;
                RANK_OK(muster_start(other, &h));
                RANK_OK(muster_allreduce(other, x, 1, MUSTER_F32, MUSTER_SUM, NULL));
            }
            RANK_OK(muster_ddp_grad_ready(ddp, i, NULL));
        }
        RANK_OK(muster_ddp_sync(ddp, NULL));
        RANK_OK(muster_wait(h, 0));
        RANK_CHECK(x[0] == 15);
        RANK_CHECK(((float *)muster_ddp_grad(ddp, 0))[3] == 2.5f + (float)step);
    }
    muster_ddp_destroy(ddp);
    RANK_OK(muster_finalize(other));
    return muster_finalize(m);
}

static void a_handle_is_in_flight_beside_gradients(void **state)
{
    on_every_layout("beside gradients", trains_beside);
}

/* ---- What is wrong ---- */

static int misuses(struct muster *m, int rank, void *arg)
{
    struct muster_handle *h = (void *)m;
    float x = 1;
    int done;

    RANK_CHECK(muster_start(m, NULL) == MUSTER_EUSAGE);
    RANK_CHECK(muster_test(NULL, &done) == MUSTER_EUSAGE);
    RANK_OK(muster_wait(NULL, 0));
    RANK_OK(muster_start(m, &h));
    RANK_CHECK(!h && muster_barrier(m) == MUSTER_EUSAGE && !h);
    RANK_CHECK(strstr(muster_error(m), "a barrier cannot be started"));
    RANK_OK(muster_start(m, &h));
    RANK_CHECK(muster_broadcast(m, &x, 1, MUSTER_F32, 2, NULL) == MUSTER_EUSAGE && !h);
    /* The refused call was the next one: this one blocks again. */
    RANK_OK(muster_allreduce(m, &x, 1, MUSTER_F32, MUSTER_SUM, NULL));
    RANK_CHECK(x == 2 && !h);
    RANK_OK(muster_start(m, &h));
    RANK_OK(muster_allreduce(m, &x, 1, MUSTER_F32, MUSTER_SUM, NULL));
    RANK_CHECK(muster_finalize(m) == MUSTER_EUSAGE);
    RANK_CHECK(strstr(muster_error(m), "1 handle of muster_start must be waited for"));
    RANK_CHECK(muster_wait(h, -1) == MUSTER_EUSAGE);
    RANK_CHECK(muster_wait(h, 0) == MUSTER_OK && x == 4);
    return muster_finalize(m);
}

static int alone(struct muster *m, int rank, void *arg)
{
    struct muster_handle *h;
    int32_t x = 3, y = 0;
    int done = 0;

    RANK_OK(muster_start(m, &h));
    RANK_OK(muster_sendrecv(m, &x, 1, 0, &y, 1, 0, MUSTER_I32, NULL));
    RANK_OK(muster_test(h, &done));
    RANK_CHECK(done && y == 3);
    RANK_OK(muster_wait(h, 0));
    return muster_finalize(m);
}

static void misuse_is_refused(void **state)
{
    forked_well("misuse", (struct forked_world){ .size = 2, .nodes = 1 }, misuses,
                NULL);
    forked_well("one rank", (struct forked_world){ .size = 1, .nodes = 1 }, alone,
                NULL);
}

static int in_another_order(struct muster *m, int rank, void *arg)
{
    struct muster_handle *h[2];
    struct muster *g;
    float x[2][9] = { { 0 } };

    RANK_OK(muster_split(m, 0, 0, "all", &g));
    for (int k = 0; k < 2; k++) {
        RANK_OK(muster_start(g, &h[k]));
        muster_allreduce(g, x[k], k == rank % 2 ? 4 : 9, MUSTER_F32, MUSTER_SUM, NULL);
    }
    muster_wait(h[1], 0);
    muster_wait(h[0], 0);
    return 1;
}

static int misses_collective(struct muster *m, int rank, void *arg)
{
    struct muster_handle *h;
    struct muster *g;
    float x = 0;

    RANK_OK(muster_split(m, rank / 2, 0, rank / 2 ? "upper" : "lower", &g));
    if (rank != 3)
        pause();
    RANK_OK(muster_start(g, &h));
    RANK_OK(muster_allreduce(g, &x, 1, MUSTER_F32, MUSTER_SUM, NULL));
    muster_wait(h, 1 * PATIENCE);
    return 1;
}

static int misses_message(struct muster *m, int rank, void *arg)
{
    struct muster_handle *h[2];
    struct muster *g;
    float x[2];

    RANK_OK(muster_split(m, rank / 2, 0, rank / 2 ? "upper" : "lower", &g));
    if (rank != 3)
        pause();
    for (int k = 0; k < 2; k++) {
        RANK_OK(muster_start(g, &h[k]));
        RANK_OK(muster_recv(g, &x[k], 1, MUSTER_F32, 0, NULL));
    }
    muster_wait(h[1], 1 * PATIENCE);
    return 1;
}

static int loses_its_partner(struct muster *m, int rank, void *arg)
{
    struct muster_handle *h;
    float x = 0;

    RANK_OK(muster_barrier(m));
    if (rank == 2)
        raise(SIGKILL);
    RANK_OK(muster_start(m, &h));
    if (rank == 3)
        RANK_OK(muster_recv(m, &x, 1, MUSTER_F32, 2, NULL));
    else
        RANK_OK(muster_allreduce(m, &x, 1, MUSTER_F32, MUSTER_SUM, NULL));
    muster_wait(h, 0);
    return 1;
}

/* Every rank ends with this status, and standard error has this sentence alone. */
static void ends_with(int (*body)(struct muster *, int, void *), int status, bool tcp,
                      const char *first, const char *second)
{
    struct forked_world w = {
        .size = 4, .nodes = 2, .timeout = 50 * PATIENCE, .force_tcp = tcp
    };
    struct forked_result r;
    const char *line;

    forked_run(&w, body, NULL, 40 * PATIENCE, &r);
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

static void a_failure_names_group_rank_node_and_call(void **state)
{
    for (int tcp = 0; tcp < 2; tcp++) {
        ends_with(in_another_order, MUSTER_ECONTRACT, tcp, "group 'all': rank ",
                  "calls all-reduce of ");
        ends_with(misses_collective, MUSTER_ETIMEOUT, tcp,
                  "group 'upper': rank 0 (node b, rank 2 of the world",
                  "has not entered all-reduce of 1 f32");
        ends_with(misses_message, MUSTER_ETIMEOUT, tcp,
                  "group 'upper': rank 0 (node b, rank 2 of the world",
                  "has not made its call to the receive of 1 f32 from rank 0");
        ends_with(loses_its_partner, MUSTER_EPEER, tcp, "rank 2 (node b", " died");
    }
}

/* ---- Fewer ranks ---- */

static int shrinks(struct muster *m, int rank, void *arg)
{
    static float data[8];
    struct muster_param p = {
        .name = "a", .count = 8, .dtype = MUSTER_F32, .data = data
    };
    struct muster_handle *h[3];
    _Atomic int *started = arg;
    struct muster_ddp *ddp;
    float x[3] = { 1, 1, 1 };
    int done = 0;

    RANK_OK(muster_ddp_create(m, &p, 1, NULL, &ddp));
    RANK_OK(muster_ddp_grad_ready(ddp, 0, NULL));
    RANK_OK(muster_ddp_sync(ddp, NULL));
    while (rank == 3 && *started < 3)
        usleep(1000);
    if (rank == 3)
        raise(SIGKILL);
    for (int k = 0; k < 3; k++) {
        RANK_OK(muster_start(m, &h[k]));
        if (k == 1)
            RANK_OK(muster_recv(m, &x[k], 1, MUSTER_F32, (rank + 1) % 3, NULL));
        else
            RANK_OK(muster_allreduce(m, &x[k], 1, MUSTER_F32, MUSTER_SUM, NULL));
    }
    ++*started;
    RANK_CHECK(muster_wait(h[1], 0) == MUSTER_ESHRUNK && muster_size(m) == 3);
    RANK_OK(muster_test(h[0], &done));
    RANK_CHECK(done);
    RANK_CHECK(muster_wait(h[0], 0) == MUSTER_ESHRUNK);
    RANK_CHECK(strstr(muster_error(m), "ranks died during the all-reduce of 1 f32"));
    x[0] = 1;
    RANK_OK(muster_start(m, &h[0]));
    RANK_OK(muster_allreduce(m, x, 1, MUSTER_F32, MUSTER_SUM, NULL));
    RANK_OK(muster_wait(h[0], 0));
    RANK_CHECK(x[0] == 3 && muster_wait(h[2], 0) == MUSTER_ESHRUNK);
    muster_ddp_destroy(ddp);
    return muster_finalize(m);
}

static void handles_are_void_when_ranks_die(void **state)
{
    forked_lose_rank_3(shrinks, sizeof(_Atomic int));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(several_are_in_flight_on_several_groups),
        cmocka_unit_test(messages_move_while_nobody_waits),
        cmocka_unit_test(a_handle_is_in_flight_beside_gradients),
        cmocka_unit_test(misuse_is_refused),
        cmocka_unit_test(a_failure_names_group_rank_node_and_call),
        cmocka_unit_test(handles_are_void_when_ranks_die),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
