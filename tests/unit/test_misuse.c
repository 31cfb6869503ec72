/* SPDX-License-Identifier: BSD-3-Clause */
/* test_misuse.c - calls in another order than the other ranks', too early, too late or
 * with arguments that make no sense: refused, or named at once, and never a wrong
 * number
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "tests/unit/folder.h"
#include "tests/unit/forked.h"
#include "tests/unit/patience.h"

#define LARGE 5000

static struct muster_ddp *model(struct muster *m)
{
    static const struct muster_param params[2] = {
        { .name = "a", .count = LARGE, .dtype = MUSTER_F32 },
        { .name = "b", .count = 9, .dtype = MUSTER_F32 }
    };
    struct muster_ddp *ddp;

    RANK_OK(muster_ddp_create(m, params, 2, NULL, &ddp));
    return ddp;
}

static float *first(const struct muster_ddp *ddp)
{
    return muster_ddp_grad(ddp, 0);
}

/* Every gradient of this rank is `value`. */
static void backward(struct muster *m, struct muster_ddp *ddp, float value)
{
    static const size_t count[2] = { LARGE, 9 };

    for (int i = 1; i >= 0; i--) {
        float *grad = muster_ddp_grad(ddp, i);

        for (size_t k = 0; k < count[i]; k++)
            grad[k] = value;
        RANK_OK(muster_ddp_grad_ready(ddp, i, NULL));
    }
}

/* ---- Rank 1 does something else
 * ------------------------------------------------------
 */

static void barrier_for_weight(struct muster *m, struct muster_ddp *ddp, bool odd)
{
    if (odd)
        muster_barrier(m);
    else
        muster_ddp_weight(ddp, 2);
}

static void weight_for_barrier(struct muster *m, struct muster_ddp *ddp, bool odd)
{
    barrier_for_weight(m, ddp, !odd);
}

static void barrier_for_allreduce(struct muster *m, struct muster_ddp *ddp, bool odd)
{
    float data[3] = { 0 };

    if (odd)
        muster_barrier(m);
    else
        muster_allreduce(m, data, 3, MUSTER_F32, MUSTER_SUM, NULL);
}

static void weight_for_allreduce(struct muster *m, struct muster_ddp *ddp, bool odd)
{
    if (odd)
        muster_ddp_weight(ddp, 2);
    else
        barrier_for_allreduce(m, ddp, false);
}

/* Rank 1 alone unfreezes a part of the model; the others go on with their step. */
static void unfreezes_alone(struct muster *m, struct muster_ddp *ddp, bool odd)
{
    if (odd) {
        muster_ddp_destroy(ddp);
        model(m);
    } else {
        backward(m, ddp, 1);
        muster_ddp_sync(ddp, NULL);
    }
}

static void finalize_for_barrier(struct muster *m, struct muster_ddp *ddp, bool odd)
{
    if (odd)
        muster_finalize(m);
    else
        muster_barrier(m);
}

static void finalize_for_allreduce(struct muster *m, struct muster_ddp *ddp, bool odd)
{
    float data[3] = { 0 };

    if (odd)
        muster_finalize(m);
    else
        muster_allreduce(m, data, 3, MUSTER_F32, MUSTER_SUM, NULL);
}

static void finish(struct muster *m, struct muster_ddp *ddp, double max_norm,
                   double scale)
{
    struct muster_scaler scaler = { .scale = scale, .interval = 9 };
    struct muster_finish f = { .max_norm = max_norm,
                               .scaler = scale > 0 ? &scaler : NULL };

    backward(m, ddp, 1);
    muster_ddp_sync_with(ddp, &f, NULL);
    muster_barrier(m);
}

static void other_norm(struct muster *m, struct muster_ddp *ddp, bool odd)
{
    finish(m, ddp, odd ? 1 : 2, 0);
}

static void other_scale(struct muster *m, struct muster_ddp *ddp, bool odd)
{
    finish(m, ddp, 1, odd ? 128 : 64);
}

