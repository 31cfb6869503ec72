/* SPDX-License-Identifier: BSD-3-Clause */
/* test_calls.c - the collectives of muster.h on the program's own buffers: operators,
 * element types, what each rank gets
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "tests/unit/forked.h"
#include "tests/unit/patience.h"

#define LARGE 70001

/* One rank, ranks that share memory, ranks of two nodes, ranks on TCP alone. */
static void on_every_layout(const char *what,
                            int (*body)(struct muster *m, int rank, void *arg))
{
    forked_well(what, (struct forked_world){ .size = 1, .nodes = 1 }, body, NULL);
    forked_well(what, (struct forked_world){ .size = 3, .nodes = 1 }, body, NULL);
    forked_well(what, (struct forked_world){ .size = 4, .nodes = 2 }, body, NULL);
    forked_well(what, (struct forked_world){ .size = 3, .nodes = 1, .force_tcp = true },
                body, NULL);
}

static int takes_means(struct muster *m, int rank, void *arg)
{
    static const size_t counts[] = { 1, 5, LARGE };
    int size = muster_size(m);

    for (size_t k = 0; k < sizeof counts / sizeof counts[0]; k++) {
        double *x = malloc(counts[k] * sizeof *x);
        int64_t whole = 10 * rank + 1, want = 0;

        for (size_t i = 0; i < counts[k]; i++)
            x[i] = (double)i + rank;
        RANK_OK(muster_allreduce(m, x, counts[k], MUSTER_F64, MUSTER_MEAN, NULL));
        for (size_t i = 0; i < counts[k]; i++) {
            double off = x[i] - ((double)i + (size - 1) / 2.0);

            RANK_CHECK(off < 1e-9 && off > -1e-9);
        }
        free(x);
        want = 5 * (size - 1) + 1; /* exact: the sum is size * (5 * (size-1) + 1) */
        RANK_OK(muster_allreduce(m, &whole, 1, MUSTER_I64, MUSTER_MEAN, NULL));
        RANK_CHECK(whole == want);
    }
    return muster_finalize(m);
}

static void a_mean_is_the_sum_by_the_number_of_ranks(void **state)
{
    on_every_layout("means", takes_means);
}

static int moves_bytes(struct muster *m, int rank, void *arg)
{
    size_t size = (size_t)muster_size(m);
    uint8_t *all = malloc(size * LARGE), *mine = malloc(LARGE);

    memset(mine, 'a' + rank, LARGE);
    RANK_OK(muster_allgather(m, mine, all, LARGE, MUSTER_BYTE, NULL));
    for (size_t i = 0; i < size * LARGE; i++)
        RANK_CHECK(all[i] == 'a' + i / LARGE);
    RANK_OK(muster_broadcast(m, mine, 7, MUSTER_BYTE, (int)size - 1, NULL));
    RANK_CHECK(mine[6] == 'a' + size - 1 && mine[7] == 'a' + rank);
    RANK_CHECK(muster_dtype_size(MUSTER_BYTE) == 1);
    free(all);
    free(mine);
    return muster_finalize(m);
}

static void bytes_are_moved(void **state)
{
    on_every_layout("bytes", moves_bytes);
}

/* What rank `from` has for rank `to` at place i. */
static int32_t piece(int from, int to, size_t i)
{
    return (int32_t)(from * 1000003 + to * 10007 + (int)i);
}

static const size_t sizes[] = { 0, 1, 33, LARGE };
#define NSIZES (sizeof sizes / sizeof sizes[0])

static int reduces(struct muster *m, int rank, void *arg)
{
    int size = muster_size(m);
    double *x = malloc(LARGE * sizeof *x), *y = malloc(LARGE * sizeof *y);
    double *shared = muster_alloc(m, LARGE * sizeof *x);

    for (int k = 0; k < 3 * (int)NSIZES * size; k++) {
        size_t n = sizes[k / 3 % (int)NSIZES];
        int root = k / 3 / (int)NSIZES;
        double *send = k % 3 == 2 ? shared : x, *recv = k % 3 == 0 ? y : send;

        for (size_t i = 0; i < n; i++)
            send[i] = (double)i + rank * rank;
        if (recv != send)
            memset(recv, 0x5a, LARGE * sizeof *y);
        RANK_OK(muster_reduce(m, send, rank == root ? recv : NULL, n, MUSTER_F64,
                              k % 2 ? MUSTER_MAX : MUSTER_SUM, root, NULL));
        for (size_t i = 0; i < n; i++) {
            double most = (size - 1) * (size - 1), squares = 0;

            for (int r = 0; r < size; r++)
                squares += r * r;
            if (rank == root)
                RANK_CHECK(recv[i] ==
                           (k % 2 ? (double)i + most : (double)i * size + squares));
            else
                RANK_CHECK(send[i] == (double)i + rank * rank);
        }
    }
    muster_free(m, shared);
    free(x);
    free(y);
    return muster_finalize(m);
}

