/* SPDX-License-Identifier: BSD-3-Clause */
/* test_ledger.c - ledger files put together: joined, shown, or refused with a sentence
 */
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

#include "runtime/ledger/ledger_out.h"
#include "runtime/tools/profile.h"
#include "tests/unit/folder.h"

#define RECORDS 64

static char folder[] = "/tmp/muster-ledger-XXXXXX";
static char path[2][64];
static struct image {
    struct mu_ledger_head head;
    struct mu_ledger_comm comm[MU_LEDGER_COMMS];
    struct mu_ledger_call call[RECORDS];
} image[2];

/* Rank 1 begins its second all-reduce 40 us late; its first ends 10 us after rank 0's.
 * Rank 1's GPU has another clock. 64 MiB in 100 us are 671.1 GB/s on the bus of two.
 */
static const struct {
    uint64_t begin, end, gpu_begin, gpu_end; /* ns */
} times[2][2] = {
    { { 1000000, 1010000, 7020000, 7120000 }, { 2000000, 2010000, 8020000, 8160000 } },
    { { 1001000, 1012000, 500000, 610000 }, { 2040000, 2050000, 1560000, 1660000 } },
};

static void fill(int rank)
{
    struct image *m = &image[rank];

    memset(m, 0, sizeof *m);
    m->head =
        (struct mu_ledger_head){ .magic = MU_LEDGER_MAGIC,
                                 .order = 0x01020304,
                                 .records = RECORDS,
                                 .calls = 2,
                                 .comms = 1,
                                 .interface = 5,
                                 .opened_real = 5000000000 + (uint64_t)rank * 1000,
                                 .opened_monotonic = 900000,
                                 .rank = rank,
                                 .host = "n1" };
    m->comm[0] = (struct mu_ledger_comm){
        .hash = 0xabc, .rank = rank, .size = 2, .nodes = 1, .name = "group"
    };
    for (int i = 0; i < 2; i++)
        m->call[i] = (struct mu_ledger_call){ .sequence = (uint64_t)i,
                                              .count = 16 << 20,
                                              .begin = times[rank][i].begin,
                                              .end = times[rank][i].end,
                                              .gpu_begin = times[rank][i].gpu_begin,
                                              .gpu_end = times[rank][i].gpu_end,
                                              .number = (uint64_t)i + 1,
                                              .began = 8,
                                              .ended = 8,
                                              .channels = 8,
                                              .element = 4,
                                              .func = "AllReduce",
                                              .algo = "RING",
                                              .proto = "SIMPLE" };
}

static void save(int rank, size_t size)
{
    FILE *f = fopen(path[rank], "w");

    assert_non_null(f);
    assert_int_equal(fwrite(&image[rank], 1, size, f), size);
    assert_int_equal(fclose(f), 0);
}

static int setup(void **state)
{
    if (!mkdtemp(strcpy(folder, "/tmp/muster-ledger-XXXXXX")))
        return -1;
    for (int rank = 0; rank < 2; rank++) {
        snprintf(path[rank], sizeof path[rank], "%s/r%d.ledger", folder, rank);
        fill(rank);
        save(rank, sizeof image[rank]);
    }
    return 0;
}

static int teardown(void **state)
{
    return folder_remove(folder);
}

/* Load the folder; the sentences come into `said`. */
static int load(struct mu_profile *p, char *said, size_t size)
{
    char *paths[] = { folder };
    FILE *to = fmemopen(said, size, "w");
    int rc = mu_profile_load(p, paths, 1, NULL, to);

    fclose(to);
    return rc;
}

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

static char *print(void (*show)(const struct mu_profile *, FILE *),
                   const struct mu_profile *p)
{
    char *text = NULL;
    size_t size;
    FILE *to = open_memstream(&text, &size);

    show(p, to);
    fclose(to);
    return text;
}

static void has(const char *text, const char *want)
{
    if (!strstr(text, want))
        fail_msg("'%s' is not in: %s", want, text);
}

static void the_text_has_a_line_for_each_way(void **state)
{
    char said[1024] = "", *text;
    struct mu_profile p;

    load(&p, said, sizeof said);
    text = print(mu_profile_text, &p);
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
    text = print(mu_profile_trace, &p);
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
    text = print(mu_profile_trace, &p);
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
    text = print(mu_profile_text, &p);
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
    text = print(mu_profile_text, &p);
    has(text, "different NCCL releases (profiler interfaces 3 to 5)");
    free(text);
    mu_profile_clear(&p);
}

static void truncate_to_the_head(struct image *m)
{
    m->head.records = 2 * RECORDS;
}

static void other_format(struct image *m)
{
    memcpy(m->head.magic, "muster-ledger-9", 16);
}

static void other_order(struct image *m)
{
    m->head.order = 0x04030201;
}

static void no_power(struct image *m)
{
    m->head.records = 65;
}

static void foreign(struct image *m)
{
    memcpy(m, "#!/bin/sh", 9);
}

static void endless_name(struct image *m)
{
    memset(m->call[5].algo, 'x', sizeof m->call[5].algo);
}

static void foreign_comm(struct image *m)
{
    m->call[5].comm = MU_LEDGER_COMMS;
}

static void negative_size(struct image *m)
{
    m->comm[3].size = -5;
}

static void huge_rank(struct image *m)
{
    m->comm[0].rank = INT32_MAX;
}

static void a_bad_file_is_one_sentence_and_the_rest_is_shown(void **state)
{
    static const struct {
        const char *name, *sentence;
        void (*spoil)(struct image *);
    } cases[] = {
        { "truncated", "the file is truncated: 41216 of 49408 bytes are there",
          truncate_to_the_head },
        { "another format", "this ledger has format 'muster-ledger-9'", other_format },
        { "byte order", "another byte order", other_order },
        { "records", "the head is damaged (65 records)", no_power },
        { "foreign", "this is no ledger file of Muster", foreign },
        { "a name", "a record is damaged", endless_name },
        { "a communicator", "a record is damaged", foreign_comm },
        { "a size", "communicator 3 is damaged (rank 0 of -5)", negative_size },
        { "a rank", "communicator 0 is damaged (rank 2147483647 of 2)", huge_rank },
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char said[1024] = "", *text;
        struct mu_profile p;

        fill(1);
        cases[i].spoil(&image[1]);
        save(1, sizeof image[1]);
        assert_int_equal(load(&p, said, sizeof said), 0);
        has(said, path[1]);
        has(said, cases[i].sentence);
        assert_ptr_equal(strchr(said, '\n'), said + strlen(said) - 1);
        assert_int_equal(p.faults, 1);
        assert_int_equal(p.nrecords, 2);
        text = print(mu_profile_text, &p);
        has(text, "2 ranks on 1 node; 1 without a file, the first is rank 1");
        free(text);
        mu_profile_clear(&p);
    }
}

static void short_files_are_refused(void **state)
{
    static const size_t sizes[] = { 0, 1, 15, 16, 255, 256, sizeof image[1] - 1 };

    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        char said[1024] = "";
        struct mu_profile p;

        save(1, sizes[i]);
        assert_int_equal(load(&p, said, sizeof said), 0);
        assert_int_equal(p.faults, 1);
        has(said, path[1]);
        mu_profile_clear(&p);
    }
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
        TEST(a_bad_file_is_one_sentence_and_the_rest_is_shown),
        TEST(short_files_are_refused),
        TEST(functions_have_the_factors_of_nccl_tests),
        TEST(the_head_has_where_the_process_runs),
    };

    return cmocka_run_group_tests_name("ledger", tests, NULL, NULL);
}