static void no_scale(struct muster *m, struct muster_ddp *ddp, bool odd)
{
    finish(m, ddp, 1, odd ? 0 : 64);
}

static void plain_sync(struct muster *m, struct muster_ddp *ddp, bool odd)
{
    if (!odd) {
        finish(m, ddp, 1, 0);
        return;
    }
    backward(m, ddp, 1);
    muster_ddp_sync(ddp, NULL);
    muster_barrier(m);
}

static const struct other {
    const char *name;
    void (*call)(struct muster *m, struct muster_ddp *ddp, bool odd);
    const char *expect;
} others[] = {
    { "a barrier where the others give weights", barrier_for_weight,
      "rank 1 (node a) entered muster_barrier where ranks 0, 2 entered the exchange of "
      "weights of step 0" },
    { "a weight where the others meet in a barrier", weight_for_barrier,
      "rank 1 (node a) entered the exchange of weights of step 0 where ranks 0, 2 "
      "entered muster_barrier" },
    { "a barrier where the others call an all-reduce", barrier_for_allreduce,
      "a barrier or an exchange of libmuster's own" },
    { "a weight where the others call an all-reduce", weight_for_allreduce,
      "a barrier or an exchange of libmuster's own" },
    { "case 085: a new ddp object where the others go on", unfreezes_alone,
      "a barrier or an exchange of libmuster's own" },
    { "muster_finalize where the others meet in a barrier", finalize_for_barrier,
      "rank 1 (node a) entered muster_finalize where ranks 0, 2 entered "
      "muster_barrier" },
    { "muster_finalize where the others call an all-reduce", finalize_for_allreduce,
      "rank 1 (node a) calls muster_finalize" },
    { "another max_norm", other_norm,
      "step 0: rank 1 (node a) disagrees with ranks 0, 2 on bucket layout, loss scale "
      "or max_norm" },
    { "another loss scale", other_scale,
      "step 0: rank 1 (node a) disagrees with ranks 0, 2 on bucket layout" },
    { "no loss scale", no_scale,
      "step 0: rank 1 (node a) disagrees with ranks 0, 2 on bucket layout" },
    { "muster_ddp_sync for muster_ddp_sync_with", plain_sync,
      "step 0: rank 1 (node a) disagrees with ranks 0, 2 on bucket layout" },
};

static int other_body(struct muster *m, int rank, void *arg)
{
    const struct other *o = arg;

    o->call(m, model(m), rank == 1);
    return 0; /* nobody comes here */
}

static void a_rank_in_another_call_is_named_at_once(void **state)
{
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        for (int nodes = 1; nodes <= 2; nodes++) {
            struct forked_world w = { .size = 3, .nodes = nodes };
            struct other o = others[i];
            struct forked_result r;

            forked_run(&w, other_body, &o, 30, &r);
            for (int k = 0; k < w.size; k++)
                if ((r.status[k] != MUSTER_ECONTRACT && r.status[k] != 128 + 9) ||
                    r.seconds[k] > 2 * PATIENCE || !strstr(r.text, o.expect))
                    fail_msg("%s, %d nodes: rank %d: %d after %.1f s\n%s", o.name,
                             nodes, k, r.status[k], r.seconds[k], r.text);
            forked_clear(&r);
        }
}

/* ---- Too early, too late
 * -------------------------------------------------------------
 */

/* Rank 0 comes late: the buckets of the others are under way until then. */
static int destroy_body(struct muster *m, int rank, void *arg)
{
    struct muster_ddp *ddp = model(m);

    if (rank == 0)
        usleep(100000);
    backward(m, ddp, 1);
    muster_ddp_destroy(ddp);
    ddp = model(m);
    backward(m, ddp, (float)rank);
    RANK_OK(muster_ddp_sync(ddp, NULL));
    RANK_CHECK(first(ddp)[LARGE - 1] == 1);
    backward(m, ddp, 1);
    muster_ddp_destroy(ddp);
    return muster_finalize(m);
}

