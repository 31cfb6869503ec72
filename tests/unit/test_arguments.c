/* SPDX-License-Identifier: BSD-3-Clause */
/* test_arguments.c - arguments that make no sense are refused */
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "tests/unit/folder.h"
#include "tests/unit/model.h"

static int finish_body(struct muster *m, int rank, void *arg)
{
    static const struct {
        double max_norm, scale;
    } bad[] = {
        { -1, 1 }, { NAN, 1 }, { 1, 0 }, { 1, -1 }, { 1, NAN }, { 1, INFINITY }
    };
    struct muster_ddp *ddp = model(m);

    RANK_CHECK(muster_ddp_sync_with(ddp, NULL, NULL) == MUSTER_EUSAGE);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct muster_scaler scaler = { .scale = bad[i].scale, .interval = 1 };
        struct muster_finish f = { .max_norm = bad[i].max_norm, .scaler = &scaler };

        RANK_CHECK(muster_ddp_sync_with(ddp, &f, NULL) == MUSTER_EUSAGE);
        RANK_CHECK(muster_ddp_join_with(ddp, &f, NULL, NULL) == MUSTER_EUSAGE);
    }
    backward(m, ddp, (float)rank);
    RANK_OK(muster_ddp_sync(ddp, NULL));
    RANK_CHECK(first(ddp)[0] == 1);
    muster_ddp_destroy(ddp);
    return muster_finalize(m);
}

static void what_sync_cannot_finish_is_refused(void **state)
{
    forked_well("finish", (struct forked_world){ .size = 3 }, finish_body, NULL);
}

static int nowhere_body(struct muster *m, int rank, void *arg)
{
    struct muster_sampler_options o = { .samples = 9, .batch = 1 };
    struct muster_sampler *sampler;

    RANK_CHECK(muster_sampler_create(m, NULL, &sampler) == MUSTER_EUSAGE);
    RANK_CHECK(muster_sampler_create(m, &o, NULL) == MUSTER_EUSAGE);
    RANK_CHECK(muster_checkpoint_open(m, "/tmp", NULL, NULL) == MUSTER_EUSAGE);
    RANK_OK(muster_extend(m, INFINITY));
    RANK_OK(muster_barrier(m));
    return muster_finalize(m);
}

static void a_result_without_a_place_is_refused(void **state)
{
    forked_well("nowhere", (struct forked_world){ .size = 2 }, nowhere_body, NULL);
}

/* A program of a newer muster.h sets a field that this library does not have. */
static int newer_body(struct muster *m, int rank, void *arg)
{
    struct muster_param p = { .name = "a", .count = 9, .dtype = MUSTER_F32 };
    struct muster_ddp_options options = { .screen = 1 };
    struct muster_hook hook = { .compress = MUSTER_COMPRESS_BF16 };
    struct muster_sampler_options samples = { .samples = 9, .batch = 1 };
    struct muster_checkpoint_options folder = { .name = "newer" };
    struct muster_item item = { .name = "a", .data = &rank, .bytes = sizeof rank };
    struct muster_scaler scaler = { .scale = 1, .interval = 1 };
    struct muster_finish finish = { .scaler = &scaler };
    struct muster_checkpoint *checkpoint;
    struct muster_sampler *sampler;
    struct muster_ddp *ddp = model(m), *other;
    int found;
    uint64_t step, *const last[] = {
        &p.reserved[2],       &options.reserved[7], &hook.reserved[3],
        &samples.reserved[3], &folder.reserved[3],  &item.reserved[3],
        &finish.reserved[3],  &scaler.reserved[1],
    };

    options.hook = &hook;
    RANK_OK(muster_checkpoint_open(m, arg, NULL, &checkpoint));
    for (size_t i = 0; i < sizeof last / sizeof last[0]; i++) {
        *last[i] = 1;
        RANK_CHECK((muster_ddp_create(m, &p, 1, &options, &other) == MUSTER_EUSAGE) ==
                   (i < 3));
        if (i >= 3)
            muster_ddp_destroy(other);
        if (i == 3)
            RANK_CHECK(muster_sampler_create(m, &samples, &sampler) == MUSTER_EUSAGE);
        if (i == 4)
            RANK_CHECK(muster_checkpoint_open(m, arg, &folder, &checkpoint) ==
                       MUSTER_EUSAGE);
        if (i == 5) {
            RANK_CHECK(muster_checkpoint_save(checkpoint, 1, &item, 1) ==
                       MUSTER_EUSAGE);
            RANK_CHECK(muster_checkpoint_load(checkpoint, &item, 1, &step, &found) ==
                       MUSTER_EUSAGE);
        }
        if (i >= 6) {
            RANK_CHECK(muster_ddp_sync_with(ddp, &finish, NULL) == MUSTER_EUSAGE);
            RANK_CHECK(strstr(muster_error(m), "a reserved field of struct muster_"));
            RANK_CHECK(muster_ddp_join_with(ddp, &finish, NULL, NULL) == MUSTER_EUSAGE);
        }
        *last[i] = 0;
    }
    RANK_OK(muster_checkpoint_close(checkpoint));
    muster_ddp_destroy(ddp);
    return muster_finalize(m);
}

