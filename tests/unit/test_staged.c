/* SPDX-License-Identifier: BSD-3-Clause */
/* test_staged.c - collectives in host memory on a backend with memory of its own */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "runtime/muster.h"
#include "tests/unit/forked.h"

/* The host backend, but it takes lent memory only. */
static struct mu_backend_ops strict;
static struct {
    char *at;
    size_t bytes;
} lent[4];
static int drains;

static bool strict_is_host(const struct mu_backend *b, const void *p)
{
    return true;
}

static void *lend(struct mu_backend *b, size_t bytes, void *stream, struct mu_err *err)
{
    int i = 0;

    while (i < 4 && lent[i].at)
        i++;
    if (i == 4) {
        mu_err_set(err, MUSTER_EMEMORY, "no memory left");
        return NULL;
    }
    lent[i].at = malloc(bytes);
    lent[i].bytes = bytes;
    return lent[i].at;
}

static void take_back(struct mu_backend *b, void *p, void *stream)
{
    for (int i = 0; i < 4; i++)
        if (lent[i].at == p)
            lent[i].at = NULL;
    free(p);
}

/* On a GPU it waits for collectives that are not joined, too. */
static int strict_drain(struct mu_backend *b, void *stream, struct mu_err *err)
{
    drains++;
    return mu_backend_host.drain(b, stream, err);
}

static bool is_own(const char *p)
{
    for (int i = 0; i < 4; i++)
        if (lent[i].at && p >= lent[i].at && p <= lent[i].at + lent[i].bytes)
            return true;
    return false;
}

static int strict_start(struct mu_backend *b, const struct mu_coll *coll,
                        struct mu_request **out, struct mu_err *err)
{
    if (coll->count + coll->recv_count > 0 &&
        !(is_own(coll->send) && is_own(coll->recv)))
        return mu_err_set(err, MUSTER_EINTERNAL, "not my memory");
    return mu_backend_host.start(b, coll, out, err);
}

static void act_strict(struct muster *m)
{
    strict = mu_backend_host;
    strict.start = strict_start;
    strict.is_host = strict_is_host;
    strict.drain = strict_drain;
    strict.idle = mu_backend_host.drain;
    strict.alloc_private = lend;
    strict.free_private = take_back;
    /* As of a GPU: only what goes through its memory blocks in muster_wait. */
    strict.host_memory = false;
    m->comm.ops = &strict;
}

static void act_as_ever(struct muster *m)
{
    if (m->comm.stage)
        take_back(NULL, m->comm.stage, NULL);
    m->comm.stage = NULL;
    m->comm.ops = &mu_backend_host;
}

enum { N = 700001 }; /* several chunks of 4 MiB, the last one odd */

/* Element i of the part of rank r. */
static double element(int r, int i)
{
    return r * 1000 + i % 1000;
}

static void to_and_from_a_root(struct muster *m, int rank, double *x, double *all)
{
    int size = muster_size(m);

    for (int i = 0; i < N; i++)
        x[i] = element(rank, i);
    RANK_OK(muster_reduce(m, x, rank == 1 ? all : NULL, N, MUSTER_F64, MUSTER_MAX, 1,
                          NULL));
    for (int i = 0; i < N && rank == 1; i++)
        RANK_CHECK(all[i] == element(size - 1, i));
    RANK_OK(muster_gather(m, x, rank == 2 ? all : NULL, N, MUSTER_F64, 2, NULL));
    for (int i = 0; i < N * size && rank == 2; i++)
        RANK_CHECK(all[i] == element(i / N, i % N));
    for (int i = 0; i < N; i++)
        x[i] = -1;
    RANK_OK(muster_scatter(m, rank == 2 ? all : NULL, x, N, MUSTER_F64, 2, NULL));
    for (int i = 0; i < N; i++)
        RANK_CHECK(x[i] == element(rank, i));
}

static void each_to_each(struct muster *m, int rank, const double *x, double *all)
{
    enum { EACH = N / 3 };
    int size = muster_size(m);

    RANK_OK(muster_alltoall(m, x, all, EACH, MUSTER_F64, NULL));
    for (int r = 0; r < size; r++)
        for (int i = 0; i < EACH; i++)
            RANK_CHECK(all[r * EACH + i] == element(r, rank * EACH + i));
    RANK_OK(muster_gather(m, x, all, 0, MUSTER_F64, 0, NULL));
}

