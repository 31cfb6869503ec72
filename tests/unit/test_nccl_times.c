/* SPDX-License-Identifier: BSD-3-Clause */
/* test_nccl_times.c - a table of times, and the sizes that Muster carries out by it */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "runtime/nccl/times.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define MACHINE "# muster 1, node n1\n# rank 0: a GPU\n"
#define BEGIN "muster-nccl-times 1\n" MACHINE

/* Rows of all-reduce, of which `graph` has the form. */
static void add(struct mu_times *t, bool mapped, size_t bytes, bool graph, float us,
                float nccl_us)
{
    t->row[t->n++] = (struct mu_trial){ .kind = MU_COLL_ALLREDUCE,
                                        .mapped = mapped,
                                        .bytes = bytes,
                                        .graph = graph,
                                        .us = us,
                                        .nccl_us = nccl_us };
}

static struct mu_limit limit(const struct mu_times *t)
{
    struct mu_limits l;

    mu_times_limits(t, &l);
    for (int kind = 0; kind < MU_LIMITS; kind++)
        if (kind != MU_COLL_ALLREDUCE)
            assert_int_equal(l.of[kind].one_shot + l.of[kind].to + l.of[kind].others,
                             0);
    return l.of[MU_COLL_ALLREDUCE];
}

static void is(struct mu_limit l, size_t one_shot, size_t from, size_t to,
               size_t others)
{
    assert_int_equal(l.one_shot, one_shot);
    assert_int_equal(l.from, from);
    assert_int_equal(l.to, to);
    assert_int_equal(l.others, others);
}

static void up_to_where_nccl_is_faster(void **state)
{
    struct mu_times t = { .n = 0 };

    is(limit(&t), 0, 0, 0, 0);
    add(&t, false, 4 * KIB, false, 5, 8);
    add(&t, false, 64 * KIB, false, 9, 9);
    add(&t, false, MIB, false, 30, 20);
    is(limit(&t), 64 * KIB, 0, 0, 64 * KIB);
    add(&t, true, 4 * MIB, false, 30, 40);
    add(&t, true, 16 * MIB, false, 120, 119); /* noise */
    add(&t, true, 64 * MIB, false, 500, 400);
    add(&t, true, 256 * MIB, false, 1000, 1600); /* behind a slower one */
    is(limit(&t), 64 * KIB, 4 * MIB, 16 * MIB, 64 * KIB);
}

static void it_is_faster_on_streams_and_in_graphs(void **state)
{
    struct mu_times t = { .n = 0 };

    for (int graph = 0; graph < 2; graph++) {
        add(&t, false, 4 * KIB, graph, 5, 8);
        add(&t, false, 64 * KIB, graph, 9, graph ? 8 : 12);
        add(&t, true, 256 * KIB, graph, 9, graph ? 12 : 8);
    }
    is(limit(&t), 4 * KIB, 0, 0, 4 * KIB);
}

/* Where both are faster than NCCL, the faster of them; what has no kernel on mapped
 * memory stays with one-shot.
 */
static void mapped_memory_takes_over_where_it_is_faster(void **state)
{
    struct mu_times t = { .n = 0 };

    add(&t, false, 256 * KIB, false, 10, 20);
    add(&t, false, 512 * KIB, false, 20, 30);
    add(&t, false, MIB, false, 38, 40);
    add(&t, true, 256 * KIB, false, 12, 20);
    add(&t, true, 512 * KIB, false, 15, 30);
    add(&t, true, MIB, false, 20, 40);
    is(limit(&t), 256 * KIB, 256 * KIB + 1, MIB, MIB);
    /* Between two sizes of which one is slower, NCCL is. */
    t.row[3].us = 21;
    is(limit(&t), 256 * KIB, 512 * KIB, MIB, MIB);
    /* Faster in one turn alone, within noise. */
    t.row[4].us = 19.8f;
    is(limit(&t), 512 * KIB, 512 * KIB + 1, MIB, MIB);
}

static void what_was_not_measured_is_slower(void **state)
{
    struct mu_times t = { .n = 0 };

    add(&t, false, 4 * KIB, false, 0, 0);
    add(&t, false, 16 * KIB, false, 5, 8);
    add(&t, true, MIB, false, 20, 40);
    add(&t, true, 4 * MIB, false, 0, 0);
    is(limit(&t), 0, MIB, MIB, 0);
}

static void the_plan_has_each_size_in_both_forms(void **state)
{
    struct mu_times t;
    struct mu_limits l;

    mu_times_plan(&t);
    assert_in_range(t.n, 1, MU_TIMES_MOST);
    for (int i = 0; i < t.n; i += 2) {
        assert_int_equal(t.row[i].bytes, t.row[i + 1].bytes);
        assert_true(t.row[i].graph != t.row[i + 1].graph);
        for (int form = 0; form < 2; form++) {
            t.row[i + form].us = 1;
            t.row[i + form].nccl_us = 2;
        }
    }
    mu_times_limits(&t, &l);
    is(l.of[MU_COLL_ALLREDUCE], MIB, MIB + 1, 256 * MIB, MIB);
    is(l.of[MU_COLL_ALLGATHER], MIB, MIB + 1, 256 * MIB, MIB);
    is(l.of[MU_COLL_REDUCE_SCATTER], MIB, MIB + 1, 256 * MIB, MIB);
    is(l.of[MU_COLL_BROADCAST], MIB, 0, 0, MIB);
}

