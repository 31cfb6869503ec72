/* SPDX-License-Identifier: BSD-3-Clause */
/* test_nccl_calls.c - what the NCCL backend asks of CUDA for a collective, and in which
 * order, on a fake of CUDA and NCCL that writes down each call
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "runtime/backend/nccl/nccl.h"

/* Streams and events are numbers: s1, s2 are the program's, own the backend's. */
#define S1 ((cudaStream_t)0x1)
#define S2 ((cudaStream_t)0x2)
#define OWN ((cudaStream_t)0x9)

static char calls[2048];
static int events;
static bool in_capture;

static void note(const char *fmt, ...)
{
    size_t n = strlen(calls);
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(calls + n, sizeof calls - n, fmt, ap);
    va_end(ap);
}

static const char *name(cudaStream_t s)
{
    return s == OWN ? "own" : s == S1 ? "s1" : s == S2 ? "s2" : "?";
}

/* ---- CUDA ------------------------------------------------------------------------ */

cudaError_t cudaStreamIsCapturing(cudaStream_t s, enum cudaStreamCaptureStatus *status)
{
    *status = in_capture ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    note("ask ");
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags)
{
    *e = (cudaEvent_t)(uintptr_t)++events;
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
    note("record:%s ", name(s));
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags)
{
    note("wait:%s ", name(s));
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes,
                            enum cudaMemcpyKind kind, cudaStream_t s)
{
    note("copy:%s ", name(s));
    return cudaSuccess;
}

/* ---- Kernels --------------------------------------------------------------------- */

size_t mu_one_shot_limit(const struct mu_reach *reach, size_t element)
{
    return 1 << 20;
}

cudaError_t mu_one_shot(const struct mu_reach *r, const void *send, void *recv,
                        size_t count, enum muster_dtype dtype, enum muster_op op,
                        double scale, int blocks, int threads, cudaStream_t s)
{
    note("one-shot:%s ", name(s));
    return cudaSuccess;
}

bool mu_segmented_can(enum muster_dtype dtype, enum muster_op op)
{
    return true;
}

cudaError_t mu_pull(const struct mu_reach *r, void *const *buffer, size_t count,
                    enum muster_dtype dtype, double scale, int blocks, cudaStream_t s)
{
    note("pull:%s ", name(s));
    return cudaSuccess;
}

bool mu_relay_fits(const struct mu_reach *reach, size_t bytes)
{
    return false;
}

cudaError_t mu_relay(const struct mu_reach *r, const void *send, void *recv,
                     size_t count, enum muster_dtype dtype, double scale, int blocks,
                     cudaStream_t s)
{
    fail_msg("the relay was not usable");
    return cudaErrorUnknown;
}

cudaError_t mu_peer_barrier(const struct mu_reach *r, cudaStream_t s)
{
    note("barrier:%s ", name(s));
    return cudaSuccess;
}

cudaError_t mu_add_parts(const struct mu_reach *r, void *own, const void *parts,
                         size_t bytes, enum muster_dtype dtype, double scale,
                         cudaStream_t s)
{
    note("add:%s ", name(s));
    return cudaSuccess;
}

cudaError_t mu_scale(void *buffer, size_t count, enum muster_dtype dtype, double scale,
                     cudaStream_t s)
{
    note("scale:%s ", name(s));
    return cudaSuccess;
}

cudaError_t mu_mark(volatile uint32_t *word, cudaStream_t s)
{
    note("mark:%s ", name(s));
    return cudaSuccess;
}

/* ---- NCCL and the rest of the backend -------------------------------------------- */

ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count,
                           ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t s)
{
    note("nccl%s:%s ", op == ncclAvg ? "-mean" : "", name(s));
    return ncclSuccess;
}

ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count,
                           ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t s)
{
    return ncclInvalidArgument;
}

ncclResult_t ncclAllGather(const void *send, void *recv, size_t count,
                           ncclDataType_t type, ncclComm_t comm, cudaStream_t s)
{
    return ncclInvalidArgument;
}

ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t count,
                               ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                               cudaStream_t s)
{
    return ncclInvalidArgument;
}

int mu_comm_wait(struct mu_nccl_backend *b, double timeout, const char *what,
                 struct mu_err *err)
{
    return -1;
}

int mu_cuda_err(struct mu_err *err, cudaError_t rc, const char *what)
{
    return -1;
}

int mu_nccl_err(struct mu_err *err, const struct mu_nccl_backend *b, ncclResult_t rc,
                const char *what)
{
    return -1;
}

