/* SPDX-License-Identifier: BSD-3-Clause */
/* test_nccl_call.c - what a call of NCCL leaves under way is joined by one thread, on a
 * fake of NCCL that needs neither a GPU nor the library
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <cmocka.h>

#include "runtime/backend/nccl/nccl.h"
#include "runtime/base/clock.h"

#define CALLS 200

/* As in NCCL 2.28: a job of a call under way, which ncclCommGetAsyncError ends. */
static struct {
    atomic_bool in_progress, job;
    atomic_int asking, at_once, joined;
} nccl;

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state)
{
    if (atomic_fetch_add(&nccl.asking, 1) > 0)
        atomic_fetch_add(&nccl.at_once, 1);
    *state = atomic_exchange(&nccl.in_progress, false) ? ncclInProgress : ncclSuccess;
    if (*state == ncclSuccess && atomic_load(&nccl.job)) {
        mu_pause(20e-6);
        atomic_fetch_add(&nccl.joined, 1);
        atomic_store(&nccl.job, false);
    }
    atomic_fetch_sub(&nccl.asking, 1);
    return ncclSuccess;
}

static ncclResult_t call(void)
{
    atomic_store(&nccl.in_progress, true);
    atomic_store(&nccl.job, true);
    mu_pause(20e-6);
    return ncclInProgress;
}

/* Used by other functions of comm.c. */
ncclResult_t ncclCommInitRankScalable(ncclComm_t *comm, int nranks, int rank, int nids,
                                      ncclUniqueId *ids, ncclConfig_t *config)
{
    return ncclInternalError;
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    return ncclInternalError;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    return ncclInternalError;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    return ncclInternalError;
}

int mu_nccl_err(struct mu_err *err, const struct mu_nccl_backend *b, ncclResult_t rc,
                const char *what)
{
    return mu_err_set(err, MUSTER_EDEVICE, "%s: %d", what, rc);
}

int mu_nccl_aborted(struct mu_nccl_backend *b, struct mu_err *err)
{
    return 0;
}

static struct mu_nccl_backend backend = { .env.timeout = 20 };
static atomic_bool stop;

static void *watch(void *arg)
{
    while (!atomic_load(&stop))
        if (mu_comm_error(&backend) != ncclSuccess)
            return arg;
    return NULL;
}

static void one_thread_at_a_time_asks_for_the_state(void **state)
{
    struct mu_err err = { 0 };
    pthread_t thread;
    void *failed;

    assert_int_equal(pthread_create(&thread, NULL, watch, &err), 0);
    for (int i = 0; i < CALLS; i++) {
        mu_comm_calls(&backend);
        assert_int_equal(mu_comm_called(&backend, call(), "a call", &err), 0);
    }
    atomic_store(&stop, true);
    pthread_join(thread, &failed);
    assert_null(failed);
    assert_int_equal(atomic_load(&nccl.at_once), 0);
    assert_int_equal(atomic_load(&nccl.joined), CALLS);
}

static void a_call_that_fails_is_no_call_any_more(void **state)
{
    struct mu_err err = { 0 };

    mu_comm_calls(&backend);
    assert_int_equal(mu_comm_called(&backend, ncclInternalError, "a call", &err), -1);
    assert_string_equal(err.text, "a call: 3");
    atomic_store(&nccl.job, true);
    assert_int_equal(mu_comm_error(&backend), ncclSuccess);
    assert_false(atomic_load(&nccl.job));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_thread_at_a_time_asks_for_the_state),
        cmocka_unit_test(a_call_that_fails_is_no_call_any_more),
    };

    return cmocka_run_group_tests_name("nccl_call", tests, NULL, NULL);
}
