/* SPDX-License-Identifier: BSD-3-Clause */
/* test_preload.c - libmuster-nccl: which calls are carried out, and what is printed */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "runtime/nccl/eligible.h"
#include "runtime/nccl/nccl_abi.h"
#include "tests/unit/preload_run.h"

static void without_being_asked_all_calls_are_nccl_s(void **state)
{
    struct run r = { .steps = "init " SMALL " destroy" };

    run(&r);
    both(&r, MADE BY_NCCL " | nccl Destroy 0 0 0");
    assert_null(strstr(r.text, "muster"));
    r.env = "MUSTER_LOG=info";
    run(&r);
    has(&r, "muster: nccl: carried out 0 of 1 all-reduces (0.0 of 0.0 MiB); "
            "forwarded: 1 of communicators that Muster does not serve "
            "(MUSTER_NCCL=on is not set)\n");
}

static void off_is_nccl_alone(void **state)
{
    struct run r = { .nccl = "off",
                     .env = "MUSTER_LOG=info",
                     .steps = "init " SMALL " destroy" };

    run(&r);
    both(&r, MADE BY_NCCL " | nccl Destroy 0 0 0");
    assert_null(strstr(r.text, "muster"));
}

static void small_sums_are_carried_out_on_all_ranks(void **state)
{
    static const char *const ways[] = { "init", "config", "scalable" };

    for (int i = 0; i < 3; i++) {
        char steps[64];
        struct run r = { .nccl = "on", .steps = steps };

        snprintf(steps, sizeof steps, "%s " SMALL " sum:8:9:4 destroy", ways[i]);
        run(&r);
        both(&r, SERVED BY_MUSTER " | backend sum 8 3 0.5 | backend close | "
                                  "nccl Destroy 0 0 0");
    }
}

static void four_ranks(void **state)
{
    struct run r = { .nccl = "on", .ranks = 4, .steps = "init " SMALL " finalize" };

    run(&r);
    for (int rank = 0; rank < 4; rank++)
        expect(&r, rank,
               "nccl InitRank 4 1 0 | backend open 4 borrowed | " BY_MUSTER
               " | backend close | nccl Finalize 0 0 0");
}

static void other_sizes_types_and_operators_are_forwarded(void **state)
{
    struct run r = { .nccl = "on",
                     .steps = "init sum:100000000:7:0 sum:0:7:0 sum:4:0:0 sum:4:7:1" };

    run(&r);
    both(&r, SERVED "nccl AllReduce 100000000 7 0 | nccl AllReduce 0 7 0 | "
                    "nccl AllReduce 4 0 0 | nccl AllReduce 4 7 1");
    has(&r, "muster: nccl: carried out 0 of 4 all-reduces (0.0 of 381.5 MiB); "
            "forwarded: 2 of other sizes, 1 of other types, 1 of other operators\n");
}

#define LARGE "sum:1000000:7:0"

static void large_sums_are_carried_out_on_mapped_memory(void **state)
{
    struct run r = { .nccl = "on",
                     .steps = "init " LARGE " sum:1000000:9:4 sum:1000000:2:0" };

    run(&r);
    both(&r, SERVED "backend sum 1000000 0 1 mapped | "
                    "backend sum 1000000 3 0.5 mapped | nccl AllReduce 1000000 2 0");
    r.env = "FAKE_BACKEND=unmapped";
    r.steps = "init " LARGE " " SMALL;
    run(&r);
    both(&r, SERVED "nccl AllReduce 1000000 7 0 | " BY_MUSTER);
    has(&r, "forwarded: 1 of other sizes\n");
}

static void the_memory_that_pytorch_was_asked_for_is_mapped_if_it_can_be(void **state)
{
    static const struct {
        const char *env, *opened;
        bool said;
    } rows[] = {
        { "PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:64,expandable_segments:True",
          "backend open 2 borrowed virtual memory | ", false },
        { "PYTORCH_ALLOC_CONF=expandable_segments:True",
          "backend open 2 borrowed virtual memory | ", false },
        { "PYTORCH_ALLOC_CONF=backend:cudaMallocAsync",
          "backend open 2 borrowed without mapping | ", true },
        { "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False",
          "backend open 2 borrowed | ", false },
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char env[160], expected[160];
        struct run r = { .nccl = "on", .env = env, .steps = "init " SMALL };

        snprintf(env, sizeof env, "%s MUSTER_LOG=info", rows[i].env);
        snprintf(expected, sizeof expected, "%s%s%s", MADE, rows[i].opened, BY_MUSTER);
        run(&r);
        both(&r, expected);
        snprintf(env, sizeof env,
                 "muster: nccl: peers cannot map the memory that %s asks for: NCCL "
                 "does the larger calls\n",
                 rows[i].env);
        assert_int_equal(strstr(r.text, env) != NULL, rows[i].said);
    }
}

