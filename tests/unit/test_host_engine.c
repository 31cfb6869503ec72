/* SPDX-License-Identifier: BSD-3-Clause */
/* test_host_engine.c - the queue of requests, on a transport that fails where told
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "runtime/backend/host/host.h"
#include "runtime/base/clock.h"

#define NREQUESTS 3

/* What the fake transport does and has done. */
static struct {
    int fails;        /* the post that fails, counted from 0 */
    bool has_entered; /* what that post returns */
    int posts, aborts;
} fake;

static bool fake_post(struct mu_host_backend *b, struct mu_host_request *rq)
{
    int nth = fake.posts++;

    assert_in_range(nth, 0, NREQUESTS - 1);
    if (nth == fake.fails)
        mu_engine_fail(b, MUSTER_EMEMORY, 0, true, "out of memory in post %d", nth);
    return nth != fake.fails || fake.has_entered;
}

/* Other ranks never come. */
static int fake_progress(struct mu_host_backend *b, struct mu_host_request *rq)
{
    return MU_WAITS;
}

static bool fake_arm(struct mu_host_backend *b, enum mu_sleep how)
{
    return true;
}

static void fake_event(struct mu_host_backend *b, int index, uint32_t events)
{
}

static void fake_abort(struct mu_host_backend *b)
{
    fake.aborts++;
}

static const struct mu_host_transport fake_transport = {
    .name = "fake",
    .post = fake_post,
    .progress = fake_progress,
    .arm = fake_arm,
    .event = fake_event,
    .abort = fake_abort,
};

static int told;

static void failed(void *arg, int rank, int status, const char *text)
{
    assert_int_equal(rank, 0);
    assert_int_equal(status, MUSTER_EMEMORY);
    told++;
}

static const struct row {
    const char *name;
    int before;       /* requests that are posted before the failing one */
    int behind;       /* and that are queued behind it */
    bool has_entered; /* what the failing post returns */
    bool thread;      /* the engine's thread posts, not the caller of submit */
} rows[] = {
    { "the only request", 0, 0, true, false },
    { "the only request, which the transport has no room for", 0, 0, false, false },
    { "the only request, in the engine's thread", 0, 0, true, true },
    { "a request behind one that waits", 1, 0, true, true },
    { "a request before another", 0, 1, true, true },
    { "a request between two", 1, 1, true, true },
};

static void submit_all(struct mu_host_backend *b, struct mu_host_request *rq,
                       const struct row *row)
{
    for (int i = 0; i < row->before + 1 + row->behind; i++) {
        rq[i].coll.kind = MU_COLL_BARRIER;
        rq[i].deadline = mu_clock_ns() + INT64_C(3600000000000);
    }
    /* While the lock is held, submit leaves the posting to the thread. */
    if (row->thread)
        pthread_mutex_lock(&b->lock);
    for (int i = 0; i < row->before + 1 + row->behind; i++)
        mu_engine_submit(b, &rq[i]);
    if (row->thread)
        pthread_mutex_unlock(&b->lock);
}

static void check_row(const struct row *row)
{
    struct mu_host_backend b = { .transport = &fake_transport };
    struct mu_host_request rq[NREQUESTS] = { 0 };
    struct mu_err err = { 0 };

    memset(&fake, 0, sizeof fake);
    fake.fails = row->before;
    fake.has_entered = row->has_entered;
    told = 0;
    b.env.failed = failed;
    assert_int_equal(mu_engine_open(&b, &err), 0);
    submit_all(&b, rq, row);
    if (row->thread)
        assert_int_equal(mu_engine_start(&b, &err), 0);
    for (int i = 0; i < row->before + 1 + row->behind; i++) {
        memset(&err, 0, sizeof err);
        assert_int_equal(mu_engine_join(&b, &rq[i], &err), -1);
        assert_int_equal(err.code, MUSTER_EMEMORY);
        assert_non_null(strstr(err.text, "out of memory in post"));
        assert_true(rq[i].posted == (i < row->before));
    }
    mu_engine_stop(&b);
    mu_engine_close(&b);
    assert_int_equal(fake.posts, row->before + 1);
    assert_null(b.head);
    assert_null(b.unposted);
    assert_int_equal(fake.aborts, 1);
    assert_int_equal(told, 1);
}

static void a_request_that_fails_while_it_is_posted_ends_all(void **state)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        printf("# %s\n", rows[i].name);
        check_row(&rows[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_that_fails_while_it_is_posted_ends_all),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
