/* SPDX-License-Identifier: BSD-3-Clause */
/* test_ledger_buckets.c - buckets in a ledger: written, put together, or refused */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "runtime/ledger/ledger_out.h"
#include "runtime/tools/profile.h"
#include "tests/unit/folder.h"
#include "tests/unit/printed.h"

#define STEPS 11
#define RECORDS 256
#define MS UINT64_C(1000000)

static char folder[64], path[2][4096];

/* A step of 10 ms. Bucket 0 is ready after 6 ms, launched 10 us later, begun 40 us
 * later, and ended 1 ms later; sync waits 200 us for it. Bucket 1 is ready after 5 ms,
 * and sync waits 300 us on rank 0, 500 us on rank 1. In step 3 each waits a ms more.
 */
static void write_step(struct mu_ledger_out *out, int rank, uint64_t step)
{
    uint64_t begin = step * 10 * MS, more = step == 3 ? MS : 0;
    struct mu_ledger_bucket all = { .step = step,
                                    .begin = begin,
                                    .ready = begin + 5 * MS,
                                    .launched = begin + 6 * MS,
                                    .started = begin + 6 * MS,
                                    .ended = begin + 8 * MS,
                                    .joined = begin + 10 * MS,
                                    .exposed = 2 * MS,
                                    .bytes = 3000,
                                    .bucket = MU_LEDGER_STEP };

    for (uint32_t b = 0; b < 2; b++) {
        uint64_t ready = begin + (6 - b) * MS;
        uint64_t wait = b == 0 ? 200000 : rank == 0 ? 300000 : 500000;

        mu_ledger_add_bucket(out,
                             &(struct mu_ledger_bucket){ .step = step,
                                                         .begin = begin,
                                                         .ready = ready,
                                                         .launched = ready + 10000,
                                                         .started = ready + 50000,
                                                         .ended = ready + 50000 + MS,
                                                         .joined = begin + 9 * MS,
                                                         .exposed = wait + more,
                                                         .bytes = 1000 * (b + 1),
                                                         .bucket = b });
    }
    mu_ledger_add_bucket(out, &all);
}

static void write_ledger(int rank, int steps, uint32_t records)
{
    struct mu_ledger_out out;
    struct mu_err err = { 0 };
    char number[8];

    snprintf(number, sizeof number, "%d", rank);
    setenv("RANK", number, 1);
    assert_int_equal(mu_ledger_open(&out, folder, records, true, &err), 0);
    out.head->interface = MU_LEDGER_LIBMUSTER;
    mu_ledger_comm(&out, 77, "libmuster", rank, 2, 1);
    for (int s = 0; s < steps; s++)
        write_step(&out, rank, (uint64_t)s);
    snprintf(path[rank], sizeof path[rank], "%s/run-rank%d-%s-%d%s", folder, rank,
             out.head->host, (int)getpid(), MU_LEDGER_SUFFIX);
    mu_ledger_close(&out);
}

static int setup(void **state)
{
    if (!mkdtemp(strcpy(folder, "/tmp/muster-buckets-XXXXXX")))
        return -1;
    for (int rank = 0; rank < 2; rank++)
        write_ledger(rank, STEPS, RECORDS);
    return 0;
}

static int teardown(void **state)
{
    return folder_remove(folder);
}

static void load(struct mu_profile *p, char *messages, size_t size)
{
    char *paths[] = { folder };
    FILE *to = fmemopen(messages, size, "w");

    assert_int_equal(mu_profile_load(p, paths, 1, NULL, to), 0);
    fclose(to);
}

static void is_near(double value, double want)
{
    if (value < want - 0.01 || value > want + 0.01)
        fail_msg("%g is not %g", value, want);
}

