/* SPDX-License-Identifier: BSD-3-Clause */
/* test_bench_tune.c - muster bench tune from its forked ranks to the table, with the
 * tuner plugin itself and a made-up NCCL
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "runtime/core/tune_table.h"
#include "runtime/tools/bench.h"
#include "tests/unit/fake_tuned.h"

#define KIB ((uint64_t)1 << 10)

static char printed[1 << 16], complaints[1 << 12];

static int body(struct muster *m, const struct bench_options *options, double init_ms)
{
    struct bench b = { .options = options, .m = m };
    int rc = bench_tune(&b);

    muster_finalize(m);
    return rc;
}

static void redirect(int fd, FILE *to, int *saved)
{
    assert_non_null(to);
    *saved = dup(fd);
    dup2(fileno(to), fd);
}

static void restore(int fd, FILE *from, int saved, char *text, size_t len)
{
    dup2(saved, fd);
    close(saved);
    rewind(from);
    text[fread(text, 1, len - 1, from)] = '\0';
    fclose(from);
}

static bool graph;

static int tune(uint64_t min, uint64_t max)
{
    const struct bench_options options = { .kind = "tune",
                                           .tuned = "allreduce",
                                           .path = "auto",
                                           .min = min,
                                           .max = max,
                                           .ranks = 2,
                                           .batches = 3,
                                           .graph = graph,
                                           .check = true };
    FILE *out = tmpfile(), *err = tmpfile();
    int saved_out, saved_err, rc;

    fflush(stdout);
    redirect(1, out, &saved_out);
    redirect(2, err, &saved_err);
    rc = bench_start(&options, body);
    restore(1, out, saved_out, printed, sizeof printed);
    restore(2, err, saved_err, complaints, sizeof complaints);
    return rc;
}

static int setup(void **state)
{
    unsetenv("NCCL_ALGO");
    unsetenv("MUSTER_TUNER");
    return setenv("NCCL_TUNER_PLUGIN", TUNER, 1);
}

static void the_table_has_what_is_faster_each_time(void **state)
{
    const struct mu_tune_span *way;
    struct mu_tune_span *spans;
    struct mu_err err = { 0 };
    struct mu_tune t;
    int n;

    if (tune(64 * KIB, 4096 * KIB) != 0)
        fail_msg("%s", complaints);
    assert_string_equal(complaints, "");
    if (mu_tune_parse(&t, printed, "table", &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(t.nccl, 22803);
    assert_int_equal(t.rows[0].ranks, 2);
    assert_int_equal(t.rows[0].nodes, 1);
    n = mu_tune_spans(&t, 2, 1, &spans);
    way = mu_tune_find(spans, n, MU_TUNE_ALLREDUCE, 100 * KIB);
    assert_non_null(way);
    assert_int_equal(way->algo, MU_TUNE_RING);
    assert_int_equal(way->proto, MU_TUNE_LL);
    assert_int_equal(way->channels, 0);
    assert_null(mu_tune_find(spans, n, MU_TUNE_ALLREDUCE, 512 * KIB));
    way = mu_tune_find(spans, n, MU_TUNE_ALLREDUCE, 2048 * KIB);
    assert_non_null(way);
    assert_int_equal(way->proto, MU_TUNE_SIMPLE);
    assert_int_equal(way->channels, 16);
    assert_non_null(strstr(printed,
                           "# 65536 bytes: RING LL: stream 10.0 us instead of 20.0, "
                           "graph 10.0 us instead of 20.0\n"));
    assert_non_null(strstr(printed,
                           "# 524288 bytes: NCCL's own choice: stream 20.0 us, "
                           "graph 20.0 us\n"));
    free(spans);
    mu_tune_clear(&t);
}

/* A launch of 25 us hides 10 us of LL and 20 us of NCCL's own choice. */
static void a_graph_shows_what_launches_hide(void **state)
{
    fake_tuned_launch(25);
    assert_int_equal(tune(64 * KIB, 64 * KIB), 0);
    assert_non_null(strstr(printed,
                           "# 65536 bytes: RING LL: stream 25.0 us instead of 25.0, "
                           "graph 10.0 us instead of 20.0\n"));
    graph = true;
    assert_int_equal(tune(64 * KIB, 64 * KIB), 0);
    graph = false;
    fake_tuned_launch(0);
    assert_string_equal(complaints, "");
    assert_non_null(strstr(printed, "# 65536 bytes: RING LL: graph 10.0 us instead of "
                                    "20.0\n"));
}

/* One table serves calls on streams and in graphs. */
static void what_is_slower_in_graphs_is_left_to_nccl(void **state)
{
    fake_tuned_graph(21);
    assert_int_equal(tune(64 * KIB, 64 * KIB), 0);
    fake_tuned_graph(0);
    assert_string_equal(complaints, "");
    assert_non_null(strstr(printed, "\tRING\tLL\t0\t10.000\t20.000\tstream\n"));
    assert_non_null(strstr(printed, "\tRING\tLL\t0\t21.000\t20.000\tgraph\n"));
    assert_non_null(strstr(printed, "# 65536 bytes: NCCL's own choice: stream 20.0 us, "
                                    "graph 20.0 us\n"));
}

static void what_cannot_be_measured_is_one_sentence(void **state)
{
    static const struct {
        const char *name, *value, *sentence;
    } cases[] = {
        { "NCCL_ALGO", "Ring",
          "muster bench: NCCL_ALGO and NCCL_PROTO decide what tune is to measure; "
          "unset "
          "them\n" },
        { "NCCL_TUNER_PLUGIN", "/nonexistent/x.so",
          "muster bench: /nonexistent/x.so is not this Muster's tuner plugin: " },
        { "NCCL_TUNER_PLUGIN", "muster",
          "muster bench: /nonexistent/libnccl-tuner-muster.so is not this Muster's " },
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        setup(state);
        setenv(cases[i].name, cases[i].value, 1);
        assert_int_equal(tune(64 * KIB, 64 * KIB), 2);
        assert_string_equal(printed, "");
        if (strncmp(complaints, cases[i].sentence, strlen(cases[i].sentence)) != 0)
            fail_msg("%s", complaints);
        assert_ptr_equal(strchr(complaints, '\n'), complaints + strlen(complaints) - 1);
    }
    unsetenv("NCCL_ALGO");
}

static void a_way_that_hangs_is_named_with_its_rank(void **state)
{
    fake_tuned_hang(0, 128 * KIB);
    assert_int_equal(tune(64 * KIB, 128 * KIB), MUSTER_ETIMEOUT);
    fake_tuned_hang(-1, 0);
    assert_string_equal(printed, "");
    assert_non_null(strstr(complaints,
                           "muster bench: rank 0: AllReduce of 131072 bytes "
                           "by RING LL with 0 channels takes longer than "
                           "1 s; leave the size out with --min or --max"));
}

static void an_nccl_without_tuners_is_reported(void **state)
{
    fake_tuned_old();
    assert_int_equal(tune(64 * KIB, 64 * KIB), MUSTER_EINTERNAL);
    assert_non_null(strstr(complaints, "NCCL 2.28.3 did not load the tuner plugin"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(f) cmocka_unit_test_setup(f, setup)
        TEST(the_table_has_what_is_faster_each_time),
        TEST(a_graph_shows_what_launches_hide),
        TEST(what_is_slower_in_graphs_is_left_to_nccl),
        TEST(what_cannot_be_measured_is_one_sentence),
        TEST(a_way_that_hangs_is_named_with_its_rank),
        TEST(an_nccl_without_tuners_is_reported),
    };

    return cmocka_run_group_tests_name("bench_tune", tests, NULL, NULL);
}
