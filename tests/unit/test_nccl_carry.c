/* SPDX-License-Identifier: BSD-3-Clause */
/* test_nccl_carry.c - collectives of a program on its own streams, on fake GPUs */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/unit/fake_ranks.h"

#define CALLS 24

static int start(void **state)
{
    fake_open_ranks(2, true);
    for (int r = 0; r < fake_nranks; r++) {
        assert_int_equal(mu_carry_open(&fake_rank[r].b, NULL), 0);
        fake_rank[r].b.device = r;
        fake_rank[r].b.ours.open = true;
    }
    return 0;
}

static int stop(void **state)
{
    for (int r = 0; r < fake_nranks; r++)
        mu_carry_close(&fake_rank[r].b);
    fake_close_ranks();
    return 0;
}

static float value(int rank, int k)
{
    return (float)(100 * k + 12 * rank);
}

static size_t count_of(int k)
{
    return (size_t)(k * 5 % 7 + 1) * 16;
}

static float *place(char *base, int k)
{
    return (float *)(void *)(base + (size_t)k * 4096);
}

/* Every third call is a large one. */
static bool is_mapped(int k)
{
    return k % 3 == 2;
}

static enum mu_coll_kind kind_of(int k)
{
    static const enum mu_coll_kind kinds[] = { MU_COLL_ALLREDUCE,
                                               MU_COLL_REDUCE_SCATTER,
                                               MU_COLL_ALLGATHER, MU_COLL_BROADCAST };

    return kinds[k / 2 % 4];
}

/* All in place, on a buffer of count_of(k) elements, as NCCL has it. */
static int carry(int r, int k, cudaStream_t s, bool *carried, struct mu_err *err)
{
    struct fake_rank *g = &fake_rank[r];
    enum mu_coll_kind kind = kind_of(k);
    float *p = place(g->arena, k);
    size_t part = count_of(k) / (size_t)fake_nranks;
    bool parts = kind == MU_COLL_REDUCE_SCATTER || kind == MU_COLL_ALLGATHER;
    bool moves = kind == MU_COLL_ALLGATHER || kind == MU_COLL_BROADCAST;
    const struct mu_coll c = {
        .kind = kind,
        .dtype = MUSTER_F32,
        .op = MUSTER_SUM,
        .send = kind == MU_COLL_ALLGATHER ? p + (size_t)r * part : p,
        .recv = kind == MU_COLL_REDUCE_SCATTER ? p + (size_t)r * part : p,
        .count = (parts ? part : count_of(k)) * (moves ? sizeof *p : 1),
        .root = k % fake_nranks,
        .scale = 1.0,
        .stream = s,
        .direct = true,
        .what = "ncclAllReduce"
    };

    return mu_nccl_carry((struct mu_backend *)&g->b, &c, is_mapped(k), carried, err);
}

/* Call k of rank r: fill, all-reduce, read; all on stream s. */
static int call(int r, int k, cudaStream_t s, bool *carried, struct mu_err *err)
{
    float *p = place(fake_rank[r].arena, k);
    int rc;

    fake_fill(s, p, count_of(k), value(r, k));
    rc = carry(r, k, s, carried, err);
    fake_read(s, place(fake_rank[r].seen, k), p, count_of(k));
    return rc;
}

/* On a stream that the rank chooses by itself. */
static void call_somewhere(unsigned order, int r, int k)
{
    unsigned which = (order >> k % 5) + (unsigned)(k * (r + 1) / 3);
    bool carried;

    assert_int_equal(
        call(r, k, which % 2 ? fake_rank[r].s1 : fake_rank[r].s2, &carried, NULL), 0);
    assert_true(carried);
}

/* Element i of call k on rank r, of which part `of` of the buffer is. */
static float expected(int r, int k, int of)
{
    float sum = 0;

    for (int p = 0; p < fake_nranks; p++)
        sum += value(p, k);
    switch (kind_of(k)) {
    case MU_COLL_REDUCE_SCATTER:
        return of == r ? sum : value(r, k);
    case MU_COLL_ALLGATHER:
        return value(of, k);
    case MU_COLL_BROADCAST:
        return value(k % fake_nranks, k);
    default:
        return sum;
    }
}