static int through_the_stage(struct muster *m, int rank, void *arg)
{
    int size = muster_size(m);
    double *x = malloc(sizeof *x * N), *all = malloc(sizeof *all * N * (size_t)size);

    act_strict(m);
    for (int i = 0; i < N; i++)
        x[i] = element(rank, i);
    RANK_OK(muster_allgather(m, x, all, N, MUSTER_F64, NULL));
    for (int r = 0; r < size; r++)
        for (int i = 0; i < N; i++)
            RANK_CHECK(all[(size_t)r * N + (size_t)i] == r * 1000 + i % 1000);
    RANK_OK(muster_reduce_scatter(m, all, x, N, MUSTER_F64, NULL));
    for (int i = 0; i < N; i++)
        RANK_CHECK(x[i] == size * (rank * 1000 + i % 1000));
    RANK_OK(muster_allreduce(m, x, N, MUSTER_F64, MUSTER_MAX, NULL));
    for (int i = 0; i < N; i++)
        RANK_CHECK(x[i] == size * ((size - 1) * 1000 + i % 1000));
    x[N - 1] = rank;
    RANK_OK(muster_broadcast(m, x, N, MUSTER_F64, 1, NULL));
    RANK_CHECK(x[N - 1] == 1);
    to_and_from_a_root(m, rank, x, all);
    each_to_each(m, rank, x, all);
    free(x);
    free(all);
    act_as_ever(m);
    return muster_finalize(m);
}

/* The message of rank r to the next one: r + 1 thousand elements, and one. */
static size_t length(int r)
{
    return (size_t)r * 1000 + 1001;
}

static void around_the_ring(struct muster *m, int rank, const double *x, double *y)
{
    int size = muster_size(m), next = (rank + 1) % size, last = (rank + 2) % size;

    RANK_OK(muster_sendrecv(m, x, length(rank), next, y, length(last), last, MUSTER_F64,
                            NULL));
    for (size_t i = 0; i < length(last); i++)
        RANK_CHECK(y[i] == element(last, (int)i));
    if (rank == 0) {
        RANK_OK(muster_send(m, x, N, MUSTER_F64, 1, NULL));
    } else if (rank == 1) {
        RANK_OK(muster_recv(m, y, N, MUSTER_F64, 0, NULL));
        for (int i = 0; i < N; i++)
            RANK_CHECK(y[i] == element(0, i));
    }
}

/* Rank r has q + 1 elements for rank q, in reverse order and with gaps, and none for
 * rank 0. What it receives lies in the same buffer.
 */
static void unequal_parts(struct muster *m, int rank)
{
    int size = muster_size(m);
    double box[64] = { 0 };
    size_t out[3], out_at[3], in[3], in_at[3];

    for (int r = 0; r < size; r++) {
        out[r] = r > 0 ? (size_t)r + 1 : 0;
        out_at[r] = 25 - 10 * (size_t)r;
        in[r] = rank > 0 ? (size_t)rank + 1 : 0;
        in_at[r] = 30 + 10 * (size_t)r;
        for (size_t i = 0; i < out[r]; i++)
            box[out_at[r] + i] = 100 * rank + 10 * r + (double)i;
    }
    RANK_OK(muster_alltoallv(m, box, out, out_at, box, in, in_at, MUSTER_F64, NULL));
    for (int r = 0; r < size; r++) {
        for (size_t i = 0; i < in[r]; i++)
            RANK_CHECK(box[in_at[r] + i] == 100 * r + 10 * rank + (double)i);
        RANK_CHECK(box[in_at[r] + in[r]] == 0);
    }
}

/* Waited for in another order than started. */
static void in_flight(struct muster *m, int rank, double *x, double *y)
{
    int size = muster_size(m), done = 0;
    struct muster_handle *sum, *part, *message = NULL;
    double token = 7;

    for (int i = 0; i < N; i++)
        x[i] = element(rank, i);
    RANK_OK(muster_start(m, &sum));
    RANK_OK(muster_allreduce(m, x, N, MUSTER_F64, MUSTER_SUM, NULL));
    RANK_OK(muster_start(m, &part));
    RANK_OK(muster_gather(m, &token, rank == 0 ? y : NULL, 1, MUSTER_F64, 0, NULL));
    RANK_OK(muster_start(m, &message));
    if (rank == 0)
        RANK_OK(muster_send(m, &token, 1, MUSTER_F64, 1, NULL));
    else if (rank == 1)
        RANK_OK(muster_recv(m, y, 1, MUSTER_F64, 0, NULL));
    else
        RANK_OK(muster_sendrecv(m, &token, 1, 2, y, 1, 2, MUSTER_F64, NULL));
    RANK_OK(muster_wait(message, 0));
    RANK_OK(muster_wait(part, 0));
    RANK_CHECK(rank == 0 ? y[0] == 7 && y[2] == 7 : y[0] == 7);
    while (!done)
        RANK_OK(muster_test(sum, &done));
    RANK_CHECK(x[1] == element(rank, 1)); /* the library's until the wait */
    RANK_OK(muster_wait(sum, 0));
    for (int i = 0; i < N; i++)
        RANK_CHECK(x[i] == size * (double)(i % 1000) + 1000.0 * size * (size - 1) / 2);
}