static void a_field_of_a_newer_library_is_refused(void **state)
{
    char folder[] = "/tmp/muster-newer-XXXXXX";

    assert_non_null(mkdtemp(folder));
    forked_well("newer", (struct forked_world){ .size = 2 }, newer_body, folder);
    rmdir(folder);
}

static int gather_nothing(void *arg, const void *mine, void *all, size_t bytes)
{
    return 1;
}

static void init_refuses(const struct muster_options *options, const char *name)
{
    struct muster *m = (struct muster *)-1;
    char sentence[96];

    snprintf(sentence, sizeof sentence,
             "muster_init: a reserved field of struct %s is not 0", name);
    assert_int_equal(muster_init(&m, options), MUSTER_EUSAGE);
    assert_null(m);
    assert_non_null(strstr(muster_error(NULL), sentence));
    assert_non_null(strstr(muster_error(NULL), "(this one is " MUSTER_VERSION ")"));
}

static void muster_init_refuses_a_field_of_a_newer_library(void **state)
{
    struct muster_options options = { .backend = "host", .single = 1 };
    struct muster_exchange exchange = { .size = 1, .allgather = gather_nothing };

    for (size_t i = 0; i < sizeof options.reserved / sizeof options.reserved[0]; i++) {
        options.reserved[i] = 1;
        init_refuses(&options, "muster_options");
        options.reserved[i] = 0;
    }
    options.exchange = &exchange;
    for (size_t i = 0; i < sizeof exchange.reserved / sizeof exchange.reserved[0];
         i++) {
        exchange.reserved[i] = 1;
        init_refuses(&options, "muster_exchange");
        exchange.reserved[i] = 0;
    }
}

static void the_library_has_the_version_of_its_header(void **state)
{
    int major, minor, patch;

    assert_string_equal(muster_version(), MUSTER_VERSION);
    assert_int_equal(sscanf(MUSTER_VERSION, "%d.%d.%d", &major, &minor, &patch), 3);
    assert_int_equal(MUSTER_VERSION_NUMBER, major * 10000 + minor * 100 + patch);
}

/* If it were tried, the kernel would take all there is, and then kill. */
static int too_much_body(struct muster *m, int rank, void *arg)
{
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

    if (fd >= 0 && write(fd, "1000", 4) == 4)
        close(fd);
    RANK_CHECK(!muster_alloc(m, (size_t)1 << 52));
    RANK_CHECK(strstr(muster_error(m), "cannot reserve 4503599627370496 bytes: this "
                                       "node has "));
    return muster_finalize(m);
}

static void more_memory_than_the_node_has_is_refused(void **state)
{
    forked_well("too much", (struct forked_world){ .size = 2 }, too_much_body, NULL);
}

static int empty_body(struct muster *m, int rank, void *arg)
{
    struct muster_checkpoint_options o = { .mode = MUSTER_CHECKPOINT_COPY };
    char weights[5] = "1234";
    struct muster_item items[2] = { { .name = "none" },
                                    { .name = "w", .data = weights, .bytes = 5 } };
    struct muster_checkpoint *c;
    uint64_t step;
    int found;

    for (int sharded = 0; sharded <= 1; sharded++) {
        o.sharded = sharded;
        RANK_OK(muster_checkpoint_open(m, arg, &o, &c));
        RANK_OK(muster_checkpoint_save(c, (uint64_t)sharded, items, 2));
        RANK_OK(muster_checkpoint_load(c, items, 2, &step, &found));
        RANK_CHECK(found && step == (uint64_t)sharded);
        RANK_OK(muster_checkpoint_close(c));
    }
    return muster_finalize(m);
}

static void an_item_may_have_no_bytes(void **state)
{
    char folder[] = "/tmp/muster-misuse-XXXXXX";

    assert_non_null(mkdtemp(folder));
    forked_well("empty", (struct forked_world){ .size = 2 }, empty_body, folder);
    folder_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_sync_cannot_finish_is_refused),
        cmocka_unit_test(a_result_without_a_place_is_refused),
        cmocka_unit_test(a_field_of_a_newer_library_is_refused),
        cmocka_unit_test(muster_init_refuses_a_field_of_a_newer_library),
        cmocka_unit_test(the_library_has_the_version_of_its_header),
        cmocka_unit_test(more_memory_than_the_node_has_is_refused),
        cmocka_unit_test(an_item_may_have_no_bytes),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
