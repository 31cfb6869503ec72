/* SPDX-License-Identifier: BSD-3-Clause */
/* test_checkpoint.c - saving and resuming: what survives, what is refused, and by name
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "runtime/checkpoint/ckfile.h"
#include "runtime/checkpoint/checkpoint.h"
#include "tests/unit/checkpoints.h"

static void save(struct muster_checkpoint *c, uint64_t step)
{
    fill(step);
    if (muster_checkpoint_save(c, step, items, 2) != MUSTER_OK)
        fail_msg("%s", muster_error(m));
}

/* Load, expect the step (0: none there). */
static void expect_load(struct muster_checkpoint *c, uint64_t expected)
{
    uint64_t step = 0;
    int found = -1;

    memset(weights, 0xee, sizeof weights);
    if (muster_checkpoint_load(c, items, 2, &step, &found) != MUSTER_OK)
        fail_msg("%s", muster_error(m));
    assert_int_equal(found, expected != 0);
    assert_int_equal(step, expected);
    if (expected)
        assert_true(holds(expected));
}

static void damage(uint64_t step)
{
    char path[128], byte = 0x55;
    int fd;

    path_of(path, step);
    fd = open(path, O_RDWR);
    assert_int_equal(pwrite(fd, &byte, 1, 1234567), 1);
    close(fd);
}

static void an_empty_folder_holds_none(void **state)
{
    struct muster_checkpoint *c = opened(NULL);

    assert_string_equal(muster_checkpoint_path(c), "");
    expect_load(c, 0);
    assert_int_equal(muster_checkpoint_close(c), MUSTER_OK);
}

static void the_newest_is_loaded_and_three_are_kept(void **state)
{
    struct muster_checkpoint *c = opened(NULL);
    char path[128], target[128] = "";

    for (uint64_t step = 1; step <= 5; step++)
        save(c, step * 90);
    for (uint64_t step = 1; step <= 5; step++)
        assert_int_equal(exists(step * 90), step >= 3);
    expect_load(c, 450);
    path_of(path, 450);
    assert_string_equal(muster_checkpoint_path(c), path);
    sprintf(path, "%s/checkpoint-latest.muster", folder);
    assert_true(readlink(path, target, sizeof target - 1) > 0);
    assert_string_equal(target, "checkpoint-000000000450.muster");
    muster_checkpoint_close(c);
}

static void each_mode_saves_what_was_there_at_the_call(void **state)
{
    for (int mode = MUSTER_CHECKPOINT_WAIT; mode <= MUSTER_CHECKPOINT_LAZY; mode++) {
        struct muster_checkpoint_options o = { .mode = mode };
        struct muster_checkpoint *c = opened(&o);

        for (uint64_t step = 1; step <= 8; step++) {
            save(c, 100 * (uint64_t)mode + step);
            muster_checkpoint_copied(c);
            fill(77); /* the training goes on */
        }
        expect_load(c, 100 * (uint64_t)mode + 8);
        muster_checkpoint_close(c);
    }
}

static void a_damaged_one_gives_way_to_the_one_before(void **state)
{
    struct muster_checkpoint *c = opened(NULL);
    uint64_t step;
    int found;
    char path[128];

    save(c, 1);
    save(c, 2);
    save(c, 3);
    damage(3);
    expect_load(c, 2);
    path_of(path, 2);
    assert_int_equal(truncate(path, 100000), 0);
    expect_load(c, 1);
    damage(1);
    assert_int_equal(muster_checkpoint_load(c, items, 2, &step, &found), MUSTER_EIO);
    path_of(path, 3);
    if (!strstr(muster_error(m), path))
        fail_msg("'%s' does not name %s", muster_error(m), path);
    muster_checkpoint_close(c);
}