static void a_reduce_leaves_its_result_at_the_root(void **state)
{
    on_every_layout("reduce", reduces);
}

static int gathers_and_scatters(struct muster *m, int rank, void *arg)
{
    int size = muster_size(m);
    int32_t *all = malloc((size_t)size * LARGE * sizeof *all);
    int32_t *mine = malloc(LARGE * sizeof *mine);

    for (int k = 0; k < (int)NSIZES * size; k++) {
        size_t n = sizes[k % (int)NSIZES];
        int root = k / (int)NSIZES;
        /* The root's own part may stay in place. */
        int32_t *own = k % 2 && rank == root ? all + (size_t)rank * n : mine;

        for (size_t i = 0; i < n; i++)
            own[i] = piece(rank, root, i);
        RANK_OK(muster_gather(m, own, rank == root ? all : NULL, n, MUSTER_I32, root,
                              NULL));
        for (size_t i = 0; i < n * (size_t)size && rank == root; i++)
            RANK_CHECK(all[i] == piece((int)(i / n), root, i % n));
        for (size_t i = 0; i < n * (size_t)size; i++)
            all[i] = piece(rank, (int)(i / n), i % n);
        RANK_OK(muster_scatter(m, rank == root ? all : NULL, own, n, MUSTER_I32, root,
                               NULL));
        for (size_t i = 0; i < n; i++)
            RANK_CHECK(own[i] == piece(root, rank, i));
    }
    free(all);
    free(mine);
    return muster_finalize(m);
}

static void gather_and_scatter_have_a_part_for_each_rank(void **state)
{
    on_every_layout("gather and scatter", gathers_and_scatters);
}

static int moves_nothing(struct muster *m, int rank, void *arg)
{
    int size = muster_size(m), next = (rank + 1) % size;
    int before = (rank + size - 1) % size;

    RANK_OK(muster_allreduce(m, NULL, 0, MUSTER_F32, MUSTER_SUM, NULL));
    RANK_OK(muster_broadcast(m, NULL, 0, MUSTER_BYTE, 0, NULL));
    RANK_OK(muster_allgather(m, NULL, NULL, 0, MUSTER_I32, NULL));
    RANK_OK(muster_reduce_scatter(m, NULL, NULL, 0, MUSTER_F64, NULL));
    RANK_OK(muster_reduce(m, NULL, NULL, 0, MUSTER_F16, MUSTER_MAX, 0, NULL));
    RANK_OK(muster_gather(m, NULL, NULL, 0, MUSTER_BYTE, 0, NULL));
    RANK_OK(muster_scatter(m, NULL, NULL, 0, MUSTER_BYTE, 0, NULL));
    RANK_OK(muster_alltoall(m, NULL, NULL, 0, MUSTER_BYTE, NULL));
    RANK_OK(muster_sendrecv(m, NULL, 0, next, NULL, 0, before, MUSTER_BYTE, NULL));
    return muster_finalize(m);
}

static void no_elements_need_no_buffer(void **state)
{
    on_every_layout("no elements", moves_nothing);
}

static int all_to_all(struct muster *m, int rank, void *arg)
{
    int size = muster_size(m);
    size_t room = (size_t)size * LARGE;
    int32_t *out = malloc(room * sizeof *out), *in = malloc(room * sizeof *in);

    for (size_t k = 0; k < NSIZES; k++) {
        size_t n = sizes[k];

        for (size_t i = 0; i < n * (size_t)size; i++)
            out[i] = piece(rank, (int)(i / n), i % n);
        RANK_OK(muster_alltoall(m, out, in, n, MUSTER_I32, NULL));
        for (size_t i = 0; i < n * (size_t)size; i++)
            RANK_CHECK(in[i] == piece((int)(i / n), rank, i % n));
    }
    free(out);
    free(in);
    return muster_finalize(m);
}

/* Rank `from` sends this many to rank `to`: nothing, little and much. */
static size_t unequal(int from, int to, int k)
{
    return sizes[(from * 7 + to * 3 + k) % (int)NSIZES];
}

