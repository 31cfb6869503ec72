/* SPDX-License-Identifier: BSD-3-Clause */
/* test_profiler.c - the plugin for NCCL's profiler, called as NCCL does, and what
 * muster report makes of its files
 */
#include <dirent.h>
#include <dlfcn.h>
#include <jansson.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "runtime/base/clock.h"
#include "runtime/nccl/timing.h"
#include "runtime/tools/profile.h"
#include "tests/unit/child.h"
#include "tests/unit/fake_nccl.h"
#include "tests/unit/folder.h"

static char folder[] = "/tmp/muster-profiler-XXXXXX";
static char complaints[4096];

static const struct fake_coll allreduce = { "AllReduce",   "RING",  "LL128",
                                            "ncclFloat32", 1 << 20, 4 };
static const struct fake_coll gather = { "AllGather",    "TREE", "SIMPLE",
                                         "ncclBfloat16", 1000,   2 };

static int setup(void **state)
{
    char *path = mkdtemp(strcpy(folder, "/tmp/muster-profiler-XXXXXX"));

    return path && setenv("MUSTER_PROFILE", folder, 1) == 0 &&
                   setenv("SLURM_JOB_ID", "71", 1) == 0 &&
                   setenv("SLURM_STEP_ID", "3", 1) == 0 &&
                   unsetenv("MUSTER_PROFILE_RECORDS") == 0 &&
                   unsetenv("MUSTER_PROFILE_WINDOW") == 0 &&
                   unsetenv("MUSTER_PROFILE_SHARE") == 0
               ? 0
               : -1;
}

static int teardown(void **state)
{
    return folder_remove(folder);
}

struct rank {
    int number;
    int (*body)(int rank, void *arg);
    void *arg;
};

static int as_rank(void *arg)
{
    const struct rank *rank = arg;
    char number[16];

    snprintf(number, sizeof number, "%d", rank->number);
    setenv("RANK", number, 1);
    return rank->body(rank->number, rank->arg);
}

/* The plugin has one ledger for a process: each rank is one. Its standard error comes
 * into `complaints`. Returns its exit status.
 */
static int run_rank(int rank, int (*body)(int rank, void *arg), void *arg)
{
    struct rank r = { rank, body, arg };

    return child_run(as_rank, &r, complaints, sizeof complaints);
}

static void load(struct mu_profile *p)
{
    char *paths[] = { folder };

    assert_int_equal(mu_profile_load(p, paths, 1, NULL, stderr), 0);
    assert_int_equal(p->faults, 0);
}

/* ---- Each interface -------------------------------------------------------------- */

static int two_calls(int rank, void *arg)
{
    struct fake_nccl nccl;
    struct fake_comm comm = {
        .hash = 0x1234, .name = "pipeline", .rank = rank, .size = 2, .nodes = 1
    };

    if (fake_nccl_open(&nccl, PROFILER, *(int *)arg) < 0 ||
        fake_comm_init(&comm, &nccl) != 0 || !comm.context)
        return 1;
    if (fake_other_start(&comm, 1 << 2) != NULL)
        return 2;
    fake_coll_run(&comm, &allreduce, 5000000, 5100000);
    fake_coll_run(&comm, &gather, 5200000, 5260000);
    return fake_comm_finalize(&comm);
}

static void check_call(const struct mu_profile_record *r, const struct fake_coll *coll,
                       int sequence, int version)
{
    assert_string_equal(r->call->func, coll->func);
    assert_string_equal(r->call->algo, coll->algo);
    assert_string_equal(r->call->proto, coll->proto);
    assert_int_equal(r->call->count, coll->count);
    assert_int_equal(r->call->channels, coll->channels);
    assert_int_equal(r->call->warps, 16);
    assert_int_equal(r->call->sequence, sequence);
    assert_int_equal(r->hash, 0x1234);
    assert_true(r->call->begin > 0 && r->call->end >= r->call->begin);
    assert_int_equal(r->call->ended, version >= 3 ? coll->channels : 0);
    if (version < 3)
        assert_int_equal(r->call->gpu_end, 0);
    else
        assert_true(r->call->gpu_begin > 0 && r->call->gpu_end > r->call->gpu_begin);
    if (version >= 4) {
        assert_int_equal(r->call->gpu_begin, sequence ? 5200000 : 5000000);
        assert_int_equal(r->call->gpu_end, sequence ? 5260000 : 5100000);
    }
}