static void a_foreign_one_is_refused(void **state)
{
    struct muster_checkpoint_options mine = { .kind = "mlp" },
                                     other = { .kind = "cnn" };
    struct muster_item longer[] = { items[0], items[1] };
    struct muster_checkpoint *c = opened(&other);
    char path[128];
    uint64_t step;
    int found;
    FILE *f;

    save(c, 9);
    muster_checkpoint_close(c);
    c = opened(&mine);
    assert_int_equal(muster_checkpoint_load(c, items, 2, &step, &found),
                     MUSTER_ECONTRACT);
    assert_non_null(strstr(muster_error(m), "'cnn'"));
    save(c, 5);
    expect_load(c, 5); /* in front of it lies the foreign one of step 9 */
    path_of(path, 12);
    f = fopen(path, "w");
    fputs("something else", f);
    fclose(f);
    expect_load(c, 5);

    longer[1].bytes = 18;
    assert_int_equal(muster_checkpoint_load(c, longer, 2, &step, &found), MUSTER_EIO);
    unlink(path);
    path_of(path, 9);
    unlink(path);
    assert_int_equal(muster_checkpoint_load(c, longer, 2, &step, &found),
                     MUSTER_ECONTRACT);
    assert_non_null(strstr(muster_error(m), "'odd' with 17 bytes"));
    longer[1].name = "new";
    assert_int_equal(muster_checkpoint_load(c, longer, 2, &step, &found),
                     MUSTER_ECONTRACT);
    assert_int_equal(muster_checkpoint_load(c, items, 1, &step, &found),
                     MUSTER_ECONTRACT);
    muster_checkpoint_close(c);
}

static void a_renamed_one_is_refused(void **state)
{
    struct muster_checkpoint *c = opened(NULL);
    char from[128], to[128];
    uint64_t step;
    int found;

    save(c, 4);
    path_of(from, 4);
    path_of(to, 40);
    rename(from, to);
    assert_int_equal(muster_checkpoint_load(c, items, 2, &step, &found), MUSTER_EIO);
    muster_checkpoint_close(c);
}

static void case_060_a_run_that_went_back_keeps_its_own(void **state)
{
    struct muster_checkpoint_options o = { .keep = 2 };
    struct muster_checkpoint *c = opened(&o);

    save(c, 100);
    save(c, 200);
    damage(200);
    damage(100);
    save(c, 10); /* older by number than the two damaged ones, and yet it stays */
    save(c, 20);
    save(c, 30);
    expect_load(c, 30);
    assert_true(exists(20));
    assert_false(exists(10));
    save(c, 200); /* the second attempt at the same step replaces the damaged file */
    expect_load(c, 200);
    muster_checkpoint_close(c);
}

static void leftovers_are_swept(void **state)
{
    static const struct {
        const char *name;
        int stays;
    } files[] = {
        { "checkpoint-000000000007.muster.tmp", 0 },
        { "checkpoint-000000000007.0000-of-0002.shard.tmp", 0 },
        { "checkpoint-000000000007.0001-of-0002.shard", 0 },
        { "checkpoint-notes.tmp", 1 },
        { "other-000000000007.muster.tmp", 1 },
        { "checkpoint-000000000007.muster.txt", 1 },
    };
    enum { FILES = sizeof files / sizeof files[0] };
    struct muster_checkpoint *c;
    char path[192];

    for (int i = 0; i < FILES; i++) {
        sprintf(path, "%s/%s", folder, files[i].name);
        fclose(fopen(path, "w"));
    }
    c = opened(NULL);
    expect_load(c, 0);
    for (int i = 0; i < FILES; i++) {
        sprintf(path, "%s/%s", folder, files[i].name);
        if ((access(path, F_OK) == 0) != files[i].stays)
            fail_msg("%s", files[i].name);
    }
    muster_checkpoint_close(c);
}

