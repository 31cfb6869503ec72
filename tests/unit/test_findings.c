/* SPDX-License-Identifier: BSD-3-Clause */
/* test_findings.c - what muster report makes of ledgers of trainings that go wrong in
 * one way each
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "runtime/tools/monitor.h"
#include "runtime/tools/profile.h"
#include "runtime/tools/samples.h"
#include "tests/unit/folder.h"
#include "tests/unit/ledgers.h"
#include "tests/unit/printed.h"

#define RANKS 4
#define STEPS 120

static char folder[64];

static void load(struct mu_profile *p, const struct training *t)
{
    char *paths[] = { folder };

    assert_int_equal(ledgers_write(folder, t), 0);
    assert_int_equal(mu_profile_load(p, paths, 1, NULL, stderr), 0);
    assert_int_equal(p->faults, 0);
}

static const struct mu_finding *find(const struct mu_profile *p, const char *rule)
{
    for (int i = 0; i < p->nfindings; i++)
        if (strcmp(p->findings[i].rule, rule) == 0)
            return &p->findings[i];
    return NULL;
}

static int setup(void **state)
{
    return mkdtemp(strcpy(folder, "/tmp/muster-findings-XXXXXX")) ? 0 : -1;
}

static int teardown(void **state)
{
    return folder_remove(folder);
}

static int near(double value, double want)
{
    return value > want * 0.99 && value < want * 1.01;
}

static void steps_are_found_and_a_sound_training_has_no_finding(void **state)
{
    struct training t = sound_training;

    for (t.losses = 0; t.losses < 2; t.losses++) {
        struct mu_profile p;

        t.gpus = t.losses;
        load(&p, &t);
        assert_true((p.nsamples > 0) == (t.gpus > 0));
        for (int i = 0; i < p.nfindings; i++)
            fail_msg("%s: %s", p.findings[i].rule, p.findings[i].text);
        assert_int_equal(p.steps.period, t.buckets);
        assert_true(p.steps.n == STEPS - 1);
        assert_true(near(p.steps.median.took, 5000 + 9000 + 200 + 100));
        assert_true(near(p.steps.median.busy, 6 * 200));
        assert_true(near(p.steps.median.compute, 5000 + 9000 / 6 + 100));
        assert_true(p.steps.median.wait == 0);
        mu_profile_clear(&p);
    }
}

static void
a_training_that_is_timed_in_windows_has_the_steps_of_one_that_is_timed(void **state)
{
    struct training t = sound_training;
    struct mu_profile p;
    char *text;

    t.windows = 4; /* of 120 steps 0 to 9, 40 to 49, 80 to 89 are timed */
    load(&p, &t);
    for (int i = 0; i < p.nfindings; i++)
        fail_msg("%s: %s", p.findings[i].rule, p.findings[i].text);
    assert_int_equal(p.steps.n, STEPS - 1);
    assert_true(p.steps.timed >= 27 && p.steps.timed <= 30);
    assert_true(near(p.steps.median.took, 5000 + 9000 + 200 + 100));
    assert_true(near(p.steps.median.busy, 6 * 200));
    assert_true(near(p.steps.median.compute, 5000 + 9000 / 6 + 100));
    for (int i = 0; i < p.steps.n; i++)
        assert_true(p.steps.step[i].took > 14000 && p.steps.step[i].took < 15000);
    for (int r = 0; r < p.nrows; r++) {
        assert_int_equal(p.rows[r].calls, STEPS);
        assert_int_equal(p.rows[r].unfinished, 0);
        assert_true(near(p.rows[r].median, 200));
        assert_true(near(p.rows[r].total, STEPS * 200)); /* as if all had times */
    }
    text = printed(mu_profile_text, &p);
    has(text, "2160 of 2880 records have no times of the GPU");
    free(text);
    for (int f = 0; f < p.nfiles; f++) {
        double share = p.parts[f].busy / p.parts[f].span;

        assert_true(share > 0.08 && share < 0.09); /* 1.2 of 14.3 ms */
    }
    mu_profile_clear(&p);

    t.late = 2; /* what is late is so in the steps that are timed */
    t.late_us = 900;
    load(&p, &t);
    assert_non_null(find(&p, "straggler"));
    assert_non_null(strstr(find(&p, "straggler")->text, "rank 2 (n1) was last in"));
    assert_true(find(&p, "straggler")->value > 0.2); /* 5.4 of 19.7 ms */
    mu_profile_clear(&p);
}