static void buckets_under_way_do_not_outlive_their_model(void **state)
{
    for (int nodes = 1; nodes <= 3; nodes++)
        forked_well("destroy", (struct forked_world){ .size = 3, .nodes = nodes },
                    destroy_body, NULL);
}

/* Only rank 1 fails to create: that one counts nowhere. */
static int again_body(struct muster *m, int rank, void *arg)
{
    const struct muster_param nameless = { .count = 1, .dtype = MUSTER_F32 };
    struct muster_ddp *ddp;

    if (rank == 1)
        RANK_CHECK(muster_ddp_create(m, &nameless, 1, NULL, &ddp) == MUSTER_EUSAGE);
    ddp = model(m);
    for (int step = 0; step < 3; step++) {
        backward(m, ddp, (float)rank);
        RANK_OK(muster_ddp_sync(ddp, NULL));
        RANK_CHECK(first(ddp)[0] == 1);
    }
    muster_ddp_destroy(ddp);
    return muster_finalize(m);
}

static void a_rank_may_try_again_to_create(void **state)
{
    forked_well("create", (struct forked_world){ .size = 3 }, again_body, NULL);
}

/* ---- Out of data, with clipping and a loss scale
 * -------------------------------------
 */

struct joining {
    struct muster *m;
    struct muster_ddp *ddp;
    double norm;
};

/* All ranks have the clipped gradients. */
static int same_everywhere(void *arg)
{
    struct joining *j = arg;
    struct muster *m = j->m;
    float all[3], mine = first(j->ddp)[7];

    RANK_OK(muster_allgather(m, &mine, all, 1, MUSTER_F32, NULL));
    for (int r = 0; r < 3; r++)
        RANK_CHECK(fabs(all[r] - 1 / sqrt(LARGE + 9)) < 1e-6);
    return MUSTER_OK;
}

static int join_body(struct muster *m, int rank, void *arg)
{
    struct muster_scaler scaler = { .scale = 1024, .interval = 2 };
    struct muster_finish f = { .max_norm = 1, .scaler = &scaler };
    struct joining j = { .m = m, .ddp = model(m) };

    for (int step = 0; step < 1 + rank; step++) {
        RANK_OK(muster_ddp_weight(j.ddp, 1));
        backward(m, j.ddp, (float)(rank + 1) * (float)scaler.scale);
        if (step == 0)
            RANK_CHECK(muster_ddp_join_with(j.ddp, &f, NULL, NULL) == MUSTER_EUSAGE);
        RANK_OK(muster_ddp_sync_with(j.ddp, &f, NULL));
        same_everywhere(&j);
    }
    RANK_OK(muster_ddp_join_with(j.ddp, &f, same_everywhere, &j));
    RANK_CHECK(scaler.scale == 2048 && scaler.good == 1);
    muster_ddp_destroy(j.ddp);
    return muster_finalize(m);
}

static void a_rank_out_of_data_scales_and_clips_as_the_others(void **state)
{
    for (int nodes = 1; nodes <= 2; nodes++)
        forked_well("join", (struct forked_world){ .size = 3, .nodes = nodes },
                    join_body, NULL);
}

/* ---- Arguments that make no sense
 * ----------------------------------------------------
 */

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
        cmocka_unit_test(a_rank_in_another_call_is_named_at_once),
        cmocka_unit_test(buckets_under_way_do_not_outlive_their_model),
        cmocka_unit_test(a_rank_may_try_again_to_create),
        cmocka_unit_test(a_rank_out_of_data_scales_and_clips_as_the_others),
        cmocka_unit_test(what_sync_cannot_finish_is_refused),
        cmocka_unit_test(a_result_without_a_place_is_refused),
        cmocka_unit_test(a_field_of_a_newer_library_is_refused),
        cmocka_unit_test(more_memory_than_the_node_has_is_refused),
        cmocka_unit_test(an_item_may_have_no_bytes),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