static void every_interface_gives_the_same_records(void **state)
{
    for (int version = 1; version <= FAKE_NCCL_VERSIONS; version++) {
        struct mu_profile p;

        setup(NULL);
        for (int rank = 0; rank < 2; rank++)
            assert_int_equal(run_rank(rank, two_calls, &version), 0);
        load(&p);
        assert_int_equal(p.nfiles, 2);
        assert_int_equal(p.files[0].head->interface, version);
        assert_int_equal(p.files[1].head->rank, 1);
        assert_string_equal(p.files[1].head->job, "71.3");
        assert_int_equal(mu_ledger_comms(p.files[0].image)->finalized, 1);
        assert_int_equal(p.ncomms, 1);
        assert_string_equal(p.comms[0].name, "pipeline");
        assert_int_equal(p.comms[0].size, 2);
        assert_int_equal(p.comms[0].ranks, 2);
        assert_int_equal(p.nrecords, 4);
        check_call(&p.records[0], &gather, 1, version);
        check_call(&p.records[2], &allreduce, 0, version);
        assert_int_equal(p.records[3].rank, 1);
        assert_true(p.records[0].bytes == 4000 && p.records[2].bytes == 4 << 20);
        mu_profile_clear(&p);
        teardown(NULL);
    }
    setup(NULL);
}

static void only_the_interfaces_are_exported(void **state)
{
    void *library = dlopen(PROFILER, RTLD_NOW | RTLD_LOCAL);
    char name[32];

    if (!library)
        fail_msg("%s", dlerror());
    for (int v = 1; v <= FAKE_NCCL_VERSIONS; v++) {
        snprintf(name, sizeof name, "ncclProfiler_v%d", v);
        assert_non_null(dlsym(library, name));
        assert_string_equal(*(char **)dlsym(library, name), "muster");
    }
    assert_null(dlsym(library, "ncclProfiler_v8"));
    assert_null(dlsym(library, "mu_ledger_open"));
    dlclose(library);
}

/* ---- What NCCL does not do in order ---------------------------------------------- */

static int out_of_order(int rank, void *arg)
{
    struct fake_nccl nccl;
    struct fake_comm comm = { .hash = 9, .rank = 0, .size = 2, .nodes = 1 };
    struct fake_comm second = { .hash = 10, .rank = 1, .size = 2, .nodes = 1 };
    struct fake_comm third = { .hash = 11, .rank = 0, .size = 1, .nodes = 1 };
    void *coll[2], *channel[3];

    if (fake_nccl_open(&nccl, PROFILER, 5) < 0 || fake_comm_init(&comm, &nccl) != 0 ||
        fake_comm_init(&second, &nccl) != 0)
        return 1;
    coll[0] = fake_coll_start(&comm, &allreduce);
    coll[1] = fake_coll_start(&second, &allreduce);
    channel[0] = fake_channel_start(&second, coll[1], 0, 700);
    channel[1] = fake_channel_start(&comm, coll[0], 0, 500);
    channel[2] = fake_channel_start(&comm, coll[0], 1, 400);
    fake_channel_stop(&comm, channel[1], 900);
    fake_stop(&second, coll[1]); /* the launch of the other one never ends */
    fake_channel_stop(&second, channel[0], 800);
    if (fake_channel_start(&comm, NULL, 0, 1) != NULL) /* a call that had no handle */
        return 2;
    fake_comm_finalize(&comm); /* a channel still runs */
    fake_comm_finalize(&second);
    fake_nccl_close(&nccl); /* NCCL: after the last communicator */
    if (fake_nccl_open(&nccl, PROFILER, 5) < 0 || fake_comm_init(&third, &nccl) != 0)
        return 3;
    fake_coll_run(&third, &gather, 10, 20);
    return 0; /* without finalize */
}

static void stops_may_be_out_of_order_or_missing(void **state)
{
    const struct mu_ledger_call *call;
    struct mu_profile p;

    assert_int_equal(run_rank(0, out_of_order, NULL), 0);
    load(&p);
    assert_int_equal(p.nfiles, 1); /* one file, although the plugin was loaded twice */
    call = mu_ledger_calls(p.files[0].image);
    assert_int_equal(p.nrecords, 3);
    assert_int_equal(call[0].gpu_begin, 400);
    assert_int_equal(call[0].gpu_end, 900);
    assert_int_equal(call[0].began, 2);
    assert_int_equal(call[0].ended, 1);
    assert_int_equal(call[0].end, 0);
    assert_int_equal(call[1].gpu_begin, 700);
    assert_int_equal(call[1].gpu_end, 800);
    assert_true(call[1].end > 0);
    assert_int_equal(call[2].gpu_end, 20);
    assert_int_equal(p.nrows, 3);
    assert_int_equal(p.rows[0].unfinished, 1);
    assert_true(p.rows[0].median == -1 && p.rows[0].busbw == -1);
    assert_true(p.rows[1].median == 0.1);
    assert_int_equal(p.comms[0].missing, 1);
    assert_int_equal(mu_ledger_comms(p.files[0].image)[2].finalized, 0);
    mu_profile_clear(&p);
}