static void the_monitor_looks_back_to_the_last_window(void **state)
{
    struct training t = sound_training;
    struct mu_monitor m = { 0 };
    char *folders[] = { folder };

    t.windows = t.steps = 1000; /* the last of 6000 calls were timed 5940 calls ago */
    assert_int_equal(ledgers_write(folder, &t), 0);
    assert_int_equal(mu_monitor_look(&m, folders, 1, stderr), 0);
    assert_int_equal(m.nranks, RANKS);
    for (int r = 0; r < RANKS; r++) {
        assert_true(m.rank[r].busbw > 0);
        assert_true(m.rank[r].share > 0.07 && m.rank[r].share < 0.1);
    }
    mu_monitor_clear(&m);
}

/* Each row is the sound training with one change. */
static const struct {
    const char *rule, *text;
    struct training t;
} faults[] = {
#define TRAINING(b, size, us, f, ...)                                                  \
    {                                                                                  \
        .ranks = RANKS, .steps = STEPS, .buckets = (b), .bytes = (size),               \
        .exchange = (us), .forward = (f), .backward = 2 * (f), __VA_ARGS__             \
    }
    { "communication", "even on rank",
      TRAINING(6, 25 << 20, 1200, 5000, .channels = 16) },
    { "pitfall 3: small batch per GPU", "longer than computation",
      TRAINING(6, 25 << 20, 4000, 500, .channels = 16) },
    { "straggler", "rank 2 (n1) was last in 99 of steps 20 to 118, since 0.3",
      TRAINING(6, 25 << 20, 200, 5000, .late = 2, .from = 20, .late_us = 900) },
    { "straggler", "; it has 2 CPUs, the others 8",
      TRAINING(6, 25 << 20, 200, 5000, .late = 2, .from = 20, .late_us = 900,
               .cpus = 8) },
    { "straggler", "; its CPUs are at NUMA node 1, its GPU is at node 0",
      TRAINING(6, 25 << 20, 200, 5000, .late = 2, .from = 20, .late_us = 900,
               .remote = 1) },
    { "straggler", "; its NIC is mlx5_3, that of the others mlx5_0",
      TRAINING(6, 25 << 20, 200, 5000, .late = 2, .from = 20, .late_us = 900,
               .nic = "mlx5_3") },
    /* all that differs; the GPU since it was late: before it was as fast as others */
    { "straggler", "; it has 2 CPUs, the others 8; its NIC is mlx5_3, that of",
      TRAINING(6, 25 << 20, 200, 5000, .late = 2, .from = 20, .late_us = 900, .cpus = 8,
               .nic = "mlx5_3") },
    { "straggler",
      "; its GPU runs at 1200 MHz, the others at 1980; its GPU takes 300 W",
      TRAINING(6, 25 << 20, 200, 5000, .late = 2, .from = 98, .late_us = 1200,
               .gpus = 1, .mhz = 1200, .watts = 300) },
    { "straggler",
      "time; its GPU runs at 1200 MHz, the others at 1980; its GPU takes 300 W, the "
      "others 600; its GPU is busy 42 % of the time, the others 97 %; its CPUs are at "
      "NUMA node 1, its GPU is at node 0, most others are near theirs; it has 2 CPUs, "
      "the others 8; its NIC is mlx5_3, that of the others mlx5_0; its launches take "
      "30 us, the others' 8",
      TRAINING(6, 25 << 20, 200, 5000, .late = 2, .from = 20, .late_us = 900, .gpus = 1,
               .mhz = 1200, .watts = 300, .busy = 42, .remote = 1, .cpus = 8,
               .nic = "mlx5_3", .launch = 8, .late_launch = 30) },
    { "straggler", "time; its GPU takes 450 W, the others 600; its GPU is busy 71 % of",
      TRAINING(6, 25 << 20, 200, 5000, .late = 2, .from = 20, .late_us = 900, .gpus = 1,
               .mhz = 1800, .watts = 450, .busy = 71) },
    { "GPU utilization",
      "GPU 0000:03:00.0 of rank 2 (n1) is busy a part of the time: 42 %, below 70 %",
      TRAINING(6, 25 << 20, 200, 5000, .late = 2, .from = 20, .gpus = 1, .busy = 42) },
    { "straggler", "; its launches take 30 us, the others' 8",
      TRAINING(6, 25 << 20, 200, 5000, .late = 2, .from = 20, .late_us = 900,
               .launch = 8, .late_launch = 30) },
    { "GPU utilization",
      "rank 3 (n1) is busy a part of the time: 66 %, below 70 %; so are 3",
      TRAINING(6, 25 << 20, 200, 5000, .gpus = 2, .busy = 69) },
    { "GPU memory unused", "has memory to spare, in use are: 31 %, below 70 %",
      TRAINING(6, 25 << 20, 200, 5000, .late = 2, .from = 20, .gpus = 1,
               .memory = 31) },
    { "GPU memory nearly full", "left, in use are: 97 %, above 95 %",
      TRAINING(6, 25 << 20, 200, 5000, .late = 2, .from = 20, .gpus = 1,
               .memory = 97) },
    { "NUMA", "rank 2 (n1) is on CPUs of NUMA node 1, its GPU 0000:03:00.0 is at",
      TRAINING(6, 25 << 20, 200, 5000, .late = 2, .from = 200, .late_us = 900,
               .remote = 1) },
    { "NUMA", "its GPU 0000:01:00.0 is at node 0; so are 3 more",
      TRAINING(6, 25 << 20, 200, 5000, .remote = 2) },
    { "skew", "longer than they exchange data",
      TRAINING(6, 25 << 20, 200, 5000, .late = 1, .rotates = 1, .late_us = 900) },
    { "loader", "more than twice the median",
      TRAINING(6, 25 << 20, 200, 5000, .starved = 4) },
    { "launches", "on launches of collectives, 400 us each",
      TRAINING(6, 25 << 20, 200, 5000, .launch = 400) },
    { "small buckets", "in 16 collectives of 94 KiB",
      TRAINING(16, 64 << 10, 20, 5000, .launch = 1) },
    { "long tail", "the slowest percent of AllReduce of 26214400 bytes",
      TRAINING(6, 25 << 20, 200, 5000, .slow = 30) },
    { "pitfall 2: no P2P access", "GB/s on the bus",
      TRAINING(6, 25 << 20, 2000, 50000, .channels = 16) },
    { "pitfall 4: not overlapping communication",
      "in 6 collectives that start within 50 us",
      TRAINING(6, 25 << 20, 200, 5000, .burst = 1) },
    { "pitfall 5: wrong NCCL topology", "uses 2 channels only",
      TRAINING(6, 25 << 20, 200, 5000, .channels = 2) },
};

