/* SPDX-License-Identifier: BSD-3-Clause */
/* test_half_done.c - a death ends a collective call on some ranks, when others have
 * gone on in it or have its result: all ranks can make it again
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "tests/unit/forked.h"

/* The victim forwards what the ranks of its node send, and stops before the result. */
#define VICTIM 2
#define STOP_SECONDS 0.2
#define LATE_SECONDS 0.5 /* rank 1 comes when the victim has stopped */
#define KILL_SECONDS 0.9

struct story {
    /* The call; with its result when it has ended well. */
    int (*call)(struct muster *m, void **out);
    /* Use the result, and free it. */
    void (*use)(struct muster *m, void *result);
    void (*drop)(void *result);
    pid_t victim;
};

static void *stop(void *arg)
{
    mu_pause(STOP_SECONDS);
    kill(getpid(), SIGSTOP);
    return NULL;
}

static void *kill_victim(void *arg)
{
    const struct story *story = arg;

    mu_pause(KILL_SECONDS);
    kill(story->victim, SIGKILL);
    return NULL;
}

/* ---- muster_ddp_create ----------------------------------------------------------- */

static int create(struct muster *m, void **out)
{
    struct muster_param p = { .name = "w", .count = 4, .dtype = MUSTER_F32 };

    return muster_ddp_create(m, &p, 1, NULL, (struct muster_ddp **)out);
}

static void train(struct muster *m, struct muster_ddp *ddp)
{
    float *g = muster_ddp_grad(ddp, 0);

    for (int step = 0; step < 3; step++) {
        for (int i = 0; i < 4; i++)
            g[i] = (float)muster_rank(m);
        RANK_OK(muster_ddp_grad_ready(ddp, 0, NULL));
        RANK_OK(muster_ddp_sync(ddp, NULL));
        RANK_CHECK(g[0] == (float)(muster_size(m) - 1) / 2);
    }
}

static void destroy(void *ddp)
{
    muster_ddp_destroy(ddp);
}

static void train_and_destroy(struct muster *m, void *ddp)
{
    train(m, ddp);
    destroy(ddp);
}

/* ---- muster_split ---------------------------------------------------------------- */

static int split(struct muster *m, void **out)
{
    return muster_split(m, 0, 0, "all", (struct muster **)out);
}

static void leave(void *group)
{
    muster_finalize(group);
}

static void sum_and_leave(struct muster *m, void *group)
{
    int32_t one = 1;

    RANK_OK(muster_allreduce(group, &one, 1, MUSTER_I32, MUSTER_SUM, NULL));
    RANK_CHECK(one == muster_size(m));
    RANK_OK(muster_finalize(group));
}

/* ---- The death ------------------------------------------------------------------- */

static int body(struct muster *m, int rank, void *arg)
{
    struct story *story = arg;
    void *ddp, *result = NULL;
    int rc;

    RANK_OK(create(m, &ddp));
    train(m, ddp); /* from here on the ranks survive a death */
    if (rank == VICTIM) {
        story->victim = getpid();
        forked_thread(stop, NULL);
    }
    RANK_OK(muster_barrier(m));
    if (rank == 0)
        forked_thread(kill_victim, story);
    if (rank == 1)
        mu_pause(LATE_SECONDS);
    rc = story->call(m, &result);
    if (rc == MUSTER_OK)
        rc = muster_barrier(m);
    RANK_CHECK(rc == MUSTER_ESHRUNK);
    if (result)
        story->drop(result);
    RANK_OK(story->call(m, &result));
    train(m, ddp);
    story->use(m, result);
    destroy(ddp);
    return muster_finalize(m);
}

static void run_story(struct story from)
{
    struct forked_world w = { .size = 4, .nodes = 2, .elastic = 1 };
    struct story *story = forked_shared(sizeof *story);
    struct forked_result r;

    *story = from;
    forked_run(&w, body, story, 60, &r);
    for (int k = 0; k < 4; k++)
        if (r.status[k] != (k == VICTIM ? 128 + SIGKILL : 0))
            fail_msg("rank %d ended with %d\n%s", k, r.status[k], r.text);
    forked_clear(&r);
}

static void a_ddp_object_is_created_again(void **state)
{
    run_story((struct story){ create, train_and_destroy, destroy, 0 });
}

static void a_world_is_split_again(void **state)
{
    run_story((struct story){ split, sum_and_leave, leave, 0 });
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_ddp_object_is_created_again),
        cmocka_unit_test(a_world_is_split_again),
    };

    return cmocka_run_group_tests_name("half_done", tests, NULL, NULL);
}