static int late_stops(int rank, void *arg)
{
    struct fake_nccl nccl;
    struct fake_comm comm = { .hash = 9, .rank = 0, .size = 2, .nodes = 1 };
    void *first, *channel, *now;

    if (fake_nccl_open(&nccl, PROFILER, 7) < 0 || fake_comm_init(&comm, &nccl) != 0)
        return 1;
    first = fake_coll_start(&comm, &allreduce);
    channel = fake_channel_start(&comm, first, 0, 50);
    for (int i = 1; i < 64; i++)
        fake_coll_run(&comm, &allreduce, 100, 200);
    now = fake_coll_start(&comm, &gather); /* in the slot of the first */
    fake_stop(&comm, first);
    fake_channel_stop(&comm, channel, 999);
    if (fake_channel_start(&comm, first, 1, 1) != NULL || !now)
        return 2;
    return fake_comm_finalize(&comm);
}

static void an_overwritten_call_does_not_touch_the_one_in_its_place(void **state)
{
    const struct mu_ledger_call *call;
    struct mu_profile p;

    setenv("MUSTER_PROFILE_RECORDS", "64", 1);
    assert_int_equal(run_rank(0, late_stops, NULL), 0);
    load(&p);
    assert_int_equal(p.files[0].size, mu_ledger_file_size(64));
    assert_int_equal(p.files[0].head->calls, 65);
    assert_int_equal(p.overwritten, 1);
    call = mu_ledger_calls(p.files[0].image);
    assert_string_equal(call->func, "AllGather");
    assert_int_equal(call->number, 65);
    assert_int_equal(call->end, 0);
    assert_int_equal(call->gpu_begin + call->gpu_end + call->began + call->ended, 0);
    mu_profile_clear(&p);
}

/* ---- Threads --------------------------------------------------------------------- */

#define THREADS 4
#define CALLS 3000

static void *one_thread(void *arg)
{
    struct fake_comm *comm = arg;

    for (int i = 0; i < CALLS; i++)
        fake_coll_run(comm, &allreduce, 1000, 2000);
    return NULL;
}