static void each_fault_has_its_finding(void **state)
{
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        const struct mu_finding *f;
        struct mu_profile p;

        load(&p, &faults[i].t);
        f = find(&p, faults[i].rule);
        if (!f)
            fail_msg("%s: not found", faults[i].rule);
        if (!strstr(f->text, faults[i].text))
            fail_msg("%s: %s", faults[i].rule, f->text);
        assert_true(strlen(f->remedy) > 20);
        mu_profile_clear(&p);
    }
}

static void what_looks_alike_but_is_sound_has_no_finding(void **state)
{
    static const struct {
        const char *rule;
        struct training t;
    } cases[] = {
        /* a small model has few buckets */
        { "small buckets", TRAINING(7, 64 << 10, 20, 5000, .launch = 1) },
        /* a network, and host memory, are slower than NVLink */
        { "pitfall 2: no P2P access",
          TRAINING(6, 25 << 20, 2000, 50000, .channels = 16, .nodes = 2) },
        { "pitfall 2: no P2P access",
          TRAINING(6, 25 << 20, 2000, 50000, .channels = 16, .libmuster = 1) },
        /* there the caller does a part of the work */
        { "launches", TRAINING(6, 25 << 20, 200, 5000, .launch = 400, .libmuster = 1) },
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct mu_profile p;

        load(&p, &cases[i].t);
        if (find(&p, cases[i].rule))
            fail_msg("%s: %s", cases[i].rule, find(&p, cases[i].rule)->text);
        mu_profile_clear(&p);
    }
}

/* Ranks 0 and 1 are on n0. */
static void a_late_rank_may_be_alone_on_its_host(void **state)
{
    struct training t = sound_training;
    struct mu_profile p;

    t.ranks = 3;
    t.late = 2;
    t.late_us = 900;
    load(&p, &t);
    assert_non_null(find(&p, "straggler"));
    assert_non_null(strstr(find(&p, "straggler")->text, "; it is alone on its host"));
    mu_profile_clear(&p);
}