static int through_lent_memory(struct muster *m, int rank, void *arg)
{
    double *x = malloc(sizeof *x * N), *y = malloc(sizeof *y * N);

    act_strict(m);
    for (int i = 0; i < N; i++)
        x[i] = element(rank, i);
    around_the_ring(m, rank, x, y);
    unequal_parts(m, rank);
    in_flight(m, rank, x, y);
    RANK_CHECK(!lent[0].at && !lent[1].at && !lent[2].at && drains == 0);
    free(x);
    free(y);
    act_as_ever(m);
    return muster_finalize(m);
}

/* The call fails alone: the next one works. */
static int without_memory_to_lend(struct muster *m, int rank, void *arg)
{
    struct muster_handle *h[5];
    float x[5] = { 0 };

    act_strict(m);
    for (int i = 0; i < 4; i++) {
        RANK_OK(muster_start(m, &h[i]));
        RANK_OK(muster_allreduce(m, x + i, 1, MUSTER_F32, MUSTER_SUM, NULL));
    }
    RANK_OK(muster_start(m, &h[4]));
    RANK_CHECK(muster_allreduce(m, x + 4, 1, MUSTER_F32, MUSTER_SUM, NULL) ==
               MUSTER_EMEMORY);
    RANK_CHECK(!h[4] && strstr(muster_error(m), "no memory left"));
    for (int i = 0; i < 4; i++)
        RANK_OK(muster_wait(h[i], 0));
    RANK_OK(muster_sendrecv(m, x, 1, rank, x + 1, 1, rank, MUSTER_F32, NULL));
    act_as_ever(m);
    return muster_finalize(m);
}

struct buffers {
    double *x, *all;
};

/* Each with several chunks. */
static int call(struct muster *m, int number, const struct buffers *b)
{
    switch (number) {
    case 0:
        return muster_allreduce(m, b->x, N, MUSTER_F64, MUSTER_MAX, NULL);
    case 1:
        return muster_allgather(m, b->x, b->all, N, MUSTER_F64, NULL);
    case 2:
        return muster_reduce_scatter(m, b->all, b->x, N, MUSTER_F64, NULL);
    case 3:
        return muster_broadcast(m, b->x, N, MUSTER_F64, 1, NULL);
    case 4:
        return muster_reduce(m, b->x, b->all, N, MUSTER_F64, MUSTER_SUM, 2, NULL);
    case 5:
        return muster_gather(m, b->x, b->all, N, MUSTER_F64, 1, NULL);
    case 6:
        return muster_scatter(m, b->all, b->x, N, MUSTER_F64, 1, NULL);
    default:
        return muster_alltoall(m, b->x, b->all, N / 3, MUSTER_F64, NULL);
    }
}

static int one_waits_others_start(struct muster *m, int rank, void *arg)
{
    size_t size = (size_t)muster_size(m);
    struct buffers b = { malloc(sizeof *b.x * N), malloc(sizeof *b.all * N * size) };
    struct muster_handle *h = NULL;

    act_strict(m);
    for (int number = 0; number < 8; number++) {
        for (size_t i = 0; i < N * size; i++)
            b.all[i] = b.x[i % N] = element(rank, (int)(i % N));
        if (rank != number % 3)
            RANK_OK(muster_start(m, &h));
        RANK_OK(call(m, number, &b));
        if (rank != number % 3)
            RANK_OK(muster_wait(h, 0));
        if (number == 0)
            for (int i = 0; i < N; i++)
                RANK_CHECK(b.x[i] == element(2, i));
        if (number == 1 || (number == 5 && rank == 1))
            for (int i = 0; i < N * (int)size; i++)
                RANK_CHECK(b.all[i] == element(i / N, i % N));
    }
    free(b.x);
    free(b.all);
    act_as_ever(m);
    return muster_finalize(m);
}

static void a_rank_may_wait_for_what_others_only_start(void **state)
{
    struct forked_world w = { .size = 3, .nodes = 1 };

    forked_well("one waits", w, one_waits_others_start, NULL);
}

static void host_memory_goes_through_the_backends_own(void **state)
{
    struct forked_world w = { .size = 3, .nodes = 1 };

    forked_well("stage", w, through_the_stage, NULL);
    forked_well("lent memory", w, through_lent_memory, NULL);
    forked_well("no memory to lend", w, without_memory_to_lend, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(host_memory_goes_through_the_backends_own),
        cmocka_unit_test(a_rank_may_wait_for_what_others_only_start),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