/* The first step has no begin: ten steps of two ranks are left. */
static void steps_and_ranks_make_one_row_for_each_bucket(void **state)
{
    char messages[1024] = "";
    struct mu_profile p;

    load(&p, messages, sizeof messages);
    assert_string_equal(messages, "");
    assert_int_equal(p.nbuckets, 3);
    assert_true(p.buckets[0].bucket == MU_LEDGER_STEP);
    is_near(p.buckets[0].joined, 10000);
    is_near(p.buckets[0].exposed, 2000);
    assert_int_equal(p.buckets[1].bucket, 1); /* it is ready first */
    assert_int_equal(p.buckets[1].records, 2 * (STEPS - 1));
    assert_int_equal(p.buckets[1].hash, 77);
    is_near(p.buckets[1].bytes, 2000);
    is_near(p.buckets[1].ready, 5000);
    is_near(p.buckets[1].launch, 10);
    is_near(p.buckets[1].queue, 40);
    is_near(p.buckets[1].work, 1000);
    is_near(p.buckets[1].exposed, 500); /* rank 0: nine of 300, rank 1: nine of 500 */
    is_near(p.buckets[1].exposed_most, 1500);
    assert_int_equal(p.buckets[2].bucket, 0);
    is_near(p.buckets[2].ready, 6000);
    is_near(p.buckets[2].exposed, 200);
    mu_profile_clear(&p);
}

static void text_and_json_have_each_bucket(void **state)
{
    char messages[1024] = "", *text;
    const json_t *buckets, *one;
    struct mu_profile p;
    json_t *json;

    load(&p, messages, sizeof messages);
    text = printed(mu_profile_text, &p);
    has(text, "\nbuckets of libmuster: step 10.000 ms, of which 2.000 ms in sync (20 % "
              "exposed)\n");
    has(text, "\n       1        2000       20     5000.0       10.0       40.0     "
              "1000.0      500.0     1500.0\n");
    free(text);
    json = mu_profile_json(&p);
    buckets = json_object_get(json, "buckets");
    assert_int_equal(json_array_size(buckets), 3);
    assert_true(json_is_null(json_object_get(json_array_get(buckets, 0), "bucket")));
    is_near(json_number_value(json_object_get(json_array_get(buckets, 0), "joined_us")),
            10000);
    one = json_array_get(buckets, 1);
    assert_string_equal(json_string_value(json_object_get(one, "communicator")),
                        "000000000000004d");
    assert_int_equal(json_integer_value(json_object_get(one, "bucket")), 1);
    is_near(json_number_value(json_object_get(one, "queue_us")), 40);
    is_near(json_number_value(json_object_get(one, "exposed_us")), 500);
    json_decref(json);
    mu_profile_clear(&p);
}

/* The first event of this name. */
static const json_t *find(const json_t *trace, const char *name)
{
    const json_t *event;
    size_t i;

    json_array_foreach(
        json_object_get(trace, "traceEvents"), i,
        event) if (strcmp(json_string_value(json_object_get(event, "name")), name) ==
                   0) return event;
    fail_msg("no event %s", name);
    return NULL;
}

/* Of one process: four tracks, and two buckets and a sync for each step. */
static void the_trace_has_a_track_of_buckets_and_one_of_sync(void **state)
{
    char messages[1024] = "", *text;
    struct mu_profile p;
    int buckets = 0, syncs = 0;
    double first = -1, second = -1; /* syncs of one process */
    const json_t *event;
    json_t *trace;
    size_t i;

    load(&p, messages, sizeof messages);
    text = printed(mu_profile_trace, &p);
    trace = json_loads(text, 0, NULL);
    assert_non_null(trace);
    json_array_foreach(json_object_get(trace, "traceEvents"), i, event)
    {
        const char *name = json_string_value(json_object_get(event, "name"));

        if (strcmp(name, "bucket 1") == 0) {
            buckets++;
            assert_int_equal(json_integer_value(json_object_get(event, "tid")), 2);
            is_near(json_number_value(json_object_get(event, "dur")), 1000);
        }
        if (strncmp(name, "sync of step ", 13) == 0) {
            syncs++;
            assert_int_equal(json_integer_value(json_object_get(event, "tid")), 3);
            is_near(json_number_value(json_object_get(event, "dur")), 2000);
            /* it begins 8 ms after the step, 2 ms before it ends */
            first =
                syncs == 1 ? json_number_value(json_object_get(event, "ts")) : first;
            second =
                syncs == 2 ? json_number_value(json_object_get(event, "ts")) : second;
        }
    }
    is_near(second - first, 10000);
    event = find(trace, "bucket 0");
    is_near(first - json_number_value(json_object_get(event, "ts")), 8000 - 6050);
    assert_int_equal(buckets, 2 * STEPS);
    assert_int_equal(syncs, 2 * STEPS);
    json_decref(trace);
    free(text);
    mu_profile_clear(&p);
}