/* With gaps of one element between the parts, in reverse order of the ranks. */
static int all_to_all_v(struct muster *m, int rank, void *arg)
{
    int size = muster_size(m);
    size_t room = (size_t)size * (LARGE + 1), n_out[8], at_out[8], n_in[8], at_in[8];
    int32_t *out = malloc(room * sizeof *out), *in = malloc(room * sizeof *in);

    for (int k = 0; k < 5; k++) {
        size_t next_out = 0, next_in = 0;

        for (int r = size - 1; r >= 0; r--) {
            n_out[r] = unequal(rank, r, k);
            n_in[r] = unequal(r, rank, k);
            at_out[r] = next_out;
            at_in[r] = next_in;
            next_out += n_out[r] + 1;
            next_in += n_in[r] + 1;
            for (size_t i = 0; i < n_out[r]; i++)
                out[at_out[r] + i] = piece(rank, r, i);
        }
        memset(in, 0x77, room * sizeof *in);
        RANK_OK(
            muster_alltoallv(m, out, n_out, at_out, in, n_in, at_in, MUSTER_I32, NULL));
        for (int r = 0; r < size; r++) {
            for (size_t i = 0; i < n_in[r]; i++)
                RANK_CHECK(in[at_in[r] + i] == piece(r, rank, i));
            RANK_CHECK(in[at_in[r] + n_in[r]] == 0x77777777);
        }
    }
    free(out);
    free(in);
    return muster_finalize(m);
}

static void all_to_all_brings_each_part_to_its_rank(void **state)
{
    on_every_layout("all-to-all", all_to_all);
    on_every_layout("all-to-all-v", all_to_all_v);
}

/* ---- Messages ---- */

static void fill(int32_t *x, int from, int to, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = piece(from, to, i);
}

static void compare(struct muster *m, const int32_t *x, int from, int to, size_t n)
{
    for (size_t i = 0; i < n; i++)
        RANK_CHECK(x[i] == piece(from, to, i));
}

/* Around the ring with sendrecv; from each rank to each other with send and recv, many
 * on the way at once.
 */
static int sends(struct muster *m, int rank, void *arg)
{
    int size = muster_size(m), next = (rank + 1) % size;
    int before = (rank + size - 1) % size;
    int32_t *out = malloc(LARGE * sizeof *out), *in = malloc(LARGE * sizeof *in);

    for (size_t k = 0; k < NSIZES; k++) {
        size_t n = sizes[k];

        fill(out, rank, next, n);
        RANK_OK(muster_sendrecv(m, out, n, next, in, n, before, MUSTER_I32, NULL));
        compare(m, in, before, rank, n);
        for (int from = 0; from < size; from++)
            for (int to = 0; to < size; to++) {
                if (from == rank && to != rank) {
                    fill(out, rank, to, n);
                    RANK_OK(muster_send(m, out, n, MUSTER_I32, to, NULL));
                }
                if (to == rank && from != rank) {
                    RANK_OK(muster_recv(m, in, n, MUSTER_I32, from, NULL));
                    compare(m, in, from, rank, n);
                }
            }
        RANK_OK(muster_allreduce(m, out, 3, MUSTER_I32, MUSTER_SUM, NULL));
    }
    for (int i = 0; i < 200 && size > 1; i++) { /* small ones do not wait */
        int32_t x = 100 * i + rank;

        RANK_OK(muster_send(m, &x, 1, MUSTER_I32, next, NULL));
    }
    for (int i = 0; i < 200 && size > 1; i++) {
        RANK_OK(muster_recv(m, in, 1, MUSTER_I32, before, NULL));
        RANK_CHECK(in[0] == 100 * i + before);
    }
    free(out);
    free(in);
    return muster_finalize(m);
}

static void a_message_goes_from_one_rank_to_another(void **state)
{
    on_every_layout("messages", sends);
}

static int sends_in_groups(struct muster *m, int rank, void *arg)
{
    struct muster *pair, *half;
    int32_t x = rank, y = -1, z = -1;

    RANK_OK(muster_split(m, rank / 2, 0, "pair", &pair));
    RANK_OK(muster_split(m, rank % 2, 0, "half", &half));
    for (int i = 0; i < 50; i++) {
        RANK_OK(muster_send(pair, &x, 1, MUSTER_I32, rank % 2 == 0, NULL));
        RANK_OK(muster_send(half, &x, 1, MUSTER_I32, rank / 2 == 0, NULL));
        RANK_OK(muster_send(m, &x, 1, MUSTER_I32, 3 - rank, NULL));
        RANK_OK(muster_recv(m, &z, 1, MUSTER_I32, 3 - rank, NULL));
        RANK_CHECK(z == 3 - rank);
        RANK_OK(muster_recv(half, &y, 1, MUSTER_I32, rank / 2 == 0, NULL));
        RANK_CHECK(y == (rank ^ 2));
        RANK_OK(muster_recv(pair, &y, 1, MUSTER_I32, rank % 2 == 0, NULL));
        RANK_CHECK(y == (rank ^ 1));
    }
    RANK_OK(muster_finalize(half));
    RANK_OK(muster_finalize(pair));
    return muster_finalize(m);
}

