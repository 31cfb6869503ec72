/* SPDX-License-Identifier: BSD-3-Clause */
/* test_several.c - checkpoints and samplers with several ranks */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "runtime/muster.h"
#include "tests/unit/folder.h"
#include "tests/unit/forked.h"

static char folder[64];

static int make_folder(void **state)
{
    strcpy(folder, "/tmp/muster-several-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    return folder_remove(folder);
}

struct call {
    int (*body)(struct muster *m, int rank, void *arg);
    void *arg;
};

static int and_finalize(struct muster *m, int rank, void *arg)
{
    struct call *call = arg;
    int status = call->body(m, rank, call->arg);

    return status ? status : muster_finalize(m);
}

static void run_all(int size, int nodes, int (*body)(struct muster *, int, void *),
                    void *arg)
{
    struct forked_world w = { .size = size, .nodes = nodes };
    struct call call = { body, arg };

    forked_well("in order", w, and_finalize, &call);
}

/* ---- checkpoints ---- */

enum { BIG = 200001, PART = 1009 };

static uint64_t big[BIG];
static uint8_t part[PART * 8];

/* `part` is dealt out: rank r of size holds from r * PART / size on. */
static void make_items(struct muster_item *items, int rank, int size)
{
    uint64_t from = (uint64_t)(rank * PART / size * 8);
    uint64_t to = (uint64_t)((rank + 1) * PART / size * 8);

    items[0] = (struct muster_item){ .name = "big", .data = big, .bytes = sizeof big };
    items[1] = (struct muster_item){ .name = "part",
                                     .data = part + from,
                                     .bytes = to - from,
                                     .offset = from,
                                     .total = PART * 8 };
}

static void fill(uint64_t step)
{
    for (int i = 0; i < BIG; i++)
        big[i] = step * 7919 + (uint64_t)i;
    for (int i = 0; i < PART * 8; i++)
        part[i] = (uint8_t)(step + (uint64_t)i / 8);
}

static int save_shards(struct muster *m, int rank, void *arg)
{
    struct muster_checkpoint_options o = { .sharded = 1,
                                           .mode = MUSTER_CHECKPOINT_LAZY };
    struct muster_checkpoint *c;
    struct muster_item items[2];

    make_items(items, rank, muster_size(m));
    RANK_OK(muster_checkpoint_open(m, folder, &o, &c));
    for (uint64_t step = 10; step <= 30; step += 10) {
        fill(step);
        RANK_OK(muster_checkpoint_save(c, step, items, 2));
        muster_checkpoint_copied(c);
    }
    RANK_OK(muster_checkpoint_close(c));
    return 0;
}

static int load_shards(struct muster *m, int rank, void *arg)
{
    struct muster_checkpoint_options o = { .sharded = 1 };
    struct muster_checkpoint *c;
    struct muster_item items[2];
    uint64_t step, first;
    int found;

    make_items(items, rank, muster_size(m));
    RANK_OK(muster_checkpoint_open(m, folder, &o, &c));
    RANK_OK(muster_checkpoint_load(c, items, 2, &step, &found));
    RANK_CHECK(found && step == 30);
    first = items[1].offset;
    for (int i = 0; i < BIG; i++)
        RANK_CHECK(big[i] == 30 * 7919 + (uint64_t)i);
    for (uint64_t i = 0; i < PART * 8; i++) {
        int mine = i >= first && i < first + items[1].bytes;

        RANK_CHECK(part[i] == (mine ? (uint8_t)(30 + i / 8) : 0));
    }
    RANK_OK(muster_checkpoint_close(c));
    return 0;
}

static void shards_of_four_are_loaded_by_three_and_by_one(void **state)
{
    run_all(4, 2, save_shards, NULL);
    run_all(3, 1, load_shards, NULL);
    run_all(1, 1, load_shards, NULL);
}

/* Rank 1 cannot write: a folder is in the way of its temporary file. */
static int fail_on_one(struct muster *m, int rank, void *arg)
{
    struct muster_checkpoint_options o = { .sharded = 1 };
    struct muster_checkpoint *c;
    struct muster_item items[2];
    char blocked[160], committed[160];

    make_items(items, rank, muster_size(m));
    snprintf(blocked, sizeof blocked,
             "%s/checkpoint-000000000001.0001-of-0003.shard.tmp", folder);
    snprintf(committed, sizeof committed, "%s/checkpoint-000000000001.muster", folder);
    RANK_OK(muster_checkpoint_open(m, folder, &o, &c));
    if (rank == 1)
        RANK_CHECK(mkdir(blocked, 0777) == 0);
    RANK_CHECK(muster_checkpoint_save(c, 1, items, 2) == MUSTER_EIO);
    RANK_CHECK(strstr(muster_error(m), "rank 1 (") && strstr(muster_error(m), blocked));
    RANK_CHECK(access(committed, F_OK) < 0);
    RANK_OK(muster_barrier(m));
    if (rank == 1)
        RANK_CHECK(rmdir(blocked) == 0);
    RANK_OK(muster_barrier(m));
    RANK_OK(muster_checkpoint_save(c, 1, items, 2));
    RANK_CHECK(access(committed, F_OK) == 0);
    RANK_OK(muster_checkpoint_close(c));
    return 0;
}

static void what_one_rank_cannot_write_fails_on_all(void **state)
{
    run_all(3, 1, fail_on_one, NULL);
}

static bool is_slow; /* the next fsync of this process */

/* In place of libc's, for the library that this test links. */
int fsync(int fd)
{
    if (is_slow) {
        is_slow = false;
        sleep(4);
    }
    return (int)syscall(SYS_fsync, fd);
}

/* Case 087: rank 0's disk is slower than the deadline of 2 s. */
static int slow_disk(struct muster *m, int rank, void *arg)
{
    struct muster_item item = { .name = "big", .data = big, .bytes = sizeof big };
    struct muster_checkpoint *c;

    RANK_OK(muster_checkpoint_open(m, folder, NULL, &c));
    RANK_OK(muster_barrier(m));
    is_slow = rank == 0;
    RANK_OK(muster_checkpoint_save(c, 5, &item, 1));
    RANK_CHECK(!is_slow);
    RANK_OK(muster_checkpoint_close(c));
    return 0;
}

static void a_slow_disk_on_rank_0_is_no_timeout(void **state)
{
    struct forked_world w = { .size = 3, .nodes = 1, .timeout = 2 };
    struct call call = { slow_disk, NULL };
    struct forked_result r;

    forked_run(&w, and_finalize, &call, 60, &r);
    for (int i = 0; i < 3; i++)
        if (r.status[i] != 0 || r.seconds[i] < 3.9)
            fail_msg("rank %d ended with %d after %.1f s:\n%s", i, r.status[i],
                     r.seconds[i], r.text);
    forked_clear(&r);
}

static int load_unsharded(struct muster *m, int rank, void *arg)
{
    struct muster_item items[] = { { .name = "big", .data = big, .bytes = sizeof big },
                                   { .name = "odd", .data = part, .bytes = 13 } };
    struct muster_checkpoint *c;
    uint64_t step;
    int found;

    RANK_OK(muster_checkpoint_open(m, folder, NULL, &c));
    fill(rank == 0 ? 6 : 99); /* only rank 0's is saved */
    RANK_OK(muster_checkpoint_save(c, 6, items, 2));
    memset(big, 0, sizeof big);
    memset(part, 0, sizeof part);
    RANK_OK(muster_checkpoint_load(c, items, 2, &step, &found));
    RANK_CHECK(found && step == 6);
    for (int i = 0; i < BIG; i++)
        RANK_CHECK(big[i] == 6 * 7919 + (uint64_t)i);
    for (int i = 0; i < 20; i++)
        RANK_CHECK(part[i] == (i < 13 ? 6 + i / 8 : 0));
    RANK_OK(muster_checkpoint_close(c));
    return 0;
}

static void rank_0_reads_for_all(void **state)
{
    run_all(3, 3, load_unsharded, NULL);
}

/* ---- samplers ---- */

static int other_seed(struct muster *m, int rank, void *arg)
{
    struct muster_sampler_options o = { .samples = 100,
                                        .batch = 4,
                                        .seed = rank == 2 ? 8 : 7 };
    struct muster_sampler *s;

    RANK_CHECK(muster_sampler_create(m, &o, &s) == MUSTER_ECONTRACT);
    RANK_CHECK(
        strstr(muster_error(m), "seed is 7 on rank 0 (node a), but 8 on rank 2"));
    o.seed = 1;
    o.batch = rank == 1 ? 0 : 4;
    RANK_CHECK(muster_sampler_create(m, &o, &s) ==
               (rank == 1 ? MUSTER_EUSAGE : MUSTER_ECONTRACT));
    return 0;
}

static void samplers_that_differ_are_refused(void **state)
{
    run_all(3, 1, other_seed, NULL);
}

/* Two epochs, broken off and taken up: every rank's indices go into `seen`. */
struct tally {
    int seen[2][103];
};

static int walk(struct muster *m, int rank, void *arg)
{
    struct muster_sampler_options o = {
        .samples = 103, .batch = 5, .seed = 3, .tail = MUSTER_TAIL_KEEP
    };
    struct muster_sampler_state at = { 0 };
    struct tally *tally = arg;
    struct muster_sampler *s;
    uint64_t index[5], n;

    RANK_OK(muster_sampler_create(m, &o, &s));
    for (int epoch = 0; epoch < 2; epoch++) {
        muster_sampler_set_epoch(s, (uint64_t)epoch);
        for (int step = 0; muster_sampler_next(s, index, &n); step++) {
            for (uint64_t i = 0; i < n; i++)
                __atomic_add_fetch(&tally->seen[epoch][index[i]], 1, __ATOMIC_RELAXED);
            if (step == 2) {
                muster_sampler_save(s, &at);
                muster_sampler_destroy(s);
                RANK_OK(muster_sampler_create(m, &o, &s));
                RANK_OK(muster_sampler_restore(s, &at));
            }
        }
        RANK_CHECK(muster_sampler_steps(s) == 0);
    }
    at.seed = 4;
    RANK_CHECK(muster_sampler_restore(s, &at) == MUSTER_ECONTRACT);
    muster_sampler_destroy(s);
    return 0;
}

static void case_090_ranks_deal_out_each_sample_once_also_when_resumed(void **state)
{
    struct tally *tally = forked_shared(sizeof *tally);

    run_all(4, 1, walk, tally);
    for (int i = 0; i < 103; i++)
        if (tally->seen[0][i] != 1 || tally->seen[1][i] != 1)
            fail_msg("sample %d came %d and %d times", i, tally->seen[0][i],
                     tally->seen[1][i]);
}

/* 10 samples for 4 ranks of 3 each: the two that are missing are the epoch's first two.
 */
struct padded {
    int in_order, seen[10], first[2];
};

static int pad(struct muster *m, int rank, void *arg)
{
    struct padded *padded = arg;
    struct muster_sampler_options o = {
        .samples = 10, .batch = 3, .seed = 3, .in_order = padded->in_order
    };
    struct muster_sampler *s;
    uint64_t index[3], n;

    RANK_OK(muster_sampler_create(m, &o, &s));
    RANK_CHECK(muster_sampler_next(s, index, &n) == 1 && n == 3);
    for (int i = 0; i < 3; i++) {
        RANK_CHECK(index[i] < 10);
        __atomic_add_fetch(&padded->seen[index[i]], 1, __ATOMIC_RELAXED);
        if (rank == 0 && i < 2)
            padded->first[i] = (int)index[i];
    }
    RANK_CHECK(muster_sampler_next(s, index, &n) == 0);
    muster_sampler_destroy(s);
    return 0;
}

static void padding_takes_the_first_samples_of_the_epoch_again(void **state)
{
    for (int in_order = 0; in_order < 2; in_order++) {
        struct padded *padded = forked_shared(sizeof *padded);

        padded->in_order = in_order;
        run_all(4, 1, pad, padded);
        for (int i = 0; i < 10; i++)
            assert_int_equal(padded->seen[i],
                             1 + (i == padded->first[0] || i == padded->first[1]));
        assert_true(!in_order || (padded->first[0] == 0 && padded->first[1] == 1));
    }
}

int main(void)
{
#define IN_A_FOLDER(test)                                                              \
    cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        IN_A_FOLDER(shards_of_four_are_loaded_by_three_and_by_one),
        IN_A_FOLDER(what_one_rank_cannot_write_fails_on_all),
        IN_A_FOLDER(a_slow_disk_on_rank_0_is_no_timeout),
        IN_A_FOLDER(rank_0_reads_for_all),
        cmocka_unit_test(samplers_that_differ_are_refused),
        cmocka_unit_test(case_090_ranks_deal_out_each_sample_once_also_when_resumed),
        cmocka_unit_test(padding_takes_the_first_samples_of_the_epoch_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