/* 64 calls have a ring of 64 buckets: 21 steps of three records and one more. */
static void a_full_ring_keeps_the_last_buckets(void **state)
{
    char messages[1024] = "";
    struct mu_profile p;

    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(unlink(path[rank]), 0);
        write_ledger(rank, 100, MU_LEDGER_RECORDS_MIN);
    }
    load(&p, messages, sizeof messages);
    assert_int_equal(p.nbuckets, 3);
    assert_int_equal(p.buckets[0].records, 2 * 22);
    assert_int_equal(p.buckets[1].records, 2 * 21);
    is_near(p.buckets[1].exposed_most, 500); /* step 3 is gone */
    mu_profile_clear(&p);
}

/* What a file has from `offset` on is replaced; size 0: the file ends there. */
static void spoil(int rank, size_t offset, const void *data, size_t size)
{
    FILE *f = fopen(path[rank], "r+");

    assert_non_null(f);
    fseek(f, (long)offset, SEEK_SET);
    if (size)
        assert_int_equal(fwrite(data, size, 1, f), 1);
    assert_int_equal(fclose(f), 0);
    if (!size)
        assert_int_equal(truncate(path[rank], (off_t)offset), 0);
}

#define IN_HEAD(field) offsetof(struct mu_ledger_head, field)

/* As files of earlier releases, and of NCCL's profiler, are. */
static void a_file_without_buckets_is_read_as_before(void **state)
{
    static const char zeros[40];
    char messages[1024] = "", *text;
    struct mu_profile p;

    for (int rank = 0; rank < 2; rank++) {
        spoil(rank, sizeof(struct mu_ledger_head) - sizeof zeros, zeros, sizeof zeros);
        spoil(rank, mu_ledger_file_size(RECORDS), NULL, 0);
    }
    /* without a place the other words mean nothing */
    spoil(0, IN_HEAD(buckets), &(uint64_t){ UINT64_MAX - 1 }, sizeof(uint64_t));
    spoil(0, IN_HEAD(bucket_records), &(uint32_t){ UINT32_MAX }, sizeof(uint32_t));
    load(&p, messages, sizeof messages);
    assert_string_equal(messages, "");
    assert_int_equal(p.nfiles, 2);
    assert_int_equal(p.nbuckets, 0);
    text = printed(mu_profile_text, &p);
    assert_null(strstr(text, "buckets of libmuster"));
    free(text);
    mu_profile_clear(&p);
}

static void a_damaged_ring_is_one_sentence_and_the_rest_is_shown(void **state)
{
    static const uint64_t among_calls = 4096, far = UINT64_MAX - 64, odd = 65668;
    static const uint32_t no_power = 63, huge = 1u << 30, shorter = 88, longer = 8192,
                          unaligned = 100;
    static const struct {
        const char *sentence;
        size_t at;
        const void *data;
        size_t size;
    } cases[] = {
        { "the head is damaged (128 buckets of 96 bytes)", IN_HEAD(buckets_at),
          &among_calls, 8 },
        { "the head is damaged (128 buckets of 96 bytes)", IN_HEAD(buckets_at), &far,
          8 },
        { "the head is damaged (128 buckets of 96 bytes)", IN_HEAD(buckets_at), &odd,
          8 },
        { "the head is damaged (63 buckets of 96 bytes)", IN_HEAD(bucket_records),
          &no_power, 4 },
        { "the head is damaged (1073741824 buckets of 96 bytes)",
          IN_HEAD(bucket_records), &huge, 4 },
        { "the head is damaged (128 buckets of 88 bytes)", IN_HEAD(bucket_bytes),
          &shorter, 4 },
        { "the head is damaged (128 buckets of 8192 bytes)", IN_HEAD(bucket_bytes),
          &longer, 4 },
        { "the head is damaged (128 buckets of 100 bytes)", IN_HEAD(bucket_bytes),
          &unaligned, 4 },
        { "the file is truncated: 78079 of 78080 bytes are there", 78079, NULL, 0 },
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char messages[1024] = "";
        struct mu_profile p;

        unlink(path[1]);
        write_ledger(1, STEPS, RECORDS);
        spoil(1, cases[i].at, cases[i].data, cases[i].size);
        load(&p, messages, sizeof messages);
        has(messages, cases[i].sentence);
        has(messages, path[1]);
        assert_ptr_equal(strchr(messages, '\n'), messages + strlen(messages) - 1);
        assert_int_equal(p.faults, 1);
        assert_int_equal(p.buckets[0].records, STEPS - 1);
        mu_profile_clear(&p);
    }
}

