/* SPDX-License-Identifier: BSD-3-Clause */
/* test_nccl_moments.c - times of a made-up GPU whose clock is not the host's */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "runtime/backend/nccl/nccl.h"

#define S 1e9
#define EVENTS 8

struct event {
    bool live, reached;
    double ns; /* of the GPU's clock */
};

static struct {
    struct event event[EVENTS];
    double now; /* the next event's */
    bool capturing, refuses;
    int compared_most; /* ms between two events */
} gpu;

/* The host's clock, for the code here alone. */
static int64_t host;

int clock_gettime(clockid_t clock, struct timespec *out)
{
    *out = (struct timespec){ host / 1000000000, host % 1000000000 };
    return 0;
}

static struct mu_nccl_backend backend;

cudaError_t cudaGetDevice(int *device)
{
    *device = 0;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    return cudaErrorInvalidDevice;
}

cudaError_t cudaGetLastError(void)
{
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t s, enum cudaStreamCaptureStatus *status)
{
    *status =
        gpu.capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags)
{
    assert_int_equal(flags & cudaEventDisableTiming, 0);
    for (int i = 0; i < EVENTS && !gpu.refuses; i++)
        if (!gpu.event[i].live) {
            gpu.event[i] = (struct event){ .live = true };
            *e = (cudaEvent_t)&gpu.event[i];
            return cudaSuccess;
        }
    return cudaErrorMemoryAllocation;
}

cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    assert_true(((struct event *)e)->live);
    ((struct event *)e)->live = false;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
    ((struct event *)e)->ns = gpu.now;
    ((struct event *)e)->reached = false;
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t e)
{
    return ((struct event *)e)->reached ? cudaSuccess : cudaErrorNotReady;
}

/* In float, as CUDA does. */
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    *ms = (float)((((struct event *)to)->ns - ((struct event *)from)->ns) * 1e-6);
    gpu.compared_most = *ms > (float)gpu.compared_most ? (int)*ms : gpu.compared_most;
    return cudaSuccess;
}

/* Enqueued now; the GPU reaches it when its clock is `ns`. */
static void *at(double ns)
{
    gpu.now = ns;
    return mu_nccl_moment(&backend, NULL);
}

static int64_t read_moment(void *moment)
{
    int64_t ns = -1;

    ((struct event *)((struct mu_nccl_moment *)moment)->event)->reached = true;
    assert_true(mu_nccl_reached(&backend, moment, &ns));
    return ns;
}

static int setup(void **state)
{
    memset(&gpu, 0, sizeof gpu);
    memset(&backend, 0, sizeof backend);
    host = INT64_C(500000000000);
    return 0;
}

static int teardown(void **state)
{
    mu_nccl_moments_close(&backend);
    for (int i = 0; i < EVENTS; i++)
        assert_false(gpu.event[i].live);
    return 0;
}

static void a_moment_is_read_when_it_is_reached(void **state)
{
    int64_t enqueued = host, ns = 7;
    void *m = at(3 * S);

    host += 1000000;
    assert_false(mu_nccl_reached(&backend, m, &ns));
    assert_int_equal(ns, 7);
    assert_int_equal(read_moment(m), enqueued);
}

/* Also where they are read in another order than that of the GPU. */
static void times_between_moments_are_the_gpus(void **state)
{
    int64_t from = host;
    void *idle = at(10 * S), *a = at(10 * S + 5000), *b = at(10 * S + 4600);

    host += 1000000;
    assert_int_equal(read_moment(idle), from);
    assert_in_range((uint64_t)(read_moment(a) - from), 4990, 5010);
    assert_in_range((uint64_t)(read_moment(b) - from), 4590, 4610);
}

/* An hour, in which float has 0.25 ms at best and the clocks part by 36 ms. Each moment
 * is on an idle stream.
 */
static void a_long_time_is_as_exact_as_a_short_one(void **state)
{
    const int64_t from = host;

    for (int i = 0; i < 3600; i++) {
        int64_t enqueued = host = from + i * INT64_C(1000010000);
        void *m = at(i * S);

        host += 1000000;
        assert_int_equal(read_moment(m), enqueued);
    }
    assert_in_range(gpu.compared_most, 999, 1001);
}

/* The other way round, 50 us are what the drift allows for in a second. */
static void a_gpu_with_a_fast_clock_is_followed(void **state)
{
    const int64_t from = host;

    for (int i = 0; i < 3600; i++) {
        int64_t enqueued = host = from + i * INT64_C(999990000);
        void *m = at(i * S);

        host += 1000000;
        assert_in_range((uint64_t)(read_moment(m) - enqueued), 0, 50000);
    }
}

/* The first moment was 2 s late, for the stream was busy. A later one is at once. */
static void an_idle_stream_makes_it_exact(void **state)
{
    void *busy = at(102 * S), *idle;
    int64_t from = host;

    host += (int64_t)(3 * S);
    assert_int_equal(read_moment(busy), from); /* too early */
    idle = at(103 * S);
    from = host;
    assert_in_range((uint64_t)(read_moment(idle) - from), 0, 1);
    busy = at(104 * S);
    host += (int64_t)(2 * S);
    assert_in_range((uint64_t)(read_moment(busy) - from), (uint64_t)(0.999 * S),
                    (uint64_t)(1.001 * S));
}

/* A moment is never later than the host reads it. */
static void nothing_is_in_the_future(void **state)
{
    void *first = at(S), *m;

    host += 1000;
    read_moment(first);
    m = at(3 * S);
    host += 5000;
    assert_int_equal(read_moment(m), host);
}

static void what_cuda_refuses_is_unknown(void **state)
{
    gpu.capturing = true;
    assert_null(at(S));
    gpu.capturing = false;
    gpu.refuses = true;
    assert_null(at(S));
    gpu.refuses = false;
    mu_nccl_forget(&backend, at(S));
    gpu.refuses = true;
    assert_non_null(at(S)); /* the same event again */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
        TEST(a_moment_is_read_when_it_is_reached),
        TEST(times_between_moments_are_the_gpus),
        TEST(a_long_time_is_as_exact_as_a_short_one),
        TEST(a_gpu_with_a_fast_clock_is_followed),
        TEST(an_idle_stream_makes_it_exact),
        TEST(nothing_is_in_the_future),
        TEST(what_cuda_refuses_is_unknown),
    };

    return cmocka_run_group_tests_name("nccl_moments", tests, NULL, NULL);
}
