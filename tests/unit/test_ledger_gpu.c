/* SPDX-License-Identifier: BSD-3-Clause */
/* test_ledger_gpu.c - times of buckets on a made-up GPU, which is behind the host
 *
 * The host backend under another name, with moments: each takes a microsecond more than
 * the one before, and a collective 100 us. The ledger has them when they are reached.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "runtime/base/clock.h"
#include "tests/unit/folder.h"
#include "tests/unit/gradients.h"

#define WORK_NS 100000
#define BEHIND_NS INT64_C(3600000000000)

static char folder[64];

static struct {
    int (*start)(struct mu_backend *b, const struct mu_coll *coll,
                 struct mu_request **out, struct mu_err *err);
    int64_t now;
    bool behind;   /* nothing is reached */
    bool captured; /* there are no moments */
    int live;
} gpu;

static void *fake_moment(struct mu_backend *b, void *stream)
{
    int64_t *at = gpu.captured ? NULL : malloc(sizeof *at);

    if (at) {
        *at = gpu.now += 1000;
        gpu.live++;
    }
    return at;
}

static bool fake_reached(struct mu_backend *b, void *moment, int64_t *ns)
{
    if (gpu.behind)
        return false;
    *ns = *(int64_t *)moment;
    gpu.live--;
    free(moment);
    return true;
}

static void fake_forget(struct mu_backend *b, void *moment)
{
    gpu.live--;
    free(moment);
}

static int fake_start(struct mu_backend *b, const struct mu_coll *coll,
                      struct mu_request **out, struct mu_err *err)
{
    struct mu_coll c = *coll;

    if (c.times) {
        c.times->from = fake_moment(b, NULL);
        c.times->to = fake_moment(b, NULL);
        if (c.times->to)
            *(int64_t *)c.times->to += WORK_NS;
        c.times = NULL;
    }
    return gpu.start(b, &c, out, err);
}

static struct muster_ddp *on_gpu(struct muster *m)
{
    static float own[N][COUNT];
    const struct muster_ddp_options fixed = { .fixed_order = 1 };
    struct mu_backend_ops *ops = forked_elsewhere(m);

    gpu.start = ops->start;
    gpu.now = mu_clock_ns() + BEHIND_NS;
    ops->start = fake_start;
    ops->moment = fake_moment;
    ops->reached = fake_reached;
    ops->forget = fake_forget;
    return make(m, &fixed, own);
}

static void step(struct muster *m, struct muster_ddp *ddp)
{
    all_ready(m, ddp);
    RANK_OK(muster_ddp_sync(ddp, NULL));
}

/* A step's records are its buckets', then its own. */
static void check_step(struct muster *m, const struct mu_ledger_bucket *b, int n,
                       uint64_t number, const struct mu_ledger_bucket *before)
{
    const struct mu_ledger_bucket *all = &b[n];
    uint64_t sync = all->joined - all->exposed, at = sync;

    RANK_CHECK(all->bucket == MU_LEDGER_STEP && all->step == number);
    RANK_CHECK(all->begin == (number == 0 ? 0 : before->joined));
    for (int k = 0; k < n; k++) {
        RANK_CHECK(b[k].step == number && b[k].bucket < (uint32_t)n);
        RANK_CHECK(b[k].begin == all->begin && b[k].bytes > 0);
        RANK_CHECK(b[k].ready > 0 && b[k].ready < b[k].started);
        RANK_CHECK(b[k].launched == b[k].ready); /* the host was earlier */
        RANK_CHECK(b[k].ended >= b[k].started + WORK_NS);
        RANK_CHECK(b[k].started < sync);
        RANK_CHECK(b[k].joined == (b[k].ended > at ? b[k].ended : at));
        RANK_CHECK(b[k].exposed == b[k].joined - at);
        at = b[k].joined;
    }
    RANK_CHECK(all->joined == at && all->exposed > WORK_NS / 2);
}

