/* SPDX-License-Identifier: BSD-3-Clause */
/* test_tuner.c - the plugin for NCCL's tuner, called as NCCL does: what a table proves
 * faster is taken, and nothing else
 */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "runtime/core/tuner_trial.h"
#include "tests/unit/child.h"

enum { FIRST = 2, LAST = 6 }; /* interfaces */
enum { BROADCAST, REDUCE, ALLGATHER, REDUCE_SCATTER, ALLREDUCE };
enum { TREE, RING, COLLNET_DIRECT, COLLNET_CHAIN, NVLS, NVLS_TREE, PAT, ALGOS };
enum { LL, LL128, SIMPLE, PROTOS };
enum { INIT = 1, INFO, FINALIZE, CHUNK };

#define KIB (1 << 10)

static char path[] = "/tmp/muster-tuner-XXXXXX", complaints[4096];

/* The plugin finds it as that of NCCL. */
static int release = 22803;
int ncclGetVersion(int *version);
int ncclGetVersion(int *version)
{
    *version = release;
    return 0;
}

static const char table[] = "muster-tune 1\n"
                            "# a comment\n"
                            "nccl 2.28.3\n"
                            "2 1 AllReduce 64K RING LL 0 8 9\n"
                            "2 1 AllReduce 256K RING LL 0 10.5 17.2\n"
                            "2 1 AllReduce 256K RING LL 8 9.5 17.2\n"
                            "2 1 AllReduce 256K RING LL128 0 15.9 17.2\n"
                            "2 1 AllReduce 1M\tRING LL 0 40 25\n"
                            "2 1 AllReduce 1M RING LL128 16 24 25\n"
                            "2 1 Broadcast 1M RING LL128 0 50 50.5\n"
                            "2 1 AllReduce 4M NVLS SIMPLE 4 30 50\n"
                            "2 2 AllReduce 64K TREE SIMPLE 4 30 50\n"
                            "2 1 AllReduce 8K RING LL 0 8 9 stream\n"
                            "2 1 AllReduce 8K RING LL 0 9.1 9 graph\n"
                            "2 1 AllReduce 16K RING LL 0 8 9 stream\n"
                            "2 1 AllReduce 16K RING LL 0 9.3 9 graph\n"
                            "2 1 AllReduce 32K RING LL128 0 8.9 9 any\n"
                            "2 1 AllReduce 32K RING LL128 0 8.9 9 stream\n"
                            "4 2 AllGather 1K TREE SIMPLE 4 30 50\n"
                            "4 2 AllGather 1K PAT SIMPLE 4 20 50\n";