static int threads(int rank, void *arg)
{
    struct fake_comm comm[THREADS];
    pthread_t thread[THREADS];
    struct fake_nccl nccl;

    if (fake_nccl_open(&nccl, PROFILER, 5) < 0)
        return 1;
    for (int i = 0; i < THREADS; i++) {
        comm[i] = (struct fake_comm){ .hash = (uint64_t)i + 1, .size = 1, .nodes = 1 };
        if (fake_comm_init(&comm[i], &nccl) != 0)
            return 1;
        pthread_create(&thread[i], NULL, one_thread, &comm[i]);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    return 0;
}

static void threads_lose_no_record(void **state)
{
    struct mu_profile p;

    assert_int_equal(run_rank(0, threads, NULL), 0);
    assert_string_equal(complaints, ""); /* of a sanitizer, too */
    load(&p);
    assert_int_equal(p.nrecords, THREADS * CALLS);
    assert_int_equal(p.nrows, THREADS);
    for (int i = 0; i < p.nrows; i++) {
        assert_int_equal(p.rows[i].calls, CALLS);
        assert_int_equal(p.rows[i].unfinished, 0);
        assert_true(p.rows[i].least == 1 && p.rows[i].most == 1);
    }
    mu_profile_clear(&p);
}

static int many_communicators(int rank, void *arg)
{
    struct fake_nccl nccl;

    if (fake_nccl_open(&nccl, PROFILER, 6) < 0)
        return 1;
    for (int i = 0; i < MU_LEDGER_COMMS + 50; i++) {
        struct fake_comm comm = { .hash = (uint64_t)i + 1, .size = 1, .nodes = 1 };

        if (fake_comm_init(&comm, &nccl) != 0)
            return 1;
        fake_coll_run(&comm, &gather, 10, 20);
        fake_comm_finalize(&comm);
    }
    return 0;
}

static void communicators_beyond_the_table_share_an_entry(void **state)
{
    struct mu_profile p;

    assert_int_equal(run_rank(0, many_communicators, NULL), 0);
    load(&p);
    assert_int_equal(p.ncomms, MU_LEDGER_COMMS);
    assert_string_equal(p.comms[MU_LEDGER_COMMS - 1].name, "(others)");
    assert_int_equal(p.nrecords, MU_LEDGER_COMMS + 50);
    mu_profile_clear(&p);
}

/* ---- Windows --------------------------------------------------------------------- */

#define SECOND ((int64_t)1000000000)
#define PATIENCE (60 * SECOND)

static void a_window_begins_each_period_and_the_first_period_is_timed(void **state)
{
    const int64_t opened = 1000 * SECOND + SECOND / 2;
    struct mu_timing t;
    struct mu_err err = { 0 };
    static const struct {
        double after; /* opened, s; below 0: the clock was set back */
        bool due;
    } cases[] = {
        { 0, true },       { 10, true },     { 19.99, true }, { 20.49, true },
        { 20.51, false },  { 39.4, false },  { 39.51, true }, { 40.49, true },
        { 40.51, false },  { 59.49, false }, { 59.51, true }, { 60.51, false },
        { 7219.51, true }, { -5, false },    { -0.49, true },
    };

    assert_int_equal(mu_timing_open_asked(&t, opened, &err), 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (mu_timing_due(&t, opened + (int64_t)(cases[i].after * 1e9)) != cases[i].due)
            fail_msg("%g s after it was opened", cases[i].after);
    setenv("MUSTER_PROFILE_SHARE", "100", 1);
    assert_int_equal(mu_timing_open_asked(&t, opened, &err), 0);
    for (int i = 0; i < 1000; i++)
        assert_true(mu_timing_due(&t, opened + i * SECOND / 7));
}

static bool is_timed(const struct fake_comm *comm)
{
    return comm->mask & 1 << 6;
}

/* Call until a call is timed, or is not. */
static int call_until(struct fake_comm *comm, bool timed)
{
    int64_t from = mu_clock_ns();

    do
        fake_coll_run(comm, &allreduce, 1000, 2000);
    while (is_timed(comm) != timed && mu_clock_ns() - from < PATIENCE);
    return is_timed(comm) == timed ? 0 : -1;
}

static int windows(int rank, void *arg)
{
    struct fake_nccl nccl;
    struct fake_comm comm = { .hash = 9, .rank = 0, .size = 2, .nodes = 1 };

    setenv("MUSTER_PROFILE_WINDOW", "0.001", 1);
    setenv("MUSTER_PROFILE_SHARE", "1", 1);
    if (fake_nccl_open(&nccl, PROFILER, *(int *)arg) < 0 ||
        fake_comm_init(&comm, &nccl) != 0 || call_until(&comm, true) < 0 ||
        call_until(&comm, false) < 0 || call_until(&comm, true) < 0 ||
        call_until(&comm, false) < 0)
        return 1;
    return fake_comm_finalize(&comm);
}

static void calls_outside_of_a_window_have_no_times_and_are_not_unfinished(void **state)
{
    for (int version = 5; version <= FAKE_NCCL_VERSIONS; version++) {
        struct mu_profile p;
        int timed = 0;

        setup(NULL);
        assert_int_equal(run_rank(0, windows, &version), 0);
        assert_string_equal(complaints, "");
        load(&p);
        for (size_t i = 0; i < p.nrecords; i++) {
            const struct mu_ledger_call *call = p.records[i].call;

            timed += !call->untimed;
            assert_int_equal(call->began, call->untimed ? 0 : allreduce.channels);
            assert_int_equal(call->ended, call->began);
            assert_true(call->end >= call->begin);
        }
        assert_true(timed > 0 && (size_t)timed < p.nrecords);
        assert_int_equal(p.rows[0].unfinished, 0);
        assert_true(p.rows[0].median == 1);
        mu_profile_clear(&p);
        teardown(NULL);
    }
    setup(NULL);
}

static int captured(int rank, void *arg)
{
    struct fake_nccl nccl;
    struct fake_comm comm = { .hash = 9, .rank = 0, .size = 2, .nodes = 1 };
    int64_t from;

    setenv("MUSTER_PROFILE_WINDOW", "0.01", 1);
    setenv("MUSTER_PROFILE_SHARE", arg ? "100" : "50", 1);
    if (fake_nccl_open(&nccl, PROFILER, 5) < 0 || fake_comm_init(&comm, &nccl) != 0 ||
        (!arg && call_until(&comm, false) < 0))
        return 1;
    do { /* until one is captured outside of a window, or inside */
        comm.captured = true;
        fake_coll_run(&comm, &allreduce, 1000, 2000);
        comm.captured = false;
    } while (!arg && is_timed(&comm) && call_until(&comm, false) == 0);
    /* Ten windows would begin. */
    for (from = mu_clock_ns(); mu_clock_ns() - from < SECOND / 5;) {
        fake_coll_run(&comm, &allreduce, 1000, 2000);
        if (is_timed(&comm) != (arg != NULL))
            return 2;
    }
    return fake_comm_finalize(&comm);
}

static void a_call_captured_outside_of_a_window_ends_the_times(void **state)
{
    assert_int_equal(run_rank(0, captured, NULL), 0);
    if (strncmp(complaints, "muster: warning: profile: a collective was captured in a",
                56) != 0)
        fail_msg("%s", complaints);
    assert_ptr_equal(strchr(complaints, '\n'), complaints + strlen(complaints) - 1);
    assert_int_equal(run_rank(0, captured, complaints), 0);
    assert_string_equal(complaints, "");
}

/* ---- Refused --------------------------------------------------------------------- */

static int nothing_recorded(int rank, void *arg)
{
    struct fake_nccl nccl;
    struct fake_comm comm = { .hash = 9, .rank = 0, .size = 2, .nodes = 1 };

    if (fake_nccl_open(&nccl, PROFILER, 5) < 0)
        return 1;
    for (int i = 0; i < 2; i++)
        if (fake_comm_init(&comm, &nccl) != 0 || comm.context || comm.mask)
            return 2;
    return 0;
}

static void what_cannot_be_written_is_one_line_and_no_event(void **state)
{
    static const struct {
        const char *name, *folder, *records, *line;
    } cases[] = {
        { "no such folder", "/nonexistent/a", "64",
          "muster: warning: profile: the folder /nonexistent/a cannot be made: No such "
          "file or directory; nothing is recorded\n" },
        { "a file in its place", "/dev/null", "64",
          "cannot be made: Not a directory; nothing is recorded\n" },
        { "a number of records", "/tmp", "many", "MUSTER_PROFILE_RECORDS" },
        { "too few", "/tmp", "63", "MUSTER_PROFILE_RECORDS" },
    };
    static const struct {
        const char *name, *value;
    } settings[] = { { "MUSTER_PROFILE_SHARE", "0" },
                     { "MUSTER_PROFILE_SHARE", "101" },
                     { "MUSTER_PROFILE_WINDOW", "0" },
                     { "MUSTER_PROFILE_WINDOW", "long" } };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        setenv("MUSTER_PROFILE", cases[i].folder, 1);
        setenv("MUSTER_PROFILE_RECORDS", cases[i].records, 1);
        assert_int_equal(run_rank(0, nothing_recorded, NULL), 0);
        if (!strstr(complaints, cases[i].line))
            fail_msg("%s: %s", cases[i].name, complaints);
        assert_ptr_equal(strchr(complaints, '\n'), complaints + strlen(complaints) - 1);
    }
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        setup(NULL);
        setenv(settings[i].name, settings[i].value, 1);
        assert_int_equal(run_rank(0, nothing_recorded, NULL), 0);
        if (!strstr(complaints, settings[i].name))
            fail_msg("%s: %s", settings[i].name, complaints);
        teardown(NULL);
    }
    setup(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
        TEST(every_interface_gives_the_same_records),
        TEST(only_the_interfaces_are_exported),
        TEST(stops_may_be_out_of_order_or_missing),
        TEST(an_overwritten_call_does_not_touch_the_one_in_its_place),
        TEST(threads_lose_no_record),
        TEST(communicators_beyond_the_table_share_an_entry),
        TEST(a_window_begins_each_period_and_the_first_period_is_timed),
        TEST(calls_outside_of_a_window_have_no_times_and_are_not_unfinished),
        TEST(a_call_captured_outside_of_a_window_ends_the_times),
        TEST(what_cannot_be_written_is_one_line_and_no_event),
    };

    return cmocka_run_group_tests_name("profiler", tests, NULL, NULL);
}