void mu_watch_add(struct mu_nccl_backend *b, const char *what)
{
    note("watch ");
}

char *mu_parts_of(const struct mu_nccl_backend *b, int local_rank)
{
    return b->peer_control[local_rank];
}

bool mu_nccl_arena_peers(const struct mu_nccl_backend *b, const void *p, size_t bytes,
                         void **buffer)
{
    buffer[0] = buffer[1] = (void *)p;
    return true;
}

int mu_nccl_aborted(struct mu_nccl_backend *b, struct mu_err *err)
{
    return 0;
}

/* ---- The tests ------------------------------------------------------------------- */

#define MIB ((size_t)1 << 20)

static struct mu_nccl_backend backend(bool own)
{
    struct mu_nccl_backend b = { .env = { .size = 2, .local_size = 2, .timeout = 1 },
                                 .stream = OWN,
                                 .tail = OWN,
                                 .forced = -1,
                                 .own = own,
                                 .reach = { .n = 2 } };
    struct mu_algo_curve nccl = { 2, { 1 << 16, 1 << 24 }, { 20, 70 }, 0 },
                         pull = { 2, { 1 << 16, 1 << 24 }, { 8, 58 }, 0 },
                         one = { 2, { 1 << 12, 1 << 20 }, { 3, 12 }, 0 };

    b.table.curve[MU_ALGO_NCCL] = nccl;
    b.table.curve[MU_ALGO_PULL] = pull;
    b.table.curve[MU_ALGO_ONE_SHOT] = one;
    calls[0] = '\0';
    in_capture = false;
    return b;
}

static struct mu_coll bucket(size_t bytes, bool hidden, bool batch_join)
{
    return (struct mu_coll){ .kind = MU_COLL_ALLREDUCE,
                             .dtype = MUSTER_F32,
                             .op = MUSTER_SUM,
                             .send = (void *)4096,
                             .recv = (void *)4096,
                             .count = bytes / 4,
                             .scale = 0.5,
                             .stream = S1,
                             .hidden = hidden,
                             .batch_join = batch_join,
                             .what = "bucket 0" };
}

/* Start n of these, then join all on s; as a step does. */
static void step(struct mu_nccl_backend *b, const struct mu_coll *coll, int n,
                 cudaStream_t s)
{
    struct mu_nccl_request *r[4];

    for (int i = 0; i < n; i++) {
        assert_int_equal(mu_nccl_start(b, coll, &r[i], NULL), 0);
        note("| ");
    }
    for (int i = 0; i < n; i++)
        assert_int_equal(mu_nccl_join(b, r[i], s, NULL), 0);
}

static void a_bucket_of_views_is_two_event_calls_and_its_path(void **state)
{
    struct mu_nccl_backend b = backend(true);
    struct mu_coll hidden = bucket(8 * MIB, true, true),
                   last = bucket(8 * MIB, false, true),
                   small = bucket(64 << 10, false, true);
    struct mu_coll *path[] = { &hidden, &last, &small };
    static const char *const expect[] = {
        "record:s1 wait:own ask copy:own barrier:own add:own copy:own barrier:own | "
        "record:own wait:s1 ",
        "record:s1 wait:own ask pull:own | record:own wait:s1 ",
        "record:s1 wait:own ask one-shot:own | record:own wait:s1 ",
    };

    for (int i = 0; i < 3; i++) {
        calls[0] = '\0';
        step(&b, path[i], 1, S1);
        assert_string_equal(calls, expect[i]);
    }
    mu_nccl_close(&b);
}

static void one_event_joins_all_of_a_step(void **state)
{
    struct mu_nccl_backend b = backend(true);
    struct mu_coll c = bucket(8 * MIB, false, true);

    for (int i = 0; i < 2; i++) {
        calls[0] = '\0';
        step(&b, &c, 3, S1);
        assert_string_equal(calls, "record:s1 wait:own ask pull:own | "
                                   "record:s1 wait:own ask pull:own | "
                                   "record:s1 wait:own ask pull:own | "
                                   "record:own wait:s1 ");
    }
    assert_int_equal(events, 6); /* those of the first step serve the next */
    mu_nccl_close(&b);
}

static void a_bucket_that_is_copied_back_has_its_own_event(void **state)
{
    struct mu_nccl_backend b = backend(true);
    struct mu_coll c = bucket(8 * MIB, false, false);

    step(&b, &c, 2, S1);
    assert_string_equal(calls, "record:s1 wait:own ask pull:own record:own | "
                               "record:s1 wait:own ask pull:own record:own | "
                               "wait:s1 wait:s1 ");
    mu_nccl_close(&b);
}

