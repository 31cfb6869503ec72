/* SPDX-License-Identifier: BSD-3-Clause */
/* test_ledger.c - ledger files put together: joined and shown */
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "runtime/tools/monitor.h"
#include "tests/unit/printed.h"
#include "tests/unit/two_ledgers.h"

static int near(double value, double want)
{
    return value > want * 0.999 && value < want * 1.001;
}

static void ranks_are_joined(void **state)
{
    char said[1024] = "";
    struct mu_profile p;

    assert_int_equal(load(&p, said, sizeof said), 0);
    assert_string_equal(said, "");
    assert_int_equal(p.ncomms, 1);
    assert_int_equal(p.comms[0].missing, -1);
    assert_int_equal(p.nrows, 1);
    assert_int_equal(p.rows[0].calls, 2);
    assert_true(near(p.rows[0].median, 100) && near(p.rows[0].total, 200));
    assert_true(near(p.rows[0].busbw, 671.089));
    assert_true(near(p.rows[0].skew, 25) && near(p.rows[0].skew_most, 40));
    assert_true(near(p.rows[0].launch, 10));
    assert_true(near(p.rows[0].late_share, 0.5));
    mu_profile_clear(&p);
}

static void the_text_has_a_line_for_each_way(void **state)
{
    char said[1024] = "", *text;
    struct mu_profile p;

    load(&p, said, sizeof said);
    text = printed(mu_profile_text, &p);
    has(text, "2 processes, 4 records\n");
    has(text, "communicator 0000000000000abc group: 2 ranks on 1 node\n");
    has(text,
        "  AllReduce        67108864  RING       SIMPLE    8        2      100.0  "
        "    0.200    671.1      25.0");
    free(text);
    mu_profile_clear(&p);
}

/* Find the event of this process, track and sequence. */
static const json_t *event(const json_t *trace, int pid, int tid, int sequence)
{
    const json_t *events = json_object_get(trace, "traceEvents"), *e;
    size_t i;

    json_array_foreach(events, i, e)
    {
        const json_t *args = json_object_get(e, "args");

        if (strcmp(json_string_value(json_object_get(e, "ph")), "X") == 0 &&
            json_integer_value(json_object_get(e, "pid")) == pid &&
            json_integer_value(json_object_get(e, "tid")) == tid &&
            json_integer_value(json_object_get(args, "sequence")) == sequence)
            return e;
    }
    fail_msg("no event of process %d, track %d, sequence %d", pid, tid, sequence);
    return NULL;
}

static void is_at(const json_t *e, double ts, double dur)
{
    assert_true(near(json_number_value(json_object_get(e, "ts")), ts));
    assert_true(near(json_number_value(json_object_get(e, "dur")), dur));
}

/* opened_monotonic is 900 us: rank 0's first launch is 100 us after the origin, rank
 * 1's 1 us more and 1 us for its later opening. Each GPU's clock is shifted to its
 * earliest kernel: on rank 0 both begin 6020 us after their launch and come to it.
 */
static void the_trace_has_both_clocks_on_one_line(void **state)
{
    char said[1024] = "", *text;
    struct mu_profile p;
    json_error_t error;
    json_t *trace;

    load(&p, said, sizeof said);
    text = printed(mu_profile_trace, &p);
    trace = json_loads(text, 0, &error);
    if (!trace)
        fail_msg("line %d: %s", error.line, error.text);
    assert_int_equal(json_array_size(json_object_get(trace, "traceEvents")), 6 + 8);
    is_at(event(trace, 0, 0, 0), 100, 10);
    is_at(event(trace, 0, 1, 0), 100, 100);
    is_at(event(trace, 0, 1, 1), 1100, 140);
    is_at(event(trace, 1, 0, 0), 102, 11);
    is_at(event(trace, 1, 1, 1), 1162, 100);
    is_at(event(trace, 1, 1, 0), 102, 110);
    json_decref(trace);
    free(text);
    mu_profile_clear(&p);
}

static void names_cannot_break_the_trace(void **state)
{
    char said[1024] = "", *text;
    struct mu_profile p;
    json_error_t error;
    json_t *trace;

    strcpy(image[0].call[0].func, "A\"\\\n\xff{");
    strcpy(image[0].head.host, "\"");
    save(0, sizeof image[0]);
    load(&p, said, sizeof said);
    text = printed(mu_profile_trace, &p);
    trace = json_loads(text, 0, &error);
    assert_non_null(trace);
    json_decref(trace);
    free(text);
    trace = mu_profile_json(&p);
    json_decref(trace);
    mu_profile_clear(&p);
}