static void other_types_and_operators_have_one_shot(void **state)
{
    struct run r = { .nccl = "on",
                     .steps = "init sum:8:8:0 sum:8:8:4 sum:8:2:2 sum:8:4:3 sum:8:3:0 "
                              "sum:8:5:0 sum:8:2:4 sum:8:3:2 sum:8:7:2 sum:8:8:3" };

    run(&r);
    both(&r, SERVED "backend sum 8 1 1 | backend sum 8 1 0.5 | backend max 8 4 1 | "
                    "backend min 8 5 1 | backend sum 8 4 1 | backend sum 8 5 1 | "
                    "nccl AllReduce 8 2 4 | nccl AllReduce 8 3 2 | "
                    "backend max 8 0 1 | backend min 8 1 1");
}

#define KIB ((size_t)1 << 10)
#define MIB (KIB << 10)
static const struct mu_limits limits = {
    { [MU_COLL_ALLREDUCE] = { MIB, MIB + 1, 256 * MIB, MIB },
      [MU_COLL_REDUCE_SCATTER] = { 512 * KIB, MIB, 64 * MIB, 768 * KIB },
      [MU_COLL_ALLGATHER] = { 512 * KIB, 512 * KIB + 1, 64 * MIB, MIB },
      [MU_COLL_BROADCAST] = { 256 * KIB, 0, 0, 256 * KIB } }
};

static void limits_of_what_is_eligible(void **state)
{
    static const struct {
        int type, op;
        size_t count;
        enum mu_fate fate;
        bool mapped;
    } rows[] = {
        { MU_NCCL_FLOAT32, MU_NCCL_SUM, 1 << 18, MU_CARRIED, false },
        { MU_NCCL_FLOAT32, MU_NCCL_SUM, (1 << 18) + 1, MU_CARRIED, true },
        { MU_NCCL_FLOAT32, MU_NCCL_SUM, 1 << 26, MU_CARRIED, true },
        { MU_NCCL_FLOAT32, MU_NCCL_SUM, (1 << 26) + 1, MU_OTHER_SIZE, true },
        { MU_NCCL_BFLOAT16, MU_NCCL_AVG, 1 << 19, MU_CARRIED, false },
        { MU_NCCL_FLOAT64, MU_NCCL_SUM, (1 << 17) + 1, MU_CARRIED, true },
        { MU_NCCL_INT32, MU_NCCL_SUM, 1 << 18, MU_CARRIED, false },
        { MU_NCCL_INT32, MU_NCCL_SUM, (1 << 18) + 1, MU_OTHER_SIZE, true },
        { MU_NCCL_UINT64, MU_NCCL_MIN, 1, MU_OTHER_OPERATOR, false },
        { MU_NCCL_FLOAT32, MU_NCCL_MAX, 1 << 18, MU_CARRIED, false },
        { MU_NCCL_BFLOAT16, MU_NCCL_MIN, 1 << 19, MU_CARRIED, false },
        { MU_NCCL_FLOAT32, MU_NCCL_MAX, (1 << 18) + 1, MU_OTHER_SIZE, true },
        { MU_NCCL_FLOAT32, 5, 1, MU_OTHER_OPERATOR, false }, /* the program's */
        { 0, MU_NCCL_SUM, 1, MU_OTHER_TYPE, false },
        { -1, MU_NCCL_SUM, 1, MU_OTHER_TYPE, false },
        { 12, MU_NCCL_SUM, 1, MU_OTHER_TYPE, false },
        { MU_NCCL_FLOAT32, MU_NCCL_SUM, (size_t)-1 / 2, MU_OTHER_SIZE, false },
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct mu_eligible as;

        assert_int_equal(mu_eligible(&limits, MU_COLL_ALLREDUCE, 2, rows[i].count,
                                     rows[i].type, rows[i].op, &as),
                         rows[i].fate);
        if (rows[i].fate == MU_CARRIED)
            assert_int_equal(as.mapped, rows[i].mapped);
    }
}

enum {
    SCATTER = MU_COLL_REDUCE_SCATTER,
    GATHER = MU_COLL_ALLGATHER,
    BROADCAST = MU_COLL_BROADCAST
};