static void run_and_compare(const char *what, unsigned order)
{
    fake_run_to_end(what, order);
    for (int r = 0; r < fake_nranks; r++)
        for (int k = 0; k < CALLS; k++)
            for (size_t i = 0; i < count_of(k); i++) {
                size_t of = i / (count_of(k) / (size_t)fake_nranks);

                assert_true(place(fake_rank[r].seen, k)[i] == expected(r, k, (int)of));
            }
}

static void calls_on_several_streams_run_in_the_order_of_the_calls(void **state)
{
    for (unsigned order = 0; order < ORDERS(0); order++) {
        start(state);
        for (int r = 0; r < fake_nranks; r++)
            for (int k = 0; k < CALLS; k++)
                call_somewhere(order, r, k);
        run_and_compare("two streams", order);
        stop(state);
    }
}

static bool is_captured(unsigned order, int k)
{
    return (order * 7 + (unsigned)k / 4) % 3 == 0;
}

/* Some of the calls are of graphs, of up to four calls each on both streams. */
static void graphs_and_calls_beside_them_run_in_the_order_of_the_calls(void **state)
{
    for (unsigned order = 0; order < ORDERS(0); order++) {
        start(state);
        for (int r = 0; r < fake_nranks; r++)
            for (int k = 0; k < CALLS; k++) {
                bool on = is_captured(order, k);

                if (k == 0 || on != is_captured(order, k - 1) || k % 4 == 0)
                    fake_capture(on);
                call_somewhere(order, r, k);
            }
        fake_capture(false);
        run_and_compare("graphs", order);
        stop(state);
    }
}

/* A wait and a record; between streams an edge. A graph records the event whenever it
 * runs, so a call of any stream waits from then on.
 */
static void a_graph_waits_once_and_records_once(void **state)
{
    static const int events[] = { 2, 0, 1, 2, 2 };
    struct fake_rank *g = &fake_rank[0];
    cudaStream_t on[] = { g->s1, g->s1, g->s2, g->s2, g->s2 };

    fake_capture(true);
    for (int i = 0; i < 5; i++) {
        int before = fake_calls_of(0).events;
        bool carried;

        if (i == 3)
            fake_capture(false);
        assert_int_equal(carry(0, i, on[i], &carried, NULL), 0);
        assert_true(carried);
        assert_int_equal(fake_calls_of(0).events - before, events[i]);
    }
}

/* By its number: a handle may be that of another stream meanwhile. */
static void a_call_waits_for_the_one_before_unless_its_stream_is_the_same(void **state)
{
    static const struct fake_calls same = { .events = 1, .kernels = 1 },
                                   other = { .events = 2, .kernels = 1 };
    struct fake_rank *g = &fake_rank[0];
    const struct {
        cudaStream_t stream;
        bool again;
        struct fake_calls limit;
    } rows[] = { { g->s1, false, same },
                 { g->s1, false, same },
                 { g->s2, false, other },
                 { g->s2, true, other },
                 { g->s2, false, same } };

    for (int i = 0; i < 5; i++) {
        struct fake_calls before = fake_calls_of(0), after;
        bool carried;

        if (rows[i].again)
            fake_stream_again(rows[i].stream);
        assert_int_equal(call(0, i, rows[i].stream, &carried, NULL), 0);
        after = fake_calls_of(0);
        assert_int_equal(after.events - before.events, rows[i].limit.events);
        assert_int_equal(after.kernels - before.kernels, rows[i].limit.kernels);
        assert_int_equal(after.nccl, 0);
    }
}