static void a_group_has_messages_of_its_own(void **state)
{
    for (int tcp = 0; tcp < 2; tcp++)
        forked_well("messages in groups",
                    (struct forked_world){ .size = 4, .nodes = 2, .force_tcp = tcp },
                    sends_in_groups, NULL);
}

/* Rank 0 waits for rank 1 of three. */
static int partner_never_comes(struct muster *m, int rank, void *arg)
{
    int32_t x;

    if (rank == 0)
        return muster_recv(m, &x, 1, MUSTER_I32, 1, NULL);
    muster_doing(m, "reading data");
    pause();
    return 0;
}

static int both_receive(struct muster *m, int rank, void *arg)
{
    int32_t x;

    if (rank < 2)
        return muster_recv(m, &x, 1, MUSTER_I32, !rank, NULL);
    pause();
    return 0;
}

static int another_length(struct muster *m, int rank, void *arg)
{
    int32_t x[5] = { 0 };

    if (rank == 0)
        return muster_recv(m, x, 4, MUSTER_I32, 1, NULL);
    if (rank == 1)
        muster_send(m, x, 5, MUSTER_I32, 0, NULL);
    pause();
    return 0;
}

static int partner_dies(struct muster *m, int rank, void *arg)
{
    int32_t x[5] = { 0 };

    if (rank == 0) {
        muster_recv(m, x, 1, MUSTER_I32, 1, NULL);
        return muster_recv(m, x, 4, MUSTER_I32, 1, NULL);
    }
    if (rank == 1) {
        muster_send(m, x, 1, MUSTER_I32, 0, NULL);
        raise(SIGKILL);
    }
    pause();
    return 0;
}

static const struct {
    int (*body)(struct muster *m, int rank, void *arg);
    int status;
    const char *says;
} silences[] = {
    { partner_never_comes, MUSTER_ETIMEOUT,
      "rank 1 (node a) has not made its call to the receive of 1 i32 from rank 1, "
      "where rank 0 (node a) waits (rank 1 is reading data)" },
    { both_receive, MUSTER_ETIMEOUT,
      "rank 0 (node a) waits for receive of 1 i32 from rank 1, and rank 1 (node a) "
      "for receive of 1 i32 from rank 0: ranks that exchange call muster_sendrecv" },
    { another_length, MUSTER_ECONTRACT,
      "rank 1 (node a) sends 5 i32 to rank 0 (node a), which expects 4 i32 (receive of "
      "4 "
      "i32 from rank 1)" },
    { partner_dies, MUSTER_EPEER, "rank 1 (node a" },
};

static void a_message_that_does_not_come_is_named(void **state)
{
    for (size_t i = 0; i < sizeof silences / sizeof silences[0]; i++) {
        struct forked_world w = { .size = 3, .nodes = 1 };
        struct forked_result r;

        if (silences[i].status == MUSTER_ETIMEOUT)
            w.timeout = PATIENCE;
        forked_run(&w, silences[i].body, NULL, 60, &r);
        if (!strstr(r.text, silences[i].says) || r.status[0] != silences[i].status)
            fail_msg("'%s' was expected, rank 0 ended with %d:\n%s", silences[i].says,
                     r.status[0], r.text);
        forked_clear(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mean_is_the_sum_by_the_number_of_ranks),
        cmocka_unit_test(bytes_are_moved),
        cmocka_unit_test(a_reduce_leaves_its_result_at_the_root),
        cmocka_unit_test(gather_and_scatter_have_a_part_for_each_rank),
        cmocka_unit_test(no_elements_need_no_buffer),
        cmocka_unit_test(all_to_all_brings_each_part_to_its_rank),
        cmocka_unit_test(a_message_goes_from_one_rank_to_another),
        cmocka_unit_test(a_group_has_messages_of_its_own),
        cmocka_unit_test(a_message_that_does_not_come_is_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