static void write_table(const char *text)
{
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static int setup(void **state)
{
    int fd = mkstemp(strcpy(path, "/tmp/muster-tuner-XXXXXX"));

    release = 22803;
    if (fd < 0 || close(fd) < 0)
        return -1;
    write_table(table);
    return setenv("MUSTER_TUNER", path, 1);
}

static int teardown(void **state)
{
    return unlink(path);
}

/* The plugin reads its table once for a process: each case has one. */
static int run(int (*body)(void *arg), const void *arg)
{
    return child_run(body, (void *)(uintptr_t)arg, complaints, sizeof complaints);
}

static void logger(int level, unsigned long flags, const char *file, int line,
                   const char *fmt, ...)
{
}

static void *const *symbol(int version)
{
    void *library = dlopen(TUNER, RTLD_NOW | RTLD_LOCAL);
    char name[32];

    snprintf(name, sizeof name, "ncclTunerPlugin_v%d", version);
    return library ? dlsym(library, name) : NULL;
}

static int init(void *const *plugin, int version, size_t ranks, size_t nodes,
                void **context)
{
    void *f = plugin[INIT];

    *context = (void *)-1;
    if (version <= 4)
        return ((int (*)(size_t, size_t, void *, void **))f)(ranks, nodes, logger,
                                                             context);
    return ((int (*)(void **, uint64_t, size_t, size_t, void *, void *, void *))f)(
        context, 7, ranks, nodes, logger, NULL, NULL);
}

/* What NCCL would do, -1 its own choice. */
struct choice {
    int algo, proto, channels;
};

/* NVLS and CollNet are impossible unless `nvls`; all other costs are 1. */
static struct choice ask(void *const *plugin, int version, void *context, int func,
                         size_t bytes, int ops, int nvls)
{
    struct choice c = { -1, -1, 0 };
    float cost[ALGOS][PROTOS];
    void *f = plugin[INFO];

    for (int a = 0; a < ALGOS; a++)
        for (int p = 0; p < PROTOS; p++)
            cost[a][p] = a >= COLLNET_DIRECT && a <= NVLS_TREE && !nvls ? -1 : 1;
    if (version == 2)
        ((int (*)(void *, int, size_t, int, int, int, int *, int *, int *))f)(
            context, func, bytes, 0, nvls, ops, &c.algo, &c.proto, &c.channels);
    else if (version == 3)
        ((int (*)(void *, int, size_t, int, void *, int, int, int *))f)(
            context, func, bytes, ops, cost, ALGOS, PROTOS, &c.channels);
    else
        ((int (*)(void *, int, size_t, int, void *, int, int, int, int *))f)(
            context, func, bytes, ops, cost, ALGOS, PROTOS, 0, &c.channels);
    for (int a = 0; a < ALGOS && version > 2; a++)
        for (int p = 0; p < PROTOS; p++)
            if (cost[a][p] == 0) {
                c.algo = c.algo == -1 ? a : -2; /* -2: more than one */
                c.proto = p;
            } else if (cost[a][p] !=
                       (a >= COLLNET_DIRECT && a <= NVLS_TREE && !nvls ? -1 : 1)) {
                c.algo = -3;
            }
    return c;
}

static const struct question {
    const char *name;
    int ranks, nodes, func;
    size_t bytes;
    int ops, nvls;
    struct choice want;
} questions[] = {
    { "the fastest way at a measured size",
      2,
      1,
      ALLREDUCE,
      256 * KIB,
      1,
      0,
      { RING, LL, 8 } },
    { "one that is faster, although not the fastest at its neighbour",
      2,
      1,
      ALLREDUCE,
      64 * KIB,
      1,
      0,
      { RING, LL, 0 } },
    { "between two sizes: the way that is faster at both",
      2,
      1,
      ALLREDUCE,
      128 * KIB + 4,
      1,
      0,
      { RING, LL, 0 } },
    { "between two sizes without such a way",
      2,
      1,
      ALLREDUCE,
      512 * KIB,
      1,
      0,
      { -1, -1, 0 } },
    { "faster on streams, not slower in graphs",
      2,
      1,
      ALLREDUCE,
      8 * KIB,
      1,
      0,
      { RING, LL, 0 } },
    { "slower in graphs", 2, 1, ALLREDUCE, 16 * KIB, 1, 0, { -1, -1, 0 } },
    { "1 % is noise in every form", 2, 1, ALLREDUCE, 32 * KIB, 1, 0, { -1, -1, 0 } },
    { "channels as measured", 2, 1, ALLREDUCE, 1024 * KIB, 1, 0, { RING, LL128, 16 } },
    { "1 % is noise", 2, 1, BROADCAST, 1024 * KIB, 1, 0, { -1, -1, 0 } },
    { "NVLS where NCCL lacks it", 2, 1, ALLREDUCE, 4096 * KIB, 1, 0, { -1, -1, 0 } },
    { "NVLS where NCCL has it, with its own channels",
      2,
      1,
      ALLREDUCE,
      4096 * KIB,
      1,
      1,
      { NVLS, SIMPLE, 0 } },
    { "below the smallest size", 2, 1, ALLREDUCE, 8 * KIB - 1, 1, 0, { -1, -1, 0 } },
    { "above the largest size", 2, 1, ALLREDUCE, 4096 * KIB + 1, 1, 1, { -1, -1, 0 } },
    { "another function", 2, 1, ALLGATHER, 256 * KIB, 1, 0, { -1, -1, 0 } },
    { "more nodes", 2, 2, ALLREDUCE, 64 * KIB, 1, 0, { TREE, SIMPLE, 4 } },
    { "more ranks", 4, 1, ALLREDUCE, 64 * KIB, 1, 0, { -1, -1, 0 } },
    { "several operations", 2, 1, ALLREDUCE, 256 * KIB, 2, 0, { -1, -1, 0 } },
};

static int ask_all(void *arg)
{
    int version = *(const int *)arg;
    void *const *plugin = symbol(version);
    void *context;

    if (!plugin || strcmp(plugin[0], "muster") != 0)
        return 200;
    if (version == 6 && plugin[CHUNK])
        return 201;
    for (size_t i = 0; i < sizeof questions / sizeof questions[0]; i++) {
        const struct question *q = &questions[i];
        struct choice got;

        if (init(plugin, version, (size_t)q->ranks, (size_t)q->nodes, &context) != 0)
            return 202;
        got = ask(plugin, version, context, q->func, q->bytes, q->ops, q->nvls);
        if (memcmp(&got, &q->want, sizeof got) != 0) {
            fprintf(stderr, "%s: algo %d proto %d channels %d\n", q->name, got.algo,
                    got.proto, got.channels);
            return (int)i + 1;
        }
        if (((int (*)(void *))plugin[FINALIZE])(context) != 0)
            return 203;
    }
    return 0;
}

static void every_interface_takes_what_was_measured_faster(void **state)
{
    for (int version = FIRST; version <= LAST; version++)
        if (run(ask_all, &version) != 0 || complaints[0])
            fail_msg("interface %d: %s", version, complaints);
}

/* PAT is unknown to interface 2, and is no row of smaller cost tables. */
static int ask_pat(void *arg)
{
    struct choice got;
    void *context;

    for (int version = FIRST; version <= LAST; version++) {
        void *const *plugin = symbol(version);

        init(plugin, version, 4, 2, &context);
        got = ask(plugin, version, context, ALLGATHER, KIB, 1, 0);
        if (got.algo != (version == 2 ? -1 : PAT) || got.channels)
            return version;
    }
    return 0;
}

static void an_algorithm_that_the_interface_lacks_is_left(void **state)
{
    assert_int_equal(run(ask_pat, NULL), 0);
}

/* ---- Trials ---------------------------------------------------------------------- */

/* As muster bench tune does: no table, one communicator, its ways in turns. */
static int try_ways(void *arg)
{
    enum { B = 64 * KIB };
    static const struct {
        struct mu_tune_span way;
        bool own;
        struct choice want;
        long taken;
    } turns[] = {
        { { ALLREDUCE, B, B, RING, LL, 4 }, false, { RING, LL, 4 }, 1 },
        { { ALLREDUCE, B, B, RING, LL, 4 }, true, { -1, -1, 0 }, 1 },
        { { ALLREDUCE, B, B, TREE, SIMPLE, 0 }, false, { TREE, SIMPLE, 0 }, 2 },
        { { ALLREDUCE, B, B, NVLS, SIMPLE, 0 }, false, { -1, -1, 0 }, 2 },
        { { ALLREDUCE, B + 4, B + 4, RING, LL, 4 }, false, { -1, -1, 0 }, 2 },
        { { ALLGATHER, B, B, RING, LL, 4 }, false, { -1, -1, 0 }, 2 },
    };
    int version = *(const int *)arg;
    void *const *plugin = symbol(version);
    void *library = dlopen(TUNER, RTLD_NOW | RTLD_LOCAL), *context;
    struct mu_tuner_trial *trial = library ? dlsym(library, MU_TUNER_TRIAL) : NULL;

    if (!trial)
        return 200;
    trial->on = true;
    if (init(plugin, version, 6, 3, &context) != 0 || trial->ranks != 6 ||
        trial->nodes != 3)
        return 201;
    for (size_t i = 0; i < sizeof turns / sizeof turns[0]; i++) {
        struct choice got;

        trial->way = turns[i].way;
        trial->own = turns[i].own;
        got = ask(plugin, version, context, ALLREDUCE, B, 1, 0);
        if (memcmp(&got, &turns[i].want, sizeof got) != 0 ||
            trial->taken != turns[i].taken)
            return (int)i + 1;
    }
    return ((int (*)(void *))plugin[FINALIZE])(context);
}

static void ways_on_trial_take_turns_without_a_table(void **state)
{
    unsetenv("MUSTER_TUNER");
    for (int version = FIRST; version <= LAST; version++) {
        assert_int_equal(run(try_ways, &version), 0);
        assert_string_equal(complaints, "");
    }
}

/* ---- Refused --------------------------------------------------------------------- */

static int only_defaults(void *arg)
{
    for (int version = FIRST; version <= LAST; version++) {
        void *const *plugin = symbol(version);
        struct choice got;
        void *context;

        if (init(plugin, version, 2, 1, &context) != 0 || context)
            return 1;
        got = ask(plugin, version, context, ALLREDUCE, 256 * KIB, 1, 1);
        if (got.algo != -1 || got.proto != -1 || got.channels)
            return 2;
    }
    return 0;
}

static void a_bad_table_is_one_sentence_and_nccl_chooses(void **state)
{
    static const struct {
        const char *text, *sentence;
    } cases[] = {
        { "", "this is no table of muster: line 1 is not 'muster-tune 1'" },
        { "#!/bin/sh\n", "this is no table of muster" },
        { "muster-tune 2\n", "this is no table of muster" },
        { "muster-tune 1\n", "the table has no row" },
        { "muster-tune 1\nnccl 2.28.3\n# no row\n", "the table has no row" },
        { "muster-tune 1\n2 1 AllReduce 1K RING LL 0 8 9\n",
          " line 2: the line 'nccl RELEASE' is missing before it" },
        { "muster-tune 1\nnccl 2.28\n", " line 2: 'nccl' needs a release such as" },
        { "muster-tune 1\nnccl 2.28.3\n2 1 AllReduce 1K RING LL 0 8\n",
          " line 3: a row has 9 or 10 fields, this one 8" },
        { "muster-tune 1\nnccl 2.28.3\n2 1 AllReduce 1K RING LL 0 8 9 x\n",
          " line 3: unknown form 'x'" },
        { "muster-tune 1\nnccl 2.28.3\n2 1 AllReduce 1K RING LL 0 8 9 graph x\n",
          " line 3: a row has 9 or 10 fields, this one 11" },
        { "muster-tune 1\nnccl 2.28.3\n2 3 AllReduce 1K RING LL 0 8 9\n",
          " line 3: nodes" },
        { "muster-tune 1\nnccl 2.28.3\n2 1 allreduce 1K RING LL 0 8 9\n",
          " line 3: unknown function 'allreduce'" },
        { "muster-tune 1\nnccl 2.28.3\n2 1 AllReduce 1Q RING LL 0 8 9\n",
          " line 3: bytes" },
        { "muster-tune 1\nnccl 2.28.3\n2 1 AllReduce 1K Ring LL 0 8 9\n",
          " line 3: unknown algorithm 'Ring'" },
        { "muster-tune 1\nnccl 2.28.3\n2 1 AllReduce 1K RING LL64 0 8 9\n",
          " line 3: unknown protocol 'LL64'" },
        { "muster-tune 1\nnccl 2.28.3\n2 1 AllReduce 1K RING LL 65 8 9\n",
          " line 3: channels" },
        { "muster-tune 1\nnccl 2.28.3\n2 1 AllReduce 1K RING LL 0 0 9\n",
          " line 3: us" },
        { "muster-tune 1\nnccl 2.28.3\n2 1 AllReduce 1K RING LL 0 nan 9\n",
          " line 3: us" },
        { "muster-tune 1\nnccl 2.28.3\n2 1 AllReduce 1K RING LL 0 8 inf\n",
          " line 3: default_us" },
        { "muster-tune 1\nnccl 2.28.9\n2 1 AllReduce 1K RING LL 0 8 9\n",
          " is for NCCL 2.28.9, this is 2.28.3" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_table(cases[i].text);
        assert_int_equal(run(only_defaults, NULL), 0);
        if (!strstr(complaints, cases[i].sentence) || !strstr(complaints, path) ||
            !strstr(complaints, "; NCCL chooses by itself\n"))
            fail_msg("'%s': %s", cases[i].text, complaints);
        assert_ptr_equal(strchr(complaints, '\n'), complaints + strlen(complaints) - 1);
    }
}

static void a_table_that_cannot_be_read_is_one_sentence(void **state)
{
    static const struct {
        const char *path, *sentence;
    } cases[] = {
        { "", "MUSTER_TUNER names no table" },
        { "/nonexistent", "/nonexistent: the file cannot be read: No such file" },
        { "/tmp", "/tmp: this is no regular file" },
        { "/dev/zero", "/dev/zero: this is no regular file" },
        { TUNER, "the file is no text, or cannot be read" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        setenv("MUSTER_TUNER", cases[i].path, 1);
        assert_int_equal(run(only_defaults, NULL), 0);
        if (!strstr(complaints, cases[i].sentence))
            fail_msg("%s: %s", cases[i].path, complaints);
        assert_ptr_equal(strchr(complaints, '\n'), complaints + strlen(complaints) - 1);
    }
}

static void more_rows_than_a_table_has_are_refused(void **state)
{
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    fputs("muster-tune 1\nnccl 2.28.3\n", f);
    for (int i = 0; i < 16385; i++)
        fprintf(f, "2 1 AllReduce %d RING LL 0 8 9\n", i + 1);
    fclose(f);
    assert_int_equal(run(only_defaults, NULL), 0);
    assert_non_null(strstr(complaints, "line 16387: more than 16384 rows"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
        TEST(every_interface_takes_what_was_measured_faster),
        TEST(an_algorithm_that_the_interface_lacks_is_left),
        TEST(ways_on_trial_take_turns_without_a_table),
        TEST(a_bad_table_is_one_sentence_and_nccl_chooses),
        TEST(a_table_that_cannot_be_read_is_one_sentence),
        TEST(more_rows_than_a_table_has_are_refused),
    };

    return cmocka_run_group_tests_name("tuner", tests, NULL, NULL);
}