/* A ring of 384 MiB, and a file of a few kB. */
static void a_hole_takes_no_memory(void **state)
{
    static const uint32_t slots = 1 << 22;
    char messages[1024] = "";
    struct mu_profile p;
    struct rusage used;
    int status;
    pid_t pid;

    spoil(1, IN_HEAD(bucket_records), &slots, sizeof slots);
    spoil(1, IN_HEAD(buckets), &(uint64_t){ slots }, sizeof(uint64_t));
    assert_int_equal(
        truncate(path[1], (off_t)mu_ledger_file_size(RECORDS) + (off_t)slots * 96), 0);
    pid = fork();
    if (pid == 0) {
        load(&p, messages, sizeof messages);
        _exit(p.nfiles == 2 && p.buckets[0].records == 2 * (STEPS - 1) ? 0 : 1);
    }
    assert_int_equal(wait4(pid, &status, 0, &used), pid);
    assert_int_equal(status, 0);
    assert_in_range(used.ru_maxrss, 1, 256 << 10); /* KiB */
}

/* A release that knows more of a bucket writes longer records. */
static void longer_records_of_a_later_release_are_read(void **state)
{
    static const uint32_t bytes = 2 * sizeof(struct mu_ledger_bucket), slots = 64;
    char messages[1024] = "";
    struct mu_ledger_bucket b[2];
    struct mu_profile p;
    FILE *f = fopen(path[0], "r");

    assert_non_null(f);
    fseek(f, (long)mu_ledger_file_size(RECORDS), SEEK_SET);
    assert_int_equal(fread(b, sizeof b, 1, f), 1);
    fclose(f);
    b[0].begin = 1; /* it has number 1 */
    b[1].begin = 1;
    for (int i = 0; i < 2; i++)
        spoil(0, mu_ledger_file_size(RECORDS) + (size_t)i * bytes, &b[i], sizeof b[i]);
    spoil(0, IN_HEAD(bucket_bytes), &bytes, sizeof bytes);
    spoil(0, IN_HEAD(bucket_records), &slots, sizeof slots);
    spoil(0, IN_HEAD(buckets), &(uint64_t){ 2 }, sizeof(uint64_t));
    unlink(path[1]);
    load(&p, messages, sizeof messages);
    assert_int_equal(p.nbuckets, 2);
    assert_int_equal(p.buckets[0].bucket, 1);
    is_near(p.buckets[0].work, 1000);
    assert_int_equal(p.buckets[1].bucket, 0);
    mu_profile_clear(&p);
}

/* One names a communicator that the file cannot have, one is being written. */
static void a_damaged_record_is_left_out(void **state)
{
    static const uint32_t comm = MU_LEDGER_COMMS;
    static const uint64_t none = 0;
    char messages[1024] = "";
    struct mu_profile p;

    unlink(path[1]);
    spoil(0,
          mu_ledger_file_size(RECORDS) + 3 * sizeof(struct mu_ledger_bucket) +
              offsetof(struct mu_ledger_bucket, comm),
          &comm, sizeof comm);
    spoil(0, mu_ledger_file_size(RECORDS) + 6 * sizeof(struct mu_ledger_bucket), &none,
          sizeof none);
    load(&p, messages, sizeof messages);
    assert_int_equal(p.buckets[0].records, STEPS - 1);
    assert_int_equal(p.buckets[2].bucket, 0);
    assert_int_equal(p.buckets[2].records, STEPS - 3);
    mu_profile_clear(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
        TEST(steps_and_ranks_make_one_row_for_each_bucket),
        TEST(text_and_json_have_each_bucket),
        TEST(the_trace_has_a_track_of_buckets_and_one_of_sync),
        TEST(a_full_ring_keeps_the_last_buckets),
        TEST(a_file_without_buckets_is_read_as_before),
        TEST(a_damaged_ring_is_one_sentence_and_the_rest_is_shown),
        TEST(a_hole_takes_no_memory),
        TEST(longer_records_of_a_later_release_are_read),
        TEST(a_damaged_record_is_left_out),
    };

    return cmocka_run_group_tests_name("ledger_buckets", tests, NULL, NULL);
}
