/* SPDX-License-Identifier: BSD-3-Clause */
/* test_comm.c - the group only returns errors; what joins on the way up does so after
 * the failure was announced
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/boot/control_impl.h"
#include "runtime/ddp/ddp.h"
#include "tests/unit/forked.h"

enum { COUNT = 64 };

/* Longer than any rank may live: who waits for the deadline is killed before. */
#define DEADLINE 100
#define LIMIT 40

static struct mu_coll sum_of(double *data, const char *what)
{
    return (struct mu_coll){ .kind = MU_COLL_ALLREDUCE,
                             .dtype = MUSTER_F64,
                             .op = MUSTER_SUM,
                             .send = data,
                             .recv = data,
                             .count = COUNT,
                             .scale = 1,
                             .what = what };
}

/* Both are through muster_init. Control sends what a rank announces later behind it. */
static void start_together(struct muster *m)
{
    struct mu_gathered all;
    struct mu_err err = { 0 };

    RANK_CHECK(mu_gather(&m->comm, "the start", NULL, 0, &all, &err) == 0);
    mu_gathered_clear(&all);
}

/* Rank 0 starts what rank 1 never does, fails, and joins. Without recover: nobody is
 * there who would end the job.
 */
static int fails_and_joins(struct muster *m, int rank, void *arg)
{
    static double data[2][COUNT];
    struct mu_err mine = { MUSTER_ENUMERIC, "made up" }, err = { 0 };
    struct mu_started started[2];
    struct mu_gathered all;

    m->comm.hooks = (struct mu_comm_hooks){ 0 };
    start_together(m);
    if (rank == 1) {
        /* Without the backend, which would see that rank 0 calls something else. */
        RANK_CHECK(
            mu_control_gather(m->comm.control, "elsewhere", NULL, 0, &all, &err) < 0);
        RANK_CHECK(err.code == MUSTER_ENUMERIC && strstr(err.text, "made up"));
        _exit(0);
    }
    for (int i = 0; i < 2; i++) {
        struct mu_coll coll = sum_of(data[i], "alone");

        RANK_CHECK(mu_coll_start(&m->comm, &coll, &started[i], &err) == 0);
    }
    RANK_CHECK(mu_comm_fail(&m->comm, &mine) < 0);
    for (int i = 0; i < 2; i++)
        RANK_CHECK(mu_coll_join(&m->comm, &started[i], "alone", NULL, &err) < 0);
    _exit(0);
}

static void collectives_only_return_errors(void **state)
{
    struct forked_world w = { .size = 2, .timeout = DEADLINE };
    struct forked_result result;

    for (w.nodes = 1; w.nodes <= 2; w.nodes++) {
        forked_run(&w, fails_and_joins, NULL, LIMIT, &result);
        assert_int_equal(result.status[0], 0);
        assert_int_equal(result.status[1], 0);
        assert_string_equal(result.text, "");
        forked_clear(&result);
    }
}

static int is_interrupted(struct muster *m, int rank, void *arg)
{
    double data[COUNT] = { 0 };
    struct mu_gathered all;
    struct mu_err err = { 0 };

    mu_err_set(&m->comm.interrupt, MUSTER_ESHRUNK, "fewer");
    RANK_CHECK(mu_gather(&m->comm, "x", NULL, 0, &all, &err) < 0);
    RANK_CHECK(err.code == MUSTER_ESHRUNK && strcmp(err.text, "fewer") == 0);
    RANK_OK(muster_allreduce(m, data, COUNT, MUSTER_F64, MUSTER_SUM, NULL));
    RANK_OK(muster_finalize(m));
    return 0;
}

static void an_interrupt_is_returned_by_the_next_collective_alone(void **state)
{
    forked_well("interrupt", (struct forked_world){ .size = 2 }, is_interrupted, NULL);
}

static int world_is_over(struct muster *m, int rank, void *arg)
{
    double data[COUNT] = { 0 };

    start_together(m);
    mu_err_set(&m->comm.interrupt, MUSTER_EPEER, "it is over");
    m->comm.interrupt_all = true;
    for (int i = 0; i < 2; i++) {
        RANK_CHECK(muster_allreduce(m, data, COUNT, MUSTER_F64, MUSTER_SUM, NULL) ==
                   MUSTER_EPEER);
        RANK_CHECK(muster_barrier(m) == MUSTER_EPEER);
        RANK_CHECK(strcmp(muster_error(m), "it is over") == 0);
    }
    _exit(0);
}

static void every_collective_of_a_world_that_is_over_fails(void **state)
{
    forked_well("over", (struct forked_world){ .size = 2, .return_failure = true },
                world_is_over, NULL);
}

/* Two buckets: the one is on its way when a NaN is found in front of the other. Rank 0
 * calls what lies below the public functions: nothing waits for the verdict there.
 */