static void another_stream_waits_for_itself(void **state)
{
    struct mu_nccl_backend b = backend(true);
    struct mu_coll c = bucket(8 * MIB, false, true);
    struct mu_nccl_request *r[3];

    for (int i = 0; i < 3; i++)
        assert_int_equal(mu_nccl_start(&b, &c, &r[i], NULL), 0);
    calls[0] = '\0';
    assert_int_equal(mu_nccl_join(&b, r[0], S1, NULL), 0);
    assert_int_equal(mu_nccl_join(&b, r[1], S2, NULL), 0);
    assert_int_equal(mu_nccl_join(&b, r[2], S2, NULL), 0);
    assert_string_equal(calls, "record:own wait:s1 record:own wait:s2 ");
    mu_nccl_close(&b);
}

static void what_starts_after_a_join_is_waited_for_anew(void **state)
{
    struct mu_nccl_backend b = backend(true);
    struct mu_coll c = bucket(8 * MIB, false, true);
    struct mu_nccl_request *r[2];

    assert_int_equal(mu_nccl_start(&b, &c, &r[0], NULL), 0);
    assert_int_equal(mu_nccl_join(&b, r[0], S1, NULL), 0);
    assert_int_equal(mu_nccl_start(&b, &c, &r[1], NULL), 0);
    calls[0] = '\0';
    assert_int_equal(mu_nccl_join(&b, r[1], S1, NULL), 0);
    assert_string_equal(calls, "record:own wait:s1 ");
    mu_nccl_close(&b);
}

static void a_captured_graph_has_no_copies_behind_kernels_that_wait(void **state)
{
    struct mu_nccl_backend b = backend(true);
    struct mu_coll c = bucket(8 * MIB, true, true);

    in_capture = true;
    step(&b, &c, 1, S1);
    assert_string_equal(calls, "record:s1 wait:own ask pull:own | record:own wait:s1 ");
    mu_nccl_close(&b);
}

static void between_nodes_nccl_means_and_is_watched(void **state)
{
    struct mu_nccl_backend b = backend(false);
    struct mu_coll c = bucket(8 * MIB, true, true);

    step(&b, &c, 1, S1);
    assert_string_equal(
        calls, "record:s1 wait:own ask ask nccl-mean:own watch | record:own wait:s1 ");
    mu_nccl_close(&b);
}

static void a_direct_one_follows_what_ran_before_it(void **state)
{
    struct mu_nccl_backend b = backend(true);
    struct mu_coll c = bucket(8 * MIB, false, true),
                   direct = bucket(64 << 10, false, false);
    struct mu_nccl_request *r;

    direct.direct = true;
    step(&b, &c, 1, S1);
    calls[0] = '\0';
    step(&b, &direct, 1, S1); /* s1 is behind everything since it joined */
    assert_string_equal(calls, "ask one-shot:s1 | ");
    direct.stream = S2;
    calls[0] = '\0';
    step(&b, &direct, 1, S2);
    assert_string_equal(calls, "record:s1 wait:s2 ask one-shot:s2 | ");
    assert_int_equal(mu_nccl_start(&b, &c, &r, NULL), 0);
    calls[0] = '\0';
    step(&b, &direct, 1, S2); /* one of the backend's stream is under way */
    assert_string_equal(calls, "record:own wait:s2 ask one-shot:s2 | ");
    assert_int_equal(mu_nccl_join(&b, r, S1, NULL), 0);
    mu_nccl_close(&b);
}

static int reset(void **state)
{
    events = 0;
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bucket_of_views_is_two_event_calls_and_its_path),
        cmocka_unit_test_setup(one_event_joins_all_of_a_step, reset),
        cmocka_unit_test(a_bucket_that_is_copied_back_has_its_own_event),
        cmocka_unit_test(another_stream_waits_for_itself),
        cmocka_unit_test(what_starts_after_a_join_is_waited_for_anew),
        cmocka_unit_test(a_captured_graph_has_no_copies_behind_kernels_that_wait),
        cmocka_unit_test(between_nodes_nccl_means_and_is_watched),
        cmocka_unit_test(a_direct_one_follows_what_ran_before_it),
    };

    return cmocka_run_group_tests_name("nccl_calls", tests, NULL, NULL);
}