static int times_body(struct muster *m, int rank, void *arg)
{
    const struct mu_ledger_out *ledger = &m->comm.ledger;
    struct muster_ddp *ddp = on_gpu(m);
    int n = muster_ddp_buckets(ddp);

    RANK_CHECK(ledger->buckets && n > 1);
    gpu.behind = true;
    for (int i = 0; i < 3; i++)
        step(m, ddp);
    RANK_CHECK(ledger->head->buckets == 0);
    gpu.behind = false;
    step(m, ddp);
    RANK_CHECK(ledger->head->buckets == 4 * ((uint64_t)n + 1));
    RANK_CHECK(gpu.live == 0);
    for (int i = 0; i < 4; i++)
        check_step(m, &ledger->buckets[i * (n + 1)], n, (uint64_t)i,
                   &ledger->buckets[i * (n + 1) - (i > 0)]);
    /* NCCL's profiler has the calls. */
    RANK_CHECK(ledger->head->calls == 0 && ledger->head->comms == 1);
    return finish(m, ddp);
}

static void a_step_is_recorded_when_the_gpu_has_reached_it(void **state)
{
    forked_well("two", (struct forked_world){ .size = 2, SMALL_BUCKETS }, times_body,
                NULL);
}

static int behind_body(struct muster *m, int rank, void *arg)
{
    const struct mu_ledger_out *ledger = &m->comm.ledger;
    struct muster_ddp *ddp = on_gpu(m);
    int n = muster_ddp_buckets(ddp), most;

    gpu.behind = true;
    for (int i = 0; i < 8; i++)
        step(m, ddp);
    most = gpu.live;
    RANK_CHECK(most == 8 * (3 * n + 1));
    for (int i = 0; i < 20; i++)
        step(m, ddp);
    RANK_CHECK(gpu.live == most && ledger->head->buckets == 0);
    muster_ddp_destroy(ddp);
    RANK_CHECK(gpu.live == 0);
    return muster_finalize(m);
}

static void a_gpu_far_behind_keeps_a_few_steps(void **state)
{
    forked_well("two", (struct forked_world){ .size = 2, SMALL_BUCKETS }, behind_body,
                NULL);
}

static int captured_body(struct muster *m, int rank, void *arg)
{
    const struct mu_ledger_out *ledger = &m->comm.ledger;
    struct muster_ddp *ddp = on_gpu(m);
    int n = muster_ddp_buckets(ddp);

    gpu.captured = true;
    step(m, ddp);
    RANK_CHECK(gpu.live == 0 && ledger->head->buckets == (uint64_t)n + 1);
    for (int k = 0; k <= n; k++)
        RANK_CHECK(ledger->buckets[k].started == 0 && ledger->buckets[k].ended == 0 &&
                   ledger->buckets[k].exposed == 0);
    return finish(m, ddp);
}

static void what_has_no_moments_is_unknown(void **state)
{
    forked_well("two", (struct forked_world){ .size = 2, SMALL_BUCKETS }, captured_body,
                NULL);
}

static int unrecorded_body(struct muster *m, int rank, void *arg)
{
    struct muster_ddp *ddp = on_gpu(m);
    int64_t before = gpu.now;

    step(m, ddp);
    RANK_CHECK(!m->comm.ledger.head && gpu.now == before);
    return finish(m, ddp);
}

static void without_a_ledger_there_are_no_moments(void **state)
{
    unsetenv("MUSTER_PROFILE");
    forked_well("two", (struct forked_world){ .size = 2, SMALL_BUCKETS },
                unrecorded_body, NULL);
}

static int setup(void **state)
{
    if (!mkdtemp(strcpy(folder, "/tmp/muster-ledger-gpu-XXXXXX")))
        return -1;
    setenv("MUSTER_PROFILE_RECORDS", "1024", 1);
    return setenv("MUSTER_PROFILE", folder, 1);
}

static int teardown(void **state)
{
    return folder_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
        TEST(a_step_is_recorded_when_the_gpu_has_reached_it),
        TEST(a_gpu_far_behind_keeps_a_few_steps),
        TEST(what_has_no_moments_is_unknown),
        TEST(without_a_ledger_there_are_no_moments),
    };

    return cmocka_run_group_tests_name("ledger_gpu", tests, NULL, NULL);
}