static void without_memory_for_the_largest_a_table_is_not_complete(void **state)
{
    struct mu_times t = { .n = 0 };

    assert_false(mu_times_complete(&t));
    add(&t, false, 4 * KIB, false, 5, 8);
    add(&t, false, MIB, false, 0, 0); /* too large for one-shot */
    add(&t, true, MIB, false, 0, 0);
    add(&t, true, 4 * MIB, false, 0, 0); /* memory that is not mapped */
    assert_true(mu_times_complete(&t));
    t.row[2].us = 5;
    assert_false(mu_times_complete(&t));
    t.row[3].us = 5;
    assert_true(mu_times_complete(&t));
}

static void the_slowest_rank_counts(void **state)
{
    struct mu_times a = { .n = 0 }, b = { .n = 0 };

    add(&a, false, 4 * KIB, false, 5, 8);
    add(&a, false, MIB, false, 5, 8);
    add(&b, false, 4 * KIB, false, 6, 7);
    add(&b, false, MIB, false, 0, 0);
    mu_times_slowest(&a, &b);
    assert_true(a.row[0].us == 6 && a.row[0].nccl_us == 8);
    assert_true(a.row[1].us == 0 && a.row[1].nccl_us == 0);
}

static void a_table_comes_back_from_its_text(void **state)
{
    struct mu_times t, back;
    struct mu_err err = { 0 };
    struct mu_limits before, after;
    char *text;

    mu_times_plan(&t);
    for (int i = 0; i < t.n; i++) {
        t.row[i].us = 10;
        t.row[i].nccl_us = t.row[i].bytes > 16 * MIB ? 0 : 20.25f;
    }
    text = mu_times_text(&t, MACHINE);
    assert_non_null(text);
    assert_int_equal(mu_times_parse(&back, text, MACHINE, "f", &err), 0);
    assert_in_range(back.n, 1, t.n - 1); /* those without times are left out */
    assert_true(back.row[0].us == 10 && back.row[0].nccl_us == 20.25f);
    mu_times_limits(&t, &before);
    mu_times_limits(&back, &after);
    assert_memory_equal(&before, &after, sizeof before);
    assert_int_equal(mu_times_parse(&back, text, "# muster 1, node n2\n", "f", &err),
                     -1);
    assert_int_equal(err.code, EXDEV);
    assert_string_equal(err.text, "f: these times are of another machine");
    free(text);
}

static void a_wrong_table_is_refused_with_its_line(void **state)
{
    static const struct {
        const char *rows, *expected;
    } cases[] = {
        { "AllReduce 4096 one-shot 1 2", "f line 4: a row has 6 fields, this one 5" },
        { "# x\n\nAllReduce 4096 one-shot 1 2 graph 3",
          "f line 6: a row has 6 fields, this one 7" },
        { "Reduce 4096 one-shot 1 2 graph", "f line 4: unknown function 'Reduce'" },
        { "AllReduce 4096 push 1 2 graph", "f line 4: unknown way 'push'" },
        { "AllReduce 4096 mapped 1 2 any", "f line 4: unknown form 'any'" },
        { "AllReduce 4k6 mapped 1 2 graph", "f line 4: bytes" },
        { "AllReduce 4096 mapped 0 2 graph", "f line 4: us" },
        { "AllReduce 4096 mapped 1 nan graph", "f line 4: nccl_us" },
    };
    char text[512];
    struct mu_times t;
    struct mu_err err = { 0 };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        snprintf(text, sizeof text, BEGIN "%s\n", cases[i].rows);
        assert_int_equal(mu_times_parse(&t, text, MACHINE, "f", &err), -1);
        if (strncmp(err.text, cases[i].expected, strlen(cases[i].expected)) != 0)
            fail_msg("%s\n%s", cases[i].rows, err.text);
        mu_err_clear(&err);
    }
}

static void a_table_has_an_end(void **state)
{
    static const char row[] = "AllReduce 4096 mapped 1 2 graph\n";
    char *text = malloc(sizeof BEGIN + (MU_TIMES_MOST + 1) * sizeof row);
    struct mu_times t;
    struct mu_err err = { 0 };

    strcpy(text, BEGIN);
    for (int i = 0; i < MU_TIMES_MOST; i++)
        strcat(text, row);
    assert_int_equal(mu_times_parse(&t, text, MACHINE, "f", &err), 0);
    strcat(text, row);
    assert_int_equal(mu_times_parse(&t, text, MACHINE, "f", &err), -1);
    assert_non_null(strstr(err.text, "more than 128 rows"));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(up_to_where_nccl_is_faster),
        cmocka_unit_test(it_is_faster_on_streams_and_in_graphs),
        cmocka_unit_test(mapped_memory_takes_over_where_it_is_faster),
        cmocka_unit_test(what_was_not_measured_is_slower),
        cmocka_unit_test(the_plan_has_each_size_in_both_forms),
        cmocka_unit_test(without_memory_for_the_largest_a_table_is_not_complete),
        cmocka_unit_test(the_slowest_rank_counts),
        cmocka_unit_test(a_table_comes_back_from_its_text),
        cmocka_unit_test(a_wrong_table_is_refused_with_its_line),
        cmocka_unit_test(a_table_has_an_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
