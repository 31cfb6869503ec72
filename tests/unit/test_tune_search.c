/* SPDX-License-Identifier: BSD-3-Clause */
/* test_tune_search.c - the search of muster bench tune on a made-up machine: which ways
 * it measures, and that chance does not decide what its table makes NCCL take
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "runtime/core/tune_search.h"

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)

/* NCCL's own choice takes 100 us at every size, in both forms. */
struct machine {
    struct mu_tune_row fast; /* this way takes fast.us from fast.bytes on */
    double fast_in_graphs;   /* us; 0: as on a stream */
    bool lucky;              /* ring with LL seems fast, but once only */
    int tires_after; /* passes of the fast way, then it takes 103 us; 0: never */
    int fails_after; /* calls; 0: never */
    int calls, lucky_calls, fast_calls, screened;
};

static bool is_same_way(const struct mu_tune_row *a, const struct mu_tune_row *b)
{
    return a->algo == b->algo && a->proto == b->proto && a->channels == b->channels;
}

static double time_of(struct machine *m, const struct mu_tune_row *row)
{
    bool graph = row->form == MU_TUNE_GRAPH;

    if (m->fast.us > 0 && is_same_way(row, &m->fast) && row->bytes >= m->fast.bytes) {
        if (m->tires_after && m->fast_calls > m->tires_after)
            return 103;
        return graph && m->fast_in_graphs > 0 ? m->fast_in_graphs : m->fast.us;
    }
    if (m->lucky && row->algo == MU_TUNE_RING && row->proto == MU_TUNE_LL &&
        row->channels == 0)
        return m->lucky_calls <= 1 ? 40 : 101;
    return 130;
}

static int measure(void *arg, struct mu_tune_row *rows, int n, bool screen,
                   struct mu_err *err)
{
    struct machine *m = arg;

    m->calls++;
    m->screened += screen;
    if (m->fails_after && m->calls > m->fails_after)
        return mu_err_set(err, 5, "the GPU is gone");
    if (rows->algo != MU_TUNE_RING && rows->algo != MU_TUNE_TREE)
        return 1;
    m->fast_calls += is_same_way(rows, &m->fast);
    m->lucky_calls +=
        rows->algo == MU_TUNE_RING && rows->proto == MU_TUNE_LL && rows->channels == 0;
    assert_int_equal(n, 2);
    assert_int_equal(rows[0].form, MU_TUNE_STREAM);
    assert_int_equal(rows[1].form, MU_TUNE_GRAPH);
    assert_true(is_same_way(&rows[0], &rows[1]));
    for (int i = 0; i < n; i++) {
        rows[i].default_us = 100;
        rows[i].us = time_of(m, &rows[i]);
    }
    return 0;
}

static struct mu_tune_search search_of(struct machine *m, uint64_t min, uint64_t max)
{
    return (struct mu_tune_search){
        .func = MU_TUNE_ALLREDUCE,
        .min = min,
        .max = max,
        .ranks = 2,
        .nodes = 1,
        .nccl = 22803,
        .forms = { [MU_TUNE_STREAM] = true, [MU_TUNE_GRAPH] = true },
        .arg = m,
        .measure = measure
    };
}