/* A world of three wrote it, each rank a third of every item. */
static void shards_of_another_world_are_put_together(void **state)
{
    struct muster_checkpoint_options sharded = { .sharded = 1 };
    struct mu_ckid ids[3];
    struct mu_ckpart record = { .name = MU_CHECKPOINT_SHARDS,
                                .data = ids,
                                .bytes = sizeof ids,
                                .total = sizeof ids };
    struct mu_ckmeta meta = { .step = 6, .nshards = 3, .world = 3 };
    struct muster_checkpoint *c;
    char path[128];
    uint64_t step;
    int found;

    fill(6);
    for (int r = 0; r < 3; r++) {
        struct mu_ckpart parts[2] = { { .name = "weights", .total = sizeof weights },
                                      { .name = "odd", .total = 17 } };

        for (int i = 0; i < 2; i++) {
            mu_checkpoint_slice(items[i].bytes, r, 3, &parts[i].offset,
                                &parts[i].bytes);
            parts[i].data = (uint8_t *)items[i].data + parts[i].offset;
        }
        meta.shard = (uint32_t)r;
        sprintf(path, "%s/checkpoint-000000000006.%04d-of-0003.shard", folder, r);
        assert_int_equal(mu_ckfile_write(path, &meta, parts, 2, &ids[r], NULL), 0);
    }
    meta.shard = 0;
    path_of(path, 6);
    assert_int_equal(mu_ckfile_write(path, &meta, &record, 1, NULL, NULL), 0);

    c = opened(NULL);
    expect_load(c, 6);
    muster_checkpoint_close(c);
    c = opened(&sharded);
    expect_load(c, 6);
    save(c, 8);
    expect_load(c, 8);
    sprintf(path, "%s/checkpoint-000000000006.0001-of-0003.shard", folder);
    assert_int_equal(access(path, F_OK), 0);
    /* Part of an item: bytes 5 .. 11 of the 17 */
    struct muster_item part[] = {
        items[0], { .name = "odd", .data = odd, .offset = 5, .bytes = 7, .total = 17 }
    };
    memset(odd, 0, sizeof odd);
    assert_int_equal(muster_checkpoint_load(c, part, 2, &step, &found), MUSTER_OK);
    assert_int_equal(odd[0] >> 24 & 0xff, 8); /* byte 8 is byte 3 of the part */
    assert_int_equal(((uint8_t *)odd)[7], 0);
    /* A shard is missing: the checkpoint before is used. */
    fill(6);
    sprintf(path, "%s/checkpoint-000000000008.0000-of-0001.shard", folder);
    unlink(path);
    expect_load(c, 6);
    muster_checkpoint_close(c);
}

static void slices_cover_an_item_once(void **state)
{
    static const uint64_t sizes[] = { 0, 1, 17, 63, 64, 65, 1000, 4096, 123457 };

    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++)
        for (int size = 1; size < 9; size++) {
            uint64_t next = 0, offset, length;

            for (int r = 0; r < size; r++) {
                mu_checkpoint_slice(sizes[k], r, size, &offset, &length);
                assert_int_equal(offset, next);
                next = offset + length;
            }
            assert_int_equal(next, sizes[k]);
        }
}

static void wrong_arguments_are_refused(void **state)
{
    static const struct {
        const char *name;
        struct muster_item item;
        const char *says;
    } cases[] = {
        { "no name", { .data = weights, .bytes = 8 }, "needs a name" },
        { "a name of ours",
          { .name = "muster.x", .data = weights, .bytes = 8 },
          "muster." },
        { "no data", { .name = "a", .bytes = 8 }, "has no data" },
        { "a part behind the end",
          { .name = "a", .data = weights, .bytes = 8, .offset = 1, .total = 8 },
          "no bytes 1 to 9" },
        { "a part, not sharded",
          { .name = "a", .data = weights, .bytes = 8, .total = 16 },
          "sharded" },
    };
    struct muster_checkpoint *c = opened(NULL);
    struct muster_item twice[] = { items[0], items[0] };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(muster_checkpoint_save(c, 1, &cases[i].item, 1),
                         MUSTER_EUSAGE);
        if (!strstr(muster_error(m), cases[i].says))
            fail_msg("%s: '%s'", cases[i].name, muster_error(m));
    }
    assert_int_equal(muster_checkpoint_save(c, 1, twice, 2), MUSTER_EUSAGE);
    assert_false(exists(1));
    save(c, 2); /* and the next one works */
    muster_checkpoint_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_A_FOLDER(an_empty_folder_holds_none),
        IN_A_FOLDER(the_newest_is_loaded_and_three_are_kept),
        IN_A_FOLDER(each_mode_saves_what_was_there_at_the_call),
        IN_A_FOLDER(a_damaged_one_gives_way_to_the_one_before),
        IN_A_FOLDER(a_foreign_one_is_refused),
        IN_A_FOLDER(a_renamed_one_is_refused),
        IN_A_FOLDER(case_060_a_run_that_went_back_keeps_its_own),
        IN_A_FOLDER(leftovers_are_swept),
        IN_A_FOLDER(shards_of_another_world_are_put_together),
        cmocka_unit_test(slices_cover_an_item_once),
        IN_A_FOLDER(wrong_arguments_are_refused),
    };

    return cmocka_run_group_tests(tests, alone, together);
}