static void limits_of_the_other_collectives(void **state)
{
    static const struct {
        int kind, ranks, type, op;
        size_t count;
        enum mu_fate fate;
        bool mapped;
    } rows[] = {
        /* of the larger buffer; a count is that of one rank */
        { SCATTER, 2, MU_NCCL_FLOAT32, MU_NCCL_SUM, 1 << 16, MU_CARRIED, false },
        { SCATTER, 2, MU_NCCL_FLOAT32, MU_NCCL_SUM, (1 << 16) + 1, MU_OTHER_SIZE,
          false },
        { SCATTER, 2, MU_NCCL_FLOAT32, MU_NCCL_SUM, 1 << 17, MU_CARRIED, true },
        { SCATTER, 2, MU_NCCL_BFLOAT16, MU_NCCL_AVG, 1 << 24, MU_CARRIED, true },
        { SCATTER, 2, MU_NCCL_BFLOAT16, 4, (1 << 24) + 1, MU_OTHER_SIZE, true },
        { SCATTER, 2, MU_NCCL_INT32, MU_NCCL_MAX, 3 << 15, MU_CARRIED, false },
        { SCATTER, 2, MU_NCCL_INT32, MU_NCCL_MAX, 1 << 17, MU_OTHER_SIZE, true },
        { SCATTER, 2, MU_NCCL_FLOAT32, 1, 8, MU_OTHER_OPERATOR, false },
        { SCATTER, 2, 0, MU_NCCL_SUM, 8, MU_OTHER_TYPE, false },
        { SCATTER, 4, MU_NCCL_FLOAT16, MU_NCCL_SUM, 1 << 16, MU_CARRIED, false },
        { SCATTER, 4, MU_NCCL_FLOAT16, MU_NCCL_SUM, 1 << 23, MU_CARRIED, true },
        { SCATTER, 4, MU_NCCL_FLOAT16, MU_NCCL_SUM, (1 << 23) + 1, MU_OTHER_SIZE,
          true },
        { GATHER, 2, 0, 99, 1 << 18, MU_CARRIED, false },
        { GATHER, 2, 11, 0, (1 << 18) + 1, MU_CARRIED, true },
        { GATHER, 2, MU_NCCL_FLOAT64, 0, 1 << 22, MU_CARRIED, true },
        { GATHER, 2, MU_NCCL_FLOAT64, 0, (1 << 22) + 1, MU_OTHER_SIZE, true },
        { GATHER, 2, MU_NCCL_FLOAT64, 0, (size_t)-1 / 8, MU_OTHER_SIZE, false },
        { GATHER, 2, 12, 0, 8, MU_OTHER_TYPE, false },
        { GATHER, 2, 0, 0, 0, MU_OTHER_SIZE, false },
        { GATHER, 4, 0, 0, 1 << 17, MU_CARRIED, false },
        { GATHER, 8, 0, 0, 1 << 23, MU_CARRIED, true },
        { BROADCAST, 2, 1, 0, 1 << 18, MU_CARRIED, false },
        { BROADCAST, 2, 1, 0, (1 << 18) + 1, MU_OTHER_SIZE, true },
        { BROADCAST, 3, 1, 0, 8, MU_CARRIED, false },
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct mu_eligible as;

        assert_int_equal(mu_eligible(&limits, (enum mu_coll_kind)rows[i].kind,
                                     rows[i].ranks, rows[i].count, rows[i].type,
                                     rows[i].op, &as),
                         rows[i].fate);
        if (rows[i].fate == MU_CARRIED)
            assert_int_equal(as.mapped, rows[i].mapped);
    }
}

/* What is moved has no type: its count is in bytes. */
static void the_other_collectives_are_carried_out_too(void **state)
{
    struct run r = { .nccl = "on",
                     .steps = "init scatter:8:9:4 scatter:200000:7:0 scatter:8:2:2 "
                              "gather:8:7 gather:3:0 gather:400000:9" };

    run(&r);
    both(&r, SERVED "backend scatter sum 8 3 0.5 | "
                    "backend scatter sum 200000 0 1 mapped | backend scatter max 8 4 1 "
                    "| backend gather 32 | backend gather 3 | "
                    "backend gather 800000 mapped");
    has(&r, "carried out 3 of 3 reduce-scatters (1.5 of 1.5 MiB), 3 of 3 all-gathers "
            "(1.5 of 1.5 MiB)\n");
    r.steps = "init broadcast:5:7:1 bcast:6:1:0 broadcast:5:7:2 broadcast:0:7:0 " SMALL;
    run(&r);
    expect(&r, 0,
           SERVED
           "backend broadcast 20 from 1 in place | "
           "backend broadcast 6 from 0 in place | nccl Broadcast of nothing 5 7 2"
           " | nccl Broadcast 0 7 0 | " BY_MUSTER);
    expect(&r, 1,
           SERVED "backend broadcast 20 from 1 | backend broadcast 6 from 0 in place | "
                  "nccl Broadcast of nothing 5 7 2 | nccl Broadcast of nothing 0 7 0 "
                  "| " BY_MUSTER);
    has(&r,
        "carried out 1 of 1 all-reduces (0.0 of 0.0 MiB), 2 of 4 broadcasts (0.0 of "
        "0.0 MiB); forwarded: 2 of other sizes\n");
}