/* What NCCL takes after the table has been written and read. */
static int spans_of(const struct mu_tune *t, struct mu_tune_span **spans)
{
    char *text = mu_tune_format(t);
    struct mu_err err = { 0 };
    struct mu_tune read;
    int n;

    assert_non_null(text);
    if (mu_tune_parse(&read, text, "table", &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(read.n, t->n);
    assert_int_equal(read.nccl, t->nccl);
    for (int i = 0; i < t->n; i++) {
        assert_int_equal(read.rows[i].bytes, t->rows[i].bytes);
        assert_true(is_same_way(&read.rows[i], &t->rows[i]));
        assert_true(read.rows[i].us == t->rows[i].us);
        assert_int_equal(read.rows[i].form, t->rows[i].form);
    }
    n = mu_tune_spans(&read, 2, 1, spans);
    mu_tune_clear(&read);
    free(text);
    return n;
}

static void what_is_faster_in_every_pass_is_taken_from_its_size_on(void **state)
{
    struct machine m = { .fast = { .algo = MU_TUNE_TREE,
                                   .proto = MU_TUNE_LL128,
                                   .channels = 16,
                                   .bytes = MIB,
                                   .us = 60.125 } };
    struct mu_tune_search s = search_of(&m, 256 * KIB, 4 * MIB);
    const struct mu_tune_span *way;
    struct mu_tune_span *spans;
    struct mu_err err = { 0 };
    struct mu_tune t;
    int n, rows = 0;

    assert_int_equal(mu_tune_search(&s, &t, &err), 0);
    for (int i = 0; i < t.n; i++)
        rows += is_same_way(&t.rows[i], &m.fast) && t.rows[i].bytes == MIB;
    assert_int_equal(rows, 2 * MU_TUNE_PASSES);
    n = spans_of(&t, &spans);
    assert_null(mu_tune_find(spans, n, MU_TUNE_ALLREDUCE, 512 * KIB));
    assert_null(mu_tune_find(spans, n, MU_TUNE_ALLREDUCE, MIB - 4));
    for (uint64_t bytes = MIB; bytes <= 4 * MIB; bytes += MIB / 2) {
        way = mu_tune_find(spans, n, MU_TUNE_ALLREDUCE, bytes);
        assert_non_null(way);
        assert_int_equal(way->algo, MU_TUNE_TREE);
        assert_int_equal(way->proto, MU_TUNE_LL128);
        assert_int_equal(way->channels, 16);
    }
    free(spans);
    mu_tune_clear(&t);
}

static void what_was_faster_once_is_left_to_nccl(void **state)
{
    struct machine m = { .lucky = true };
    struct mu_tune_search s = search_of(&m, 64 * KIB, 64 * KIB);
    struct mu_tune_span *spans;
    struct mu_err err = { 0 };
    struct mu_tune t;

    assert_int_equal(mu_tune_search(&s, &t, &err), 0);
    assert_int_equal(m.lucky_calls, 2); /* then it is given up */
    assert_int_equal(spans_of(&t, &spans), 0);
    free(spans);
    mu_tune_clear(&t);
}

/* The fast way at 64 KiB alone: what its forms take, and whether it is taken. */
static void every_form_is_at_least_as_fast(void **state)
{
    static const struct {
        const char *name;
        double stream, graph;
        bool taken;
    } rows[] = {
        { "faster in both", 80, 80, true },
        { "faster on a stream, alike in a graph", 80, 100, true },
        { "the host hides it on a stream, faster in a graph", 101.9, 80, true },
        { "faster on a stream, slower in a graph", 50, 102.1, false },
        { "faster in a graph, slower on a stream", 102.1, 50, false },
        { "alike in both", 98.1, 98.1, false },
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct machine m = { .fast = { .algo = MU_TUNE_RING,
                                       .proto = MU_TUNE_LL128,
                                       .channels = 2,
                                       .us = rows[i].stream },
                             .fast_in_graphs = rows[i].graph };
        struct mu_tune_search s = search_of(&m, 64 * KIB, 64 * KIB);
        struct mu_tune_span *spans;
        struct mu_err err = { 0 };
        struct mu_tune t;

        assert_int_equal(mu_tune_search(&s, &t, &err), 0);
        if (spans_of(&t, &spans) != rows[i].taken)
            fail_msg("%s", rows[i].name);
        free(spans);
        mu_tune_clear(&t);
    }
}

/* The check of the table is the last pass. */
static void what_fails_the_check_is_left_to_nccl(void **state)
{
    struct machine m = { .fast = { .algo = MU_TUNE_RING,
                                   .proto = MU_TUNE_LL128,
                                   .channels = 2,
                                   .us = 30 },
                         .tires_after = MU_TUNE_PASSES - 1 };
    struct mu_tune_search s = search_of(&m, 64 * KIB, 64 * KIB);
    struct mu_tune_span *spans;
    struct mu_err err = { 0 };
    struct mu_tune t;

    assert_int_equal(mu_tune_search(&s, &t, &err), 0);
    assert_int_equal(m.fast_calls, MU_TUNE_PASSES);
    assert_int_equal(m.calls - m.screened, MU_TUNE_PASSES - 1);
    assert_int_equal(spans_of(&t, &spans), 0);
    free(spans);
    mu_tune_clear(&t);
}

static void no_way_is_listed_twice_and_each_fits_its_function(void **state)
{
    static const int funcs[] = { MU_TUNE_BROADCAST, MU_TUNE_REDUCE, MU_TUNE_ALLGATHER,
                                 MU_TUNE_REDUCE_SCATTER, MU_TUNE_ALLREDUCE };
    static const uint64_t sizes[] = { 1, KIB, 64 * KIB, MIB, 1024 * MIB };

    for (int f = 0; f < 5; f++)
        for (int i = 0; i < 5; i++) {
            struct mu_tune_row row = { .func = funcs[f], .bytes = sizes[i] };
            bool seen[MU_TUNE_ALGOS][MU_TUNE_PROTOS][65] = { 0 };
            int at = 0, n = 0;

            for (; mu_tune_next_way(&at, &row); n++) {
                assert_false(seen[row.algo][row.proto][row.channels]);
                seen[row.algo][row.proto][row.channels] = true;
                if (row.algo == MU_TUNE_TREE)
                    assert_int_equal(row.func, MU_TUNE_ALLREDUCE);
                if (row.algo == MU_TUNE_PAT)
                    assert_true(row.func == MU_TUNE_ALLGATHER ||
                                row.func == MU_TUNE_REDUCE_SCATTER);
            }
            assert_true(n >= 9 && n <= 60);
            for (int p = 0; p < MU_TUNE_PROTOS; p++)
                assert_true(seen[MU_TUNE_RING][p][0]);
            if (sizes[i] == 1024 * MIB)
                assert_true(seen[MU_TUNE_RING][MU_TUNE_SIMPLE][32]);
        }
}

/* All sizes from 1 B to 1 TiB fit, also where every way wins. */
static void a_table_of_all_sizes_is_not_too_long(void **state)
{
    struct machine m = { 0 };
    struct mu_tune_search s = search_of(&m, 1, (uint64_t)1 << 40);
    struct mu_err err = { 0 };
    struct mu_tune t;

    assert_int_equal(mu_tune_search(&s, &t, &err), 0);
    assert_true(t.n * MU_TUNE_PASSES <= MU_TUNE_ROWS);
    mu_tune_clear(&t);
}

static void a_failure_ends_the_search_and_leaves_the_table(void **state)
{
    struct machine m = { .fails_after = 10 };
    struct mu_tune_search s = search_of(&m, KIB, MIB);
    struct mu_tune t = { .n = 77 };
    struct mu_err err = { 0 };

    assert_int_equal(mu_tune_search(&s, &t, &err), -1);
    assert_string_equal(err.text, "the GPU is gone");
    assert_int_equal(m.calls, 11);
    assert_int_equal(t.n, 77);
}

static void the_summary_has_a_line_for_each_size(void **state)
{
    struct machine m = { .fast = { .algo = MU_TUNE_TREE,
                                   .proto = MU_TUNE_LL128,
                                   .channels = 16,
                                   .bytes = MIB,
                                   .us = 60.125 } };
    struct mu_tune_search s = search_of(&m, 512 * KIB, 2 * MIB);
    struct mu_err err = { 0 };
    struct mu_tune t;
    char *text;

    assert_int_equal(mu_tune_search(&s, &t, &err), 0);
    t.rows[t.n - 1].us = 61.5; /* the last pass of the largest size */
    text = mu_tune_summary(&t);
    assert_string_equal(
        text, "# 524288 bytes: NCCL's own choice: stream 100.0 us, graph 100.0 us\n"
              "# 1048576 bytes: TREE LL128 16 channels: stream 60.1 us instead of "
              "100.0, graph 60.1 us instead of 100.0\n"
              "# 2097152 bytes: TREE LL128 16 channels: stream 60.1 us instead of "
              "100.0, graph 61.5 us instead of 100.0\n");
    free(text);
    mu_tune_clear(&t);
}

static int nothing_works(void *arg, struct mu_tune_row *rows, int n, bool screen,
                         struct mu_err *err)
{
    return 1;
}

static void no_usable_way_is_an_error(void **state)
{
    struct mu_tune_search s = search_of(NULL, KIB, MIB);
    struct mu_err err = { 0 };
    struct mu_tune t;

    s.measure = nothing_works;
    assert_int_equal(mu_tune_search(&s, &t, &err), -1);
    assert_string_equal(err.text, "NCCL used none of the ways of AllReduce here");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_faster_in_every_pass_is_taken_from_its_size_on),
        cmocka_unit_test(what_was_faster_once_is_left_to_nccl),
        cmocka_unit_test(every_form_is_at_least_as_fast),
        cmocka_unit_test(what_fails_the_check_is_left_to_nccl),
        cmocka_unit_test(no_way_is_listed_twice_and_each_fits_its_function),
        cmocka_unit_test(a_table_of_all_sizes_is_not_too_long),
        cmocka_unit_test(a_failure_ends_the_search_and_leaves_the_table),
        cmocka_unit_test(the_summary_has_a_line_for_each_size),
        cmocka_unit_test(no_usable_way_is_an_error),
    };

    return cmocka_run_group_tests_name("tune_search", tests, NULL, NULL);
}