static void json_has_the_figures(void **state)
{
    char said[1024] = "";
    struct mu_profile p;
    const char *func;
    double busbw;
    json_t *json;
    int late;

    image[1].call[0].gpu_end -= 20000; /* rank 1 is the late one both times */
    save(1, sizeof image[1]);
    load(&p, said, sizeof said);
    json = mu_profile_json(&p);
    assert_int_equal(json_unpack(json, "{s:[{s:s, s:f, s:i}]}", "collectives",
                                 "function", &func, "busbw_gb_s", &busbw, "late_rank",
                                 &late),
                     0);
    assert_string_equal(func, "AllReduce");
    assert_int_equal(late, 1);
    assert_true(busbw > 700);
    json_decref(json);
    mu_profile_clear(&p);
}

static void without_times_of_the_gpu_a_word_stands_in_for_bandwidth(void **state)
{
    char said[1024] = "", *text;
    struct mu_profile p;

    for (int rank = 0; rank < 2; rank++) {
        image[rank].head.interface = 2;
        for (int i = 0; i < 2; i++) {
            struct mu_ledger_call *c = &image[rank].call[i];

            c->gpu_begin = c->gpu_end = c->began = c->ended = 0;
        }
        save(rank, sizeof image[rank]);
    }
    load(&p, said, sizeof said);
    assert_true(p.rows[0].busbw == -1 && p.rows[0].total == -1 &&
                p.rows[0].unfinished == 0);
    text = printed(mu_profile_text, &p);
    has(text, "no times on the GPU and no bandwidth: they need NCCL 2.26");
    free(text);
    mu_profile_clear(&p);
}

static void files_of_different_releases_are_noted(void **state)
{
    char said[1024] = "", *text;
    struct mu_profile p;

    image[1].head.interface = 3;
    save(1, sizeof image[1]);
    load(&p, said, sizeof said);
    text = printed(mu_profile_text, &p);
    has(text, "different NCCL releases (profiler interfaces 3 to 5)");
    free(text);
    mu_profile_clear(&p);
}

/* On GPUs a rank of libmuster has NCCL's calls in one file, its buckets in another. */
static void a_file_of_buckets_alone_is_no_other_release_and_no_other_rank(void **state)
{
    char *folders[] = { folder }, *text;
    struct mu_monitor m = { 0 };
    struct mu_profile p;

    image[1].head.rank = 0;
    image[1].head.interface = MU_LEDGER_LIBMUSTER;
    image[1].head.calls = 0;
    image[1].comm[0].rank = 0;
    memset(image[1].call, 0, sizeof image[1].call);
    save(1, sizeof image[1]);
    assert_int_equal(mu_profile_load(&p, folders, 1, NULL, stderr), 0);
    assert_int_equal(p.nfiles, 2);
    text = printed(mu_profile_text, &p);
    if (strstr(text, "different NCCL releases"))
        fail_msg("%s", text);
    free(text);
    mu_profile_clear(&p);
    assert_int_equal(mu_monitor_look(&m, folders, 1, stderr), 0);
    assert_int_equal(m.nranks, 1);
    assert_true(m.rank[0].idle >= 0); /* that of NCCL's file */
    mu_monitor_clear(&m);
}

/* The ring has calls 37 to 100, the last 50 of them on both sides of its end. */
static void of_a_full_ring_the_last_calls_are_read(void **state)
{
    char said[1024] = "", *paths[] = { folder };
    FILE *to = fmemopen(said, sizeof said, "w");
    struct mu_profile p;

    for (int rank = 0; rank < 2; rank++) {
        image[rank].head.calls = 100;
        for (uint64_t i = 36; i < 100; i++) {
            image[rank].call[i % RECORDS] = image[rank].call[0];
            image[rank].call[i % RECORDS].sequence = i;
            image[rank].call[i % RECORDS].number = i + 1;
        }
        save(rank, sizeof image[rank]);
    }
    assert_int_equal(mu_profile_load_last(&p, paths, 1, NULL, 50, to), 0);
    fclose(to);
    assert_string_equal(said, "");
    assert_int_equal(p.nrecords, 2 * 50);
    for (size_t i = 0; i < p.nrecords; i++)
        assert_int_equal(p.records[i].call->sequence, 50 + i / 2);
    mu_profile_clear(&p);
}