/* The last case: what a monitor writes at this moment. */
static void a_file_of_samples_is_read_or_refused_with_one_sentence(void **state)
{
    static const char head[] = "muster-samples 1\n# seconds\n";
    static const struct {
        const char *first, *text, *sentence;
        size_t samples;
    } cases[] = {
        { head, "1.5\tn0\t0:01:00.0\t97\t-\t1980\t800\t1000\n", "", 1 },
        { head, "1.5\tn0\t0:01:00.0\t97\t-\t1980\t800\t1000\tmore\n", "", 1 },
        { "", "", "this is no file of samples: line 1 is not 'muster-samples 1'", 0 },
        { "", "muster-samples 2\n", "this is no file of samples", 0 },
        { head, "1.5\tn0\t0:01:00.0\t97\n", ":3: this line is no sample", 0 },
        { head, "-\tn0\t0:01:00.0\t1\t1\t1\t1\t1\n", ":3: this line is no sample", 0 },
        { head, "1\tn0\t0:01:00.0\t1\t1\t1\t1\t-3\n", ":3: this line is no sample", 0 },
        { head, "1\tn0\t0:01:00.0\t1\t1\tfast\t1\t1\n", ":3: this line is no sample",
          0 },
        { head, "1.5\tn0\t0:01:00.0\t97\t1\t2\t3\t4\n2.5\tn0\t0:0", "", 1 },
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char messages[512] = "", path[128], *paths[] = { folder };
        FILE *f, *to = fmemopen(messages, sizeof messages, "w");
        struct mu_profile p;

        assert_int_equal(ledgers_write(folder, &sound_training), 0);
        snprintf(path, sizeof path, "%s/n0.samples", folder);
        f = fopen(path, "w");
        assert_non_null(f);
        fprintf(f, "%s%s", cases[i].first, cases[i].text);
        fclose(f);
        assert_int_equal(mu_profile_load(&p, paths, 1, NULL, to), 0);
        fclose(to);
        if (*cases[i].sentence ? !strstr(messages, cases[i].sentence) : *messages)
            fail_msg("case %zu: '%s'", i, messages);
        assert_int_equal(p.nsamples, cases[i].samples);
        assert_int_equal(p.faults, *cases[i].sentence != '\0');
        assert_int_equal(p.nfiles, RANKS);
        mu_profile_clear(&p);
        /* the same file, named, and without a ledger */
        paths[0] = path;
        to = fmemopen(messages, sizeof messages, "w");
        assert_int_equal(mu_profile_load(&p, paths, 1, NULL, to), -1);
        fclose(to);
        assert_non_null(strstr(messages, *cases[i].sentence
                                             ? cases[i].sentence
                                             : "no ledger is among the files"));
        assert_int_equal(p.nsamples, cases[i].samples);
        mu_profile_clear(&p);
    }
}

static void two_writers_of_a_PCI_address_mean_one_GPU(void **state)
{
    assert_true(mu_same_gpu("00000000:1A:00.0", "0000:1a:00.0"));
    assert_false(mu_same_gpu("00000001:1A:00.0", "0000:1a:00.0"));
    assert_false(mu_same_gpu("00000000:1B:00.0", "0000:1a:00.0"));
}

/* Of two ranks one is always last, and on a busy machine by chance. */
static void a_rank_that_is_last_in_most_steps_by_chance_is_no_straggler(void **state)
{
    struct training t = sound_training;
    struct mu_profile p;

    t.late = 1;
    t.mostly = 1;
    t.late_us = 900;
    load(&p, &t);
    assert_null(find(&p, "straggler"));
    assert_non_null(find(&p, "skew"));
    mu_profile_clear(&p);
}

static void one_process_with_several_gpus_is_DataParallel(void **state)
{
    const struct mu_finding *f;
    struct training t = sound_training;
    struct mu_profile p;

    t.one_process = 1;
    load(&p, &t);
    f = find(&p, "pitfall 1: DataParallel instead of DDP");
    assert_non_null(f);
    assert_non_null(strstr(f->text, "drives 4 GPUs of one communicator"));
    mu_profile_clear(&p);
}

static void findings_are_in_text_and_json(void **state)
{
    struct training t = sound_training;
    struct mu_profile p;
    json_t *json, *finding;
    char *text = NULL;
    size_t size;
    FILE *to = open_memstream(&text, &size);

    t.late = 3;
    t.late_us = 900;
    load(&p, &t);
    mu_profile_text(&p, to);
    fclose(to);
    assert_non_null(strstr(text, "\nstraggler: rank 3 (n1) was last in "));
    assert_non_null(strstr(text, "steps: 119"));
    assert_non_null(strstr(text, " of 6 collectives, median "));
    free(text);
    json = mu_profile_json(&p);
    assert_non_null(json);
    finding = json_array_get(json_object_get(json, "findings"), 0);
    assert_string_equal(json_string_value(json_object_get(finding, "rule")),
                        "straggler");
    assert_int_equal(json_integer_value(json_object_get(finding, "process")), 3);
    assert_int_equal(json_array_size(json_object_get(json, "by_process")), RANKS);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(json, "steps"),
                                                        "collectives")),
                     6);
    json_decref(json);
    mu_profile_clear(&p);
}

