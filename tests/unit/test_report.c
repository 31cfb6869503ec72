/* SPDX-License-Identifier: BSD-3-Clause */
/* test_report.c - a run's file read whole or refused, and the speedup table's figures
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "runtime/tools/plot.h"
#include "runtime/tools/report.h"

static char path[64] = "/tmp/muster-report-XXXXXX";

static json_t *good(void)
{
    json_t *json = json_pack(
        "{s:s, s:i, s:s, s:s, s:s, s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, "
        "s:i}",
        "format", "muster-train", "version", 1, "model", "mlp <&>", "dtype", "fp32",
        "devices", "CPU ranks, fake GPUs", "backend", "host", "transport",
        "shared memory", "ranks", 2, "nodes", 1, "machines", 1, "cores", 2, "epochs", 1,
        "samples", 600, "samples_seen", 600, "batch", 32, "effective_batch", 64);

    json_object_update_new(
        json,
        json_pack("{s:i, s:f, s:f, s:f, s:f, s:f, s:b, s:[f, f, f], s:[[i, f, f], "
                  "[i, f, f], [i, f, f]]}",
                  "steps", 3, "seconds", 10.0, "cpu_seconds", 19.0, "loss", 0.5,
                  "test_loss", 0.6, "test_accuracy", 0.87, "finished", 1, "losses", 3.0,
                  2.0, 0.5, "moments", 1, 3.0, 3.0, 2, 6.0, 2.0, 3, 10.0, 0.5));
    json_object_set_new(
        json, "by_rank",
        json_pack("[{s:s, s:s, s:f, s:f, s:f, s:f}, {s:s, s:s, s:f, s:f, s:f, s:f}]",
                  "host", "n1", "cpus", "0", "seconds", 10.0, "cpu_seconds", 9.0,
                  "sync_seconds", 1.0, "checkpoint_stall_seconds", 0.5, "host", "n1",
                  "cpus", "1", "seconds", 10.0, "cpu_seconds", 10.0, "sync_seconds",
                  2.0, "checkpoint_stall_seconds", 0.0));
    return json;
}

static int load(json_t *json, struct mu_run *run, struct mu_err *err)
{
    assert_non_null(json);
    assert_int_equal(json_dump_file(json, path, 0), 0);
    json_decref(json);
    return mu_run_load(run, path, err);
}

static void a_good_file_is_read(void **state)
{
    struct mu_err err = { 0 };
    struct mu_run run;

    if (load(good(), &run, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(run.ranks, 2);
    assert_int_equal(run.samples_seen, 600);
    assert_true(run.finished);
    assert_string_equal(run.by_rank[1].cpus, "1");
    assert_true(run.by_rank[1].sync_seconds == 2);
    assert_int_equal(run.nmoments, 3);
    assert_int_equal(run.nlosses, 3);
    assert_true(run.losses[2] == 0.5);
    mu_run_clear(&run);
}

static void each_missing_field_is_named(void **state)
{
    json_t *all = good(), *value;
    const char *key;

    json_object_foreach(all, key, value)
    {
        json_t *json = good();
        struct mu_err err = { 0 };
        struct mu_run run;

        json_object_del(json, key);
        if (load(json, &run, &err) == 0)
            fail_msg("without '%s': accepted", key);
        if (!strstr(err.text, path))
            fail_msg("without '%s': '%s' does not name the file", key, err.text);
        if (strcmp(key, "format") != 0 && strcmp(key, "version") != 0 &&
            !strstr(err.text, key))
            fail_msg("without '%s': '%s' does not name it", key, err.text);
    }
    json_decref(all);
}

static void wrong_values_are_refused(void **state)
{
    static const struct {
        const char *field, *value;
    } cases[] = {
        { "ranks", "0" },          { "ranks", "3" },          { "ranks", "\"2\"" },
        { "cores", "0" },          { "seconds", "-1" },       { "model", "7" },
        { "finished", "1" },       { "moments", "[[1, 2]]" }, { "by_rank", "[{}, {}]" },
        { "format", "\"other\"" }, { "version", "2" },        { "losses", "{}" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_t *json = good();
        struct mu_err err = { 0 };
        struct mu_run run;

        json_object_set_new(json, cases[i].field,
                            json_loads(cases[i].value, JSON_DECODE_ANY, NULL));
        if (load(json, &run, &err) == 0)
            fail_msg("%s = %s: accepted", cases[i].field, cases[i].value);
    }
}

/* Only what the table looks at. */
static struct mu_run run_of(const char *name, int ranks, int nodes, double seconds,
                            int cores)
{
    return (struct mu_run){ .path = name,
                            .model = "mlp",
                            .dtype = "fp32",
                            .ranks = ranks,
                            .nodes = nodes,
                            .cores = cores,
                            .epochs = 1,
                            .seconds = seconds,
                            .samples_seen = 60000,
                            .finished = true };
}