static void the_other_collectives_are_forwarded_as_they_are(void **state)
{
    const char *all = "nccl ReduceScatter 8 9 4 | nccl AllGather 7 0 0 | "
                      "nccl Broadcast 5 7 0 | nccl Broadcast 6 1 1";
    char expected[400];
    struct run r = { .nccl = "off",
                     .steps = "init scatter:8:9:4 gather:7:0 @0broadcast:5:7:0 "
                              "@1broadcast:5:7:1 bcast:6:1:1" };

    run(&r);
    snprintf(expected, sizeof expected, MADE "%s", all);
    expect(&r, 0, expected);
    r.how = "by-name";
    run(&r);
    expect(&r, 0, expected);
}

static void an_error_of_the_gpu_is_the_program_s(void **state)
{
    struct run r = { .nccl = "on",
                     .env = "FAKE_BACKEND=broken",
                     .steps = "init " SMALL };

    run(&r);
    both(&r, SERVED SMALL " returned 1");
    has(&r, "muster: error: nccl: the GPU failed\n");
}

static void nccl_is_found_where_the_program_has_it(void **state)
{
    struct run r = { .nccl = "on", .how = "local", .steps = "init " SMALL };

    run(&r);
    both(&r, SERVED BY_MUSTER);
    r = (struct run){ .nccl = "on",
                      .how = "by-name",
                      .steps = "init " SMALL " reduce error" };
    run(&r);
    both(&r, SERVED BY_MUSTER " | nccl Reduce 11 1 88 | is no error");
}

static void without_nccl_a_call_fails_with_a_sentence(void **state)
{
    struct run r = { .nccl = "on",
                     .how = "local",
                     .env = "MUSTER_NCCL_LIBRARY=/nonexistent/libnccl.so.2",
                     .ranks = 1,
                     .steps = "init" };

    run(&r);
    expect(&r, 0, "init returned 5");
    has(&r, "muster: error: ncclCommInitRank is not found: MUSTER_NCCL_LIBRARY can "
            "name the path of libnccl.so.2\n");
}

static void the_line_at_the_end_is_one_and_can_be_left_out(void **state)
{
    struct run r = { .nccl = "on", .steps = "init " SMALL " " SMALL };
    const char *line = "muster: nccl: carried out 2 of 2 all-reduces (0.0 of "
                       "0.0 MiB)\n";

    run(&r);
    has(&r, line);
    assert_null(strstr(strstr(r.text, line) + 1, line));
    r.env = "MUSTER_LOG=warn";
    run(&r);
    assert_null(strstr(r.text, "muster"));
    r = (struct run){ .nccl = "yes", .steps = "init " SMALL };
    run(&r);
    both(&r, MADE BY_NCCL);
    has(&r, "muster: warning: MUSTER_NCCL is on, off or watch, not 'yes'\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_being_asked_all_calls_are_nccl_s),
        cmocka_unit_test(off_is_nccl_alone),
        cmocka_unit_test(small_sums_are_carried_out_on_all_ranks),
        cmocka_unit_test(four_ranks),
        cmocka_unit_test(other_sizes_types_and_operators_are_forwarded),
        cmocka_unit_test(large_sums_are_carried_out_on_mapped_memory),
        cmocka_unit_test(the_memory_that_pytorch_was_asked_for_is_mapped_if_it_can_be),
        cmocka_unit_test(other_types_and_operators_have_one_shot),
        cmocka_unit_test(the_other_collectives_are_carried_out_too),
        cmocka_unit_test(the_other_collectives_are_forwarded_as_they_are),
        cmocka_unit_test(limits_of_what_is_eligible),
        cmocka_unit_test(limits_of_the_other_collectives),
        cmocka_unit_test(an_error_of_the_gpu_is_the_program_s),
        cmocka_unit_test(nccl_is_found_where_the_program_has_it),
        cmocka_unit_test(without_nccl_a_call_fails_with_a_sentence),
        cmocka_unit_test(the_line_at_the_end_is_one_and_can_be_left_out),
    };

    return cmocka_run_group_tests(tests, lay_out, clear);
}