/* Ranks 0 and 1 are on n0, 2 and 3 on n1; the CPUs of rank 2 are not at its GPU. */
static void the_page_has_a_box_for_each_host_node_and_rank(void **state)
{
    static const char *const order[] = {
        "<div class=\"host\"><b>n0</b>",
        "<div class=\"node\"><b>NUMA node 0</b>",
        "<div class=\"rank\"><b>rank 0</b><br>8 CPUs",
        "GPU 0000:01:00.0<br>mlx5_0</div>",
        "<div class=\"rank\"><b>rank 1</b>",
        "</div></div>",
        "<div class=\"host\"><b>n1</b>",
        "<b>NUMA node 0</b>",
        "<div class=\"rank\"><b>rank 3</b>",
        "<b>NUMA node 1</b>",
        "<div class=\"rank far\"><b>rank 2</b><br>2 CPUs",
        "<br>which is at node 0<br>mlx5_3</div>",
        "</div></div>\n</figure>"
    };
    struct training t = sound_training;
    char *text = NULL;
    const char *at;
    struct mu_profile p;
    size_t size;
    FILE *to = open_memstream(&text, &size), *complain = fopen("/dev/null", "w");

    t.late = 2;
    t.late_us = 900;
    t.remote = 1;
    t.cpus = 8;
    t.nic = "mlx5_3";
    load(&p, &t);
    assert_int_equal(mu_profile_html(&p, -1, to, complain), 0);
    fclose(complain);
    fclose(to);
    at = strstr(text, "<figure id=\"placement\">");
    for (size_t i = 0; at && i < sizeof order / sizeof order[0]; i++) {
        const char *next = strstr(at, order[i]);

        if (!next)
            fail_msg("'%s' is not behind: %.200s", order[i], at);
        at = next + strlen(order[i]);
    }
    assert_non_null(at);
    free(text);
    mu_profile_clear(&p);
}

static int count(const char *text, const char *part)
{
    int n = 0;

    while ((text = strstr(text, part))) {
        n++;
        text += strlen(part);
    }
    return n;
}

/* What is sent once, before the first step. */
static void kinds_that_took_next_to_nothing_are_one_line(void **state)
{
    static const struct {
        int setup, rows; /* that are shown */
        const char *line;
    } cases[] = { { 0, 6, NULL },
                  { 6, 12, NULL },
                  { 7, 6, "  and 7 more kinds of less than 0.1" } };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct training t = sound_training;
        struct mu_profile p;
        char *text = NULL;
        size_t size;
        FILE *to = open_memstream(&text, &size);
        json_t *json;

        t.setup = cases[i].setup;
        load(&p, &t);
        mu_profile_text(&p, to);
        fclose(to);
        assert_int_equal(count(text, "\n  AllReduce "), cases[i].rows);
        if (cases[i].line)
            assert_non_null(strstr(text, cases[i].line));
        else
            assert_null(strstr(text, "more kinds"));
        free(text);
        json = mu_profile_json(&p);
        assert_int_equal(json_array_size(json_object_get(json, "collectives")),
                         6 + cases[i].setup);
        json_decref(json);
        mu_profile_clear(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
        TEST(steps_are_found_and_a_sound_training_has_no_finding),
        TEST(a_training_that_is_timed_in_windows_has_the_steps_of_one_that_is_timed),
        TEST(the_monitor_looks_back_to_the_last_window),
        TEST(each_fault_has_its_finding),
        TEST(what_looks_alike_but_is_sound_has_no_finding),
        TEST(a_late_rank_may_be_alone_on_its_host),
        TEST(a_file_of_samples_is_read_or_refused_with_one_sentence),
        TEST(two_writers_of_a_PCI_address_mean_one_GPU),
        TEST(a_rank_that_is_last_in_most_steps_by_chance_is_no_straggler),
        TEST(one_process_with_several_gpus_is_DataParallel),
        TEST(findings_are_in_text_and_json),
        TEST(the_page_has_a_box_for_each_host_node_and_rank),
        TEST(kinds_that_took_next_to_nothing_are_one_line),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