static void the_table_has_the_tutorials_figures(void **state)
{
    struct mu_run runs[] = {
        run_of("c", 4, 1, 90, 4),
        run_of("a", 1, 1, 362.45, 1),
        run_of("d", 8, 2, 60, 8),
        run_of("b", 4, 1, 100.46, 4),
    };
    struct mu_speedup *table;
    struct mu_err err = { 0 };
    char *text = NULL;
    size_t len;
    FILE *to;

    assert_int_equal(mu_speedup_make(runs, 4, &table, &err), 3);
    assert_int_equal(table[0].ranks, 1);
    assert_int_equal(table[1].runs, 2);
    assert_true(fabs(table[1].seconds - 95.23) < 1e-9);
    assert_true(fabs(table[1].speedup - 3.806) < 1e-3);
    assert_true(fabs(table[1].efficiency - 0.9515) < 1e-3);
    assert_int_equal(table[2].nodes, 2);
    to = open_memstream(&text, &len);
    mu_speedup_text(table, 3, "CPU ranks, fake GPUs", to);
    fclose(to);
    assert_non_null(strstr(text, "SPEEDUP ANALYSIS (CPU ranks, fake GPUs)\n"));
    assert_non_null(strstr(text, "Baseline (1 rank, 1 node): 362.45 seconds\n"));
    assert_non_null(strstr(text,
                           "4 ranks, 1 node:\n  Average time: 95.23 seconds (2 runs)\n"
                           "  Speedup: 3.81x\n  Parallel efficiency: 95.2%\n"
                           "  Cores used: 4\n  Efficiency per core: 95.2%\n"));
    free(text);
    free(table);
}

static void two_cores_for_four_ranks_show_as_they_are(void **state)
{
    struct mu_run runs[] = { run_of("a", 1, 1, 100, 1), run_of("b", 4, 1, 52, 2) };
    struct mu_speedup *table;

    assert_int_equal(mu_speedup_make(runs, 2, &table, NULL), 2);
    assert_true(fabs(table[1].efficiency - 100.0 / 52 / 4) < 1e-12);
    assert_true(fabs(table[1].core_efficiency - 100.0 / 52 / 2) < 1e-12);
    free(table);
}

static void runs_of_other_work_are_not_compared(void **state)
{
    struct mu_run base = run_of("a", 1, 1, 100, 1), other = run_of("b", 4, 1, 30, 4);
    struct mu_speedup *table;
    struct mu_err err = { 0 };

    for (int k = 0; k < 5; k++) {
        struct mu_run runs[2] = { base, other };

        switch (k) {
        case 0:
            runs[1].model = "cnn";
            break;
        case 1:
            runs[1].dtype = "fp64";
            break;
        case 2:
            runs[1].samples_seen = 120000;
            break;
        case 3:
            runs[1].finished = false;
            break;
        case 4:
            runs[0].seconds = 0;
            break;
        }
        if (mu_speedup_make(runs, 2, &table, &err) >= 0)
            fail_msg("case %d: accepted", k);
    }
    other.samples_seen = 60003; /* padding */
    struct mu_run runs[2] = { base, other };
    assert_int_equal(mu_speedup_make(runs, 2, &table, &err), 2);
    free(table);
    assert_int_equal(mu_speedup_make(runs, 0, &table, &err), -1);
}

