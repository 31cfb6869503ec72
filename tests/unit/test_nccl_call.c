/* SPDX-License-Identifier: BSD-3-Clause */
/* test_nccl_call.c - what a call of NCCL leaves under way is joined by one thread;
 * which communicator the next world gets; on a fake of NCCL that needs neither a GPU
 * nor the library
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <cmocka.h>

#include "runtime/backend/nccl/nccl.h"
#include "runtime/base/clock.h"

#define CALLS 200

/* As in NCCL 2.28: a job of a call under way, which ncclCommGetAsyncError ends. */
static struct {
    atomic_bool in_progress, job;
    atomic_int asking, at_once, joined;
    int by_id, by_shrink; /* communicators */
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
    nccl.by_id++;
    return ncclSuccess;
}

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 7)
ncclResult_t ncclCommShrink(ncclComm_t comm, int *gone, int n, ncclComm_t *out,
                            ncclConfig_t *config, int flags)
{
    assert_true(n > 0); /* NCCL refuses 0 */
    nccl.by_shrink++;
    return ncclSuccess;
}
#endif

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

int mu_cuda_err(struct mu_err *err, cudaError_t rc, const char *what)
{
    return mu_err_set(err, MUSTER_EDEVICE, "%s: %d", what, rc);
}

int mu_nccl_aborted(struct mu_nccl_backend *b, struct mu_err *err)
{
    return 0;
}

/* A stream is a number of polls that find it busy. */
cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    int *busy = (int *)stream;

    return busy && (*busy)-- > 0 ? cudaErrorNotReady : cudaSuccess;
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

/* What ranks 0 and 1 offer of the worlds that they come from. */
static const struct comm_case {
    const char *name;
    struct mu_nccl_record record[2];
    bool shrinks;
} comms[] = {
    { "a rank is lost", { { .parent_size = 3 }, { .parent_size = 3 } }, true },
    { "one is a newcomer", { { .parent_size = 1 }, { .parent_size = 0 } }, false },
    { "its first communicator is not ours",
      { { .parent_size = 3, .parent_generation = 1 },
        { .parent_size = 3, .parent_generation = 2 } },
      false },
    { "a newcomer has died again",
      { { .parent_size = 2 }, { .parent_size = 2 } },
      false },
};

static void newcomers_get_a_new_communicator(void **state)
{
    struct mu_nccl_backend parent = { .spared = MU_TAKEN };

    for (size_t i = 0; i < sizeof comms / sizeof comms[0]; i++) {
        struct mu_nccl_record records[2];
        struct mu_nccl_backend b = { .env = { .size = 2,
                                              .init_timeout = 1,
                                              .parent = (struct mu_backend *)&parent },
                                     .records = records };
        struct mu_err err = { 0 };

        if (comms[i].shrinks && NCCL_VERSION_CODE < NCCL_VERSION(2, 28, 7))
            continue; /* no rank offers a parent: mu_comm_take */
        memcpy(records, comms[i].record, sizeof records);
        records[1].parent_rank = 1;
        nccl.by_id = nccl.by_shrink = 0;
        atomic_store(&parent.spared, MU_TAKEN);
        assert_int_equal(mu_comm_begin(&b, &err), 0);
        if (nccl.by_shrink != comms[i].shrinks || nccl.by_id == comms[i].shrinks)
            fail_msg("%s: %d new, %d shrunk", comms[i].name, nccl.by_id,
                     nccl.by_shrink);
        assert_int_equal(atomic_load(&parent.spared), MU_SPENT);
    }
}

/* A collective has run on the program's stream last, one before on the backend's. */
static void quiet_waits_for_every_stream_of_a_collective(void **state)
{
    int own = 3, program = 5;
    struct mu_nccl_backend b = { .stream = (cudaStream_t)&own,
                                 .tail = (cudaStream_t)&program };
    struct mu_err err = { 0 };

    assert_int_equal(mu_nccl_quiet(&b, &err), 0);
    assert_true(b.quiet);
    assert_true(own < 0 && program < 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_thread_at_a_time_asks_for_the_state),
        cmocka_unit_test(a_call_that_fails_is_no_call_any_more),
        cmocka_unit_test(newcomers_get_a_new_communicator),
        cmocka_unit_test(quiet_waits_for_every_stream_of_a_collective),
    };

    return cmocka_run_group_tests_name("nccl_call", tests, NULL, NULL);
}