static void what_no_way_can_carry_is_left_to_nccl(void **state)
{
    struct fake_rank *g = &fake_rank[0];
    struct mu_coll large = { .kind = MU_COLL_ALLREDUCE,
                             .dtype = MUSTER_F32,
                             .count = MIB, /* elements: too many for one-shot */
                             .stream = g->s1 };

    g->b.ours.open = false; /* another rank cannot map */
    for (int mapped = 0; mapped < 2; mapped++) {
        bool carried = true;

        assert_int_equal(
            mu_nccl_carry((struct mu_backend *)&g->b, &large, mapped, &carried, NULL),
            0);
        assert_false(carried);
    }
    assert_int_equal(fake_calls_of(0).kernels, 0);
    assert_int_equal(fake_calls_of(0).events, 0);
}

/* There it is copied: a program may map other memory before a replay. */
static void large_calls_of_a_graph_are_nccl_s_where_the_memory_is_virtual(void **state)
{
    struct fake_rank *g = &fake_rank[0];

    for (int asked = 0; asked < 2; asked++)
        for (int captured = 0; captured < 2; captured++)
            for (int large = 0; large < 2; large++) {
                int k = large ? 2 : 0;
                bool carried;

                assert_true(is_mapped(k) == large);
                g->b.ours.for_virtual = asked;
                fake_capture(captured);
                assert_int_equal(carry(0, k, g->s1, &carried, NULL), 0);
                assert_true(carried == !(asked && captured && large));
            }
    fake_capture(false);
}

/* Where the ranks' parts fill no vectors, peers cannot store them in vectors. */
static void large_parts_of_no_whole_vectors_are_left_to_nccl(void **state)
{
    static const enum mu_coll_kind kinds[] = { MU_COLL_ALLGATHER, MU_COLL_BROADCAST };

    for (int i = 0; i < 4; i++) {
        const struct mu_coll c = { .kind = kinds[i % 2],
                                   .count = 2 * MIB + (i < 2 ? 0 : 8), /* bytes */
                                   .scale = 1.0,
                                   .direct = true,
                                   .stream = fake_rank[0].s1 };
        bool carried = i >= 2;

        assert_int_equal(mu_nccl_carry((struct mu_backend *)&fake_rank[0].b, &c, true,
                                       &carried, NULL),
                         0);
        assert_int_equal(carried, i < 2);
    }
}

/* What computes beside it keeps its SMs: eight blocks reach the rate of 32. The root of
 * a broadcast works alone.
 */
static void large_calls_take_few_sms(void **state)
{
    static const struct {
        enum mu_coll_kind kind;
        size_t bytes, count; /* of the larger buffer; of the call */
        int blocks;
    } rows[] = {
        { MU_COLL_ALLREDUCE, 2 * MIB, MIB / 2, 32 },
        { MU_COLL_ALLREDUCE, 16 * MIB, 4 * MIB, 32 },
        { MU_COLL_ALLREDUCE, 25 * MIB, 25 * MIB / 4, 8 },
        { MU_COLL_REDUCE_SCATTER, 16 * MIB, 2 * MIB, 32 },
        { MU_COLL_REDUCE_SCATTER, 24 * MIB, 3 * MIB, 8 },
        { MU_COLL_ALLGATHER, 16 * MIB, 8 * MIB, 32 },
        { MU_COLL_ALLGATHER, 24 * MIB, 12 * MIB, 8 },
        { MU_COLL_BROADCAST, 64 * KIB, 64 * KIB, 4 },
        { MU_COLL_BROADCAST, 24 * MIB, 24 * MIB, 32 },
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct mu_coll c = { .kind = rows[i].kind,
                                   .dtype = MUSTER_F32,
                                   .count = rows[i].count,
                                   .scale = 1.0,
                                   .direct = true,
                                   .stream = fake_rank[0].s1 };
        bool carried;

        assert_int_equal(mu_nccl_carry((struct mu_backend *)&fake_rank[0].b, &c, true,
                                       &carried, NULL),
                         0);
        assert_int_equal(fake_calls_of(0).blocks, rows[i].blocks);
    }
}