static int has_nan(struct muster *m, int rank, void *arg)
{
    struct muster_param params[2] = {
        { .name = "first", .count = COUNT, .dtype = MUSTER_F64 },
        { .name = "last", .count = COUNT, .dtype = MUSTER_F64 },
    };
    struct muster_ddp_options options = { .screen = 1 };
    struct muster_ddp *ddp;
    struct mu_gathered all;
    struct mu_err err = { 0 };

    RANK_OK(muster_ddp_create(m, params, 2, &options, &ddp));
    if (rank == 1) { /* has no gradient yet, and waits beside the backend */
        RANK_CHECK(
            mu_control_gather(m->comm.control, "elsewhere", NULL, 0, &all, &err) < 0);
        RANK_CHECK(err.code == MUSTER_ENUMERIC);
        RANK_CHECK(strstr(err.text, "rank 0 (node a): the gradient of 'first'"));
    } else {
        RANK_CHECK(muster_ddp_buckets(ddp) == 2);
        RANK_OK(muster_ddp_grad_ready(ddp, 1, NULL));
        ((double *)muster_ddp_grad(ddp, 0))[3] = NAN;
        RANK_CHECK(mu_ddp_grad_ready(ddp, 0, NULL, &err) < 0);
        RANK_CHECK(err.code == MUSTER_ENUMERIC);
    }
    mu_ddp_destroy(ddp);
    _exit(0);
}

static void buckets_under_way_are_joined_after_the_failure_was_announced(void **state)
{
    struct forked_world w = {
        .size = 2, .timeout = DEADLINE, .return_failure = true, SMALL_BUCKETS
    };
    struct forked_result result;

    forked_run(&w, has_nan, NULL, LIMIT, &result);
    if (result.status[0] != 0 || result.status[1] != 0)
        fail_msg("ended with %d and %d\n%s", result.status[0], result.status[1],
                 result.text);
    forked_clear(&result);
}

static int has_barriers(struct muster *m, int rank, void *arg)
{
    uint64_t before = m->comm.control->gathers;

    for (int i = 0; i < 20; i++)
        RANK_OK(muster_barrier(m));
    RANK_CHECK(m->comm.control->gathers == before);
    RANK_OK(muster_finalize(m));
    return 0;
}

static void a_barrier_in_host_memory_does_not_pass_control(void **state)
{
    forked_well("barrier", (struct forked_world){ .size = 3 }, has_barriers, NULL);
    forked_well("barrier, two nodes", (struct forked_world){ .size = 3, .nodes = 2 },
                has_barriers, NULL);
}

/* A collective on a GPU is joined as soon as it is enqueued. When the thread looks, the
 * wait is over; the next one needs no wake-up all the same.
 */
static int waits_briefly(struct muster *m, int rank, void *arg)
{
    struct mu_control *c = m->comm.control;
    double now, next, later;

    start_together(m);
    mu_control_wait_begin(c, "a bucket", 0);
    mu_control_wait_end(c);
    pthread_mutex_lock(&c->lock);
    c->waited = true; /* the thread may just have looked */
    now = mu_clock_s();
    next = mu_control_deadlines(c, now);
    later = mu_control_deadlines(c, now);
    pthread_mutex_unlock(&c->lock);
    RANK_CHECK(next > now && next < now + 1);
    RANK_CHECK(later == 0); /* an idle rank's thread sleeps */
    RANK_OK(muster_finalize(m));
    return 0;
}

static void a_wait_that_ends_at_once_wakes_no_thread(void **state)
{
    forked_well("brief waits", (struct forked_world){ .size = 2 }, waits_briefly, NULL);
}

static _Atomic int aborts;
static struct muster *opening;

static int open_until_the_end(const struct mu_backend_env *env, struct mu_backend **out,
                              struct mu_err *err)
{
    static struct mu_backend *const some = (struct mu_backend *)&aborts;

    while (!atomic_load(&opening->comm.ended))
        usleep(1000);
    *out = some;
    return 0;
}

static void count_abort(struct mu_backend *b, int status, const char *why)
{
    aborts += status == MUSTER_ENUMERIC && strstr(why, "made up");
}

/* Rank 1 fails while rank 0 opens its backend. */
static int ends_meanwhile(struct muster *m, int rank, void *arg)
{
    static struct mu_backend_ops ops;
    struct mu_err mine = { MUSTER_ENUMERIC, "made up" }, err = { 0 };

    m->comm.hooks = (struct mu_comm_hooks){ 0 };
    start_together(m);
    if (rank == 1) {
        mu_comm_fail(&m->comm, &mine);
        _exit(0);
    }
    ops = *m->comm.ops;
    ops.open = open_until_the_end;
    ops.abort = count_abort;
    opening = m;
    pthread_mutex_lock(&m->comm.swap_lock);
    m->comm.ops = &ops;
    m->comm.backend = NULL;
    pthread_mutex_unlock(&m->comm.swap_lock);
    RANK_CHECK(mu_open_backend(&m->comm, &err) == 0 && aborts == 1);
    _exit(0);
}

static void an_end_while_the_backend_opens_aborts_it(void **state)
{
    forked_well("end", (struct forked_world){ .size = 2, .return_failure = true },
                ends_meanwhile, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_end_while_the_backend_opens_aborts_it),
        cmocka_unit_test(a_wait_that_ends_at_once_wakes_no_thread),
        cmocka_unit_test(a_barrier_in_host_memory_does_not_pass_control),
        cmocka_unit_test(collectives_only_return_errors),
        cmocka_unit_test(an_interrupt_is_returned_by_the_next_collective_alone),
        cmocka_unit_test(every_collective_of_a_world_that_is_over_fails),
        cmocka_unit_test(buckets_under_way_are_joined_after_the_failure_was_announced),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