static void the_page_holds_its_plots_and_escapes_names(void **state)
{
    struct mu_run run;
    char *text = NULL;
    size_t len;
    FILE *to = open_memstream(&text, &len);

    assert_int_equal(load(good(), &run, NULL), 0);
    mu_report_html(&run, to);
    fclose(to);
    assert_non_null(strstr(text, "mlp &lt;&amp;&gt;"));
    assert_null(strstr(text, "mlp <"));
    /* loss: steps 0, 1, 2 from left to right, 3.0 at the top */
    assert_non_null(strstr(text, "points=\"60.0,30.0 342.5,93.3 625.0,188.3 \""));
    assert_non_null(strstr(text, "waiting for checkpoints"));
    assert_non_null(strstr(text, "</html>"));
    free(text);
    mu_run_clear(&run);
}

static void a_plot_without_points_says_so(void **state)
{
    double x[2] = { 1, 1 }, y[2] = { NAN, 5 };
    char *text = NULL;
    size_t len;
    FILE *to = open_memstream(&text, &len);

    mu_plot_line("t", "x", "y", x, y, 2, to);
    fclose(to);
    assert_non_null(strstr(text, "too few points"));
    free(text);
}

static void the_text_gives_each_ranks_share(void **state)
{
    struct mu_run run;
    char *text = NULL;
    size_t len;
    FILE *to = open_memstream(&text, &len);

    assert_int_equal(load(good(), &run, NULL), 0);
    mu_report_text(&run, to);
    fclose(to);
    assert_non_null(strstr(text, "10.00 s, 60 samples/s, 1.90 cores busy"));
    assert_non_null(strstr(text,
                           "     1  n1               1                10.00     10.00 "
                           "      20.0         0.00\n"));
    free(text);
    mu_run_clear(&run);
}

static void what_gpus_hide_is_not_made_up(void **state)
{
    struct mu_run runs[] = { run_of("a", 1, 1, 100, 16), run_of("b", 2, 1, 52, 16) };
    struct mu_speedup *table;
    struct mu_run run;
    char *text = NULL;
    size_t len;
    FILE *to = open_memstream(&text, &len);
    json_t *json = good();

    json_object_set_new(json_array_get(json_object_get(json, "by_rank"), 0),
                        "sync_seconds", json_real(-1));
    assert_int_equal(load(json, &run, NULL), 0);
    mu_report_text(&run, to);
    assert_int_equal(mu_speedup_make(runs, 2, &table, NULL), 2);
    mu_speedup_text(table, 2, "GPUs", to);
    fclose(to);
    assert_non_null(strstr(text, "9.00          -         5.00\n"));
    assert_non_null(strstr(text, "Speedup: 1.92x\n"));
    assert_null(strstr(text, "per core"));
    json = mu_report_json(&run);
    assert_true(json_is_null(json_object_get(
        json_array_get(json_object_get(json, "by_rank"), 0), "exposed_percent")));
    json_decref(json);
    free(text);
    free(table);
    mu_run_clear(&run);
}

static int made(void **state)
{
    int fd = mkstemp(path);

    return fd < 0 ? -1 : close(fd);
}

static int gone(void **state)
{
    return unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_good_file_is_read),
        cmocka_unit_test(each_missing_field_is_named),
        cmocka_unit_test(wrong_values_are_refused),
        cmocka_unit_test(the_table_has_the_tutorials_figures),
        cmocka_unit_test(two_cores_for_four_ranks_show_as_they_are),
        cmocka_unit_test(runs_of_other_work_are_not_compared),
        cmocka_unit_test(the_page_holds_its_plots_and_escapes_names),
        cmocka_unit_test(a_plot_without_points_says_so),
        cmocka_unit_test(what_gpus_hide_is_not_made_up),
        cmocka_unit_test(the_text_gives_each_ranks_share),
    };

    return cmocka_run_group_tests(tests, made, gone);
}