static void keep(void *arg, enum mu_log_level level, const char *text)
{
    char *lines = arg;

    snprintf(lines + strlen(lines), 1000 - strlen(lines), "%d %s\n", (int)level, text);
}

/* Rank 0 has used two allocations; CUDA refuses one, and no peer has the other. */
static void the_ways_of_the_calls_are_logged_at_the_end(void **state)
{
    char lines[1000] = "";
    struct mu_log log = { .level = MU_LOG_DEBUG, .sink = keep, .arg = lines };
    struct mu_nccl_backend *b = &fake_rank[0].b;
    bool carried;

    b->env.log = &log;
    b->env.job = "nccl.7";
    mu_carry_report(b);
    assert_string_equal(lines, ""); /* not a program's communicator */
    fake_capture(true);
    assert_int_equal(carry(0, 2, fake_rank[0].s1, &carried, NULL), 0);
    fake_capture(false);
    for (int k = 0; k < 2; k++)
        assert_int_equal(carry(0, k, fake_rank[0].s1, &carried, NULL), 0);
    b->ours.table.entry[3].generation = 5;
    b->ours.table.entry[4].generation = 7;
    b->ours.table.entry[5].generation = 6; /* freed */
    b->ours.refused[4] = b->ours.refused[5] = true;
    b->ours.table.board[0] = fake_room(sizeof *b->ours.table.board[0]);
    mu_carry_report(b);
    free(b->ours.table.board[0]);
    assert_string_equal(
        lines,
        "1 nccl: CUDA gives the peers of rank 0 no handle of 1 allocations: "
        "large collectives on them were copied, slower than by NCCL\n"
        "3 nccl: rank 0, nccl.7: 2 calls by one-shot, 1 on mapped memory, 1 of both "
        "captured; mapping is on: of 2 allocations the peers have mapped 0, CUDA "
        "refuses "
        "1\n");
}

static void the_program_s_device_stays_current(void **state)
{
    bool carried;

    fake_device = 7;
    assert_int_equal(call(1, 0, fake_rank[1].s1, &carried, NULL), 0);
    assert_int_equal(fake_device, 7);
    fake_device = 0;
}

/* After an error the backend's own stream is its own. */
static void an_error_is_reported_and_the_next_call_works(void **state)
{
    for (int n = 2; n < 4; n++) { /* the kernel, the event; the fill is the first */
        struct mu_err err = { 0 };
        bool carried = true;
        cudaStream_t own = fake_rank[0].b.stream;

        fake_fail(n);
        assert_int_equal(call(0, n, fake_rank[0].s1, &carried, &err), -1);
        assert_false(carried);
        assert_string_equal(err.text, "CUDA: ncclAllReduce");
        assert_ptr_equal(fake_rank[0].b.stream, own);
        assert_int_equal(call(0, n, fake_rank[0].s1, &carried, NULL), 0);
        assert_true(carried);
    }
}

static void after_an_abort_no_call_starts(void **state)
{
    struct mu_err err = { 0 };
    bool carried = true;

    fake_rank[0].b.aborted = true;
    assert_int_equal(call(0, 0, fake_rank[0].s1, &carried, &err), -1);
    assert_false(carried);
    assert_int_equal(fake_calls_of(0).kernels, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_on_several_streams_run_in_the_order_of_the_calls),
        TEST(a_call_waits_for_the_one_before_unless_its_stream_is_the_same),
        cmocka_unit_test(graphs_and_calls_beside_them_run_in_the_order_of_the_calls),
        TEST(a_graph_waits_once_and_records_once),
        TEST(what_no_way_can_carry_is_left_to_nccl),
        TEST(large_calls_of_a_graph_are_nccl_s_where_the_memory_is_virtual),
        TEST(large_parts_of_no_whole_vectors_are_left_to_nccl),
        TEST(large_calls_take_few_sms),
        TEST(the_ways_of_the_calls_are_logged_at_the_end),
        TEST(the_program_s_device_stays_current),
        TEST(an_error_is_reported_and_the_next_call_works),
        TEST(after_an_abort_no_call_starts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