static void functions_have_the_factors_of_nccl_tests(void **state)
{
    static const struct {
        const char *func;
        double factor, bytes; /* of 1000 elements of 2 bytes on 4 ranks */
    } cases[] = { { "AllReduce", 1.5, 2000 },      { "AllGather", 0.75, 8000 },
                  { "ReduceScatter", 0.75, 8000 }, { "Broadcast", 1, 2000 },
                  { "Reduce", 1, 2000 },           { "AlltoAll", 0.75, 8000 },
                  { "Gather", 0.75, 8000 },        { "Scatter", 0.75, 8000 },
                  { "SendRecv", 0, 2000 } };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct mu_ledger_call call = { .count = 1000, .element = 2 };

        strcpy(call.func, cases[i].func);
        assert_true(mu_ledger_bus_factor(cases[i].func, 4) == cases[i].factor);
        assert_true(mu_ledger_bytes(&call, 4) == cases[i].bytes);
        assert_true(mu_ledger_bus_factor(cases[i].func, 1) == 0);
    }
}

static void put(const char *name, const char *text)
{
    char at[256];
    FILE *f;

    for (const char *slash = name; (slash = strchr(slash, '/')); slash++) {
        snprintf(at, sizeof at, "%s/%.*s", folder, (int)(slash - name), name);
        mkdir(at, 0777);
    }
    snprintf(at, sizeof at, "%s/%s", folder, name);
    f = fopen(at, "w");
    assert_non_null(f);
    fprintf(f, "%s\n", text);
    fclose(f);
}

/* All CPUs of this machine are at one of the nodes, or at two, or at none. */
static void the_head_has_where_the_process_runs(void **state)
{
    static const char plan[] = "v=1;task=0;gpus=0000:0f:00.0/1,0000:1f:00.0;cpus=0;"
                               "mems=0;nics=mlx5_2,mlx5_3;path=PIX";
    static const struct {
        const char *node0, *node2, *gpu, *plan;
        int cpu_node, gpu_node;
    } cases[] = {
        { "", "0-4095", "2", plan, 3, 3 },    { "0-4095", "", "2", plan, 1, 3 },
        { "0", "1-4095", "-1", plan, -1, 0 }, { "4096", "", "0", plan, 0, 1 },
        { "0-4095", "", "0", NULL, 1, 0 },    { "0-4095", "", "0", "v=2;task=0", 1, 0 },
    };
    cpu_set_t first, before;

    sched_getaffinity(0, sizeof before, &before);
    CPU_ZERO(&first);
    CPU_SET(0, &first);
    CPU_SET(1, &first);
    sched_setaffinity(0, sizeof first, &first);
    sched_getaffinity(0, sizeof first, &first);
    if (!CPU_ISSET(0, &first) || !CPU_ISSET(1, &first))
        skip(); /* in a cpuset without them */
    put("devices/system/node/online", "0,2");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct mu_ledger_head head = { .rank = 1 };

        put("devices/system/node/node0/cpulist", cases[i].node0);
        put("devices/system/node/node2/cpulist", cases[i].node2);
        put("bus/pci/devices/0000:0f:00.0/numa_node", cases[i].gpu);
        mu_ledger_place(&head, cases[i].plan, folder);
        assert_int_equal(head.cpu_node, cases[i].cpu_node);
        assert_int_equal(head.gpu_node, cases[i].gpu_node);
        assert_int_equal(head.cpus, CPU_COUNT(&first));
        assert_string_equal(head.gpu, cases[i].plan == plan ? "0000:0f:00.0" : "");
        assert_string_equal(head.nic, cases[i].plan == plan ? "mlx5_2" : "");
    }
    sched_setaffinity(0, sizeof before, &before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
        TEST(ranks_are_joined),
        TEST(the_text_has_a_line_for_each_way),
        TEST(the_trace_has_both_clocks_on_one_line),
        TEST(names_cannot_break_the_trace),
        TEST(json_has_the_figures),
        TEST(without_times_of_the_gpu_a_word_stands_in_for_bandwidth),
        TEST(files_of_different_releases_are_noted),
        TEST(a_file_of_buckets_alone_is_no_other_release_and_no_other_rank),
        TEST(of_a_full_ring_the_last_calls_are_read),
        TEST(functions_have_the_factors_of_nccl_tests),
        TEST(the_head_has_where_the_process_runs),
    };

    return cmocka_run_group_tests_name("ledger", tests, NULL, NULL);
}
