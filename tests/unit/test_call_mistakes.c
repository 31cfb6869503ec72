/* SPDX-License-Identifier: BSD-3-Clause */
/* test_call_mistakes.c - collectives with arguments that differ among the ranks, or
 * that no rank may give: the message names them
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "tests/unit/forked.h"

struct mistake {
    const char *name, *says;
    int (*call)(struct muster *m, int rank, int32_t *x);
};

static int another_root(struct muster *m, int rank, int32_t *x)
{
    return muster_gather(m, x, x, 1, MUSTER_I32, rank, NULL);
}

static int another_count(struct muster *m, int rank, int32_t *x)
{
    return muster_alltoall(m, x, x + 512, (size_t)rank + 3, MUSTER_I32, NULL);
}

static int another_call(struct muster *m, int rank, int32_t *x)
{
    return rank ? muster_scatter(m, x, x + 512, 4, MUSTER_I32, 0, NULL)
                : muster_gather(m, x, x + 512, 4, MUSTER_I32, 0, NULL);
}

static int another_type(struct muster *m, int rank, int32_t *x)
{
    return muster_reduce(m, x, x, 4, rank ? MUSTER_I32 : MUSTER_F32, MUSTER_SUM, 0,
                         NULL);
}

static int another_part(struct muster *m, int rank, int32_t *x)
{
    size_t out[2] = { 1, 5 }, in[2] = { 1, 5 };

    if (rank == 1) {
        out[0] = 4;
        out[1] = in[1] = 1;
        in[0] = 5;
    }
    return muster_alltoallv(m, x, out, NULL, x + 512, in, NULL, MUSTER_I32, NULL);
}

static int another_long_part(struct muster *m, int rank, int32_t *x)
{
    size_t out[2] = { 1, 50000 }, in[2] = { 1, 50000 };

    if (rank == 1) {
        out[0] = 40000;
        out[1] = in[1] = 1;
        in[0] = 50000;
    }
    return muster_alltoallv(m, x, out, NULL, x + 60000, in, NULL, MUSTER_I32, NULL);
}

static const struct mistake mistakes[] = {
    { "another root", "gather of 1 i32 to rank 0", another_root },
    { "another root, other side", "gather of 1 i32 to rank 1", another_root },
    { "another count", "all-to-all of 4 i32", another_count },
    { "another call", "scatter of 4 i32 from rank 0", another_call },
    { "another type", "reduce of 4 f32 (sum, scale 1) to rank 0", another_type },
    { "another part",
      "rank 1 (node a) sends 4 i32 to rank 0 (node a), which expects 5 from it "
      "(all-to-all-v of i32)",
      another_part },
    { "another long part", "sends 40000 i32 to rank 0", another_long_part },
};

static int errs(struct muster *m, int rank, void *arg)
{
    const struct mistake *mistake = arg;
    int32_t *x = calloc(1 << 17, sizeof *x);

    RANK_CHECK(mistake->call(m, rank, x) == MUSTER_ECONTRACT);
    if (!strstr(muster_error(m), mistake->says))
        fprintf(stderr, "rank %d: %s\n", rank, muster_error(m));
    RANK_CHECK(strstr(muster_error(m), mistake->says));
    free(x);
    return muster_finalize(m) == MUSTER_ECONTRACT ? 0 : 1;
}

static void a_difference_between_ranks_is_named(void **state)
{
    for (size_t i = 0; i < sizeof mistakes / sizeof mistakes[0]; i++)
        for (int tcp = 0; tcp < 2; tcp++)
            forked_well(
                mistakes[i].name,
                (struct forked_world){
                    .size = 2, .nodes = 1, .return_failure = true, .force_tcp = tcp },
                errs, (void *)&mistakes[i]);
}

static int refuses(struct muster *m, int rank, void *arg)
{
    static const size_t ones[2] = { 1, 1 }, zeros[2] = { 0, 0 };
    uint8_t x[8] = { 0 };

    RANK_CHECK(muster_allreduce(m, x, 4, MUSTER_BYTE, MUSTER_SUM, NULL) ==
               MUSTER_EUSAGE);
    RANK_CHECK(strcmp(muster_error(m), "muster_allreduce: bytes cannot be added, use a "
                                       "number type") == 0);
    RANK_CHECK(muster_reduce_scatter(m, x, x, 1, MUSTER_BYTE, NULL) == MUSTER_EUSAGE);
    RANK_CHECK(muster_send(m, x, 1, MUSTER_BYTE, rank, NULL) == MUSTER_EUSAGE);
    RANK_CHECK(muster_send(m, NULL, 1, MUSTER_BYTE, !rank, NULL) == MUSTER_EUSAGE);
    RANK_CHECK(muster_recv(m, x, 1, MUSTER_BYTE, 2, NULL) == MUSTER_EUSAGE);
    RANK_CHECK(muster_sendrecv(m, x, 1, rank, x + 1, 1, !rank, MUSTER_BYTE, NULL) ==
               MUSTER_EUSAGE);
    RANK_CHECK(muster_sendrecv(m, x, 2, !rank, x + 1, 1, !rank, MUSTER_BYTE, NULL) ==
               MUSTER_EUSAGE);
    RANK_CHECK(muster_allreduce(m, x, 1, MUSTER_F32, (enum muster_op)4, NULL) ==
               MUSTER_EUSAGE);
    RANK_CHECK(muster_reduce(m, x, x, 1, MUSTER_F32, MUSTER_SUM, 2, NULL) ==
               MUSTER_EUSAGE);
    RANK_CHECK(muster_reduce(m, NULL, x, 1, MUSTER_F32, MUSTER_SUM, 0, NULL) ==
               MUSTER_EUSAGE);
    RANK_CHECK(muster_gather(m, x, NULL, 1, MUSTER_F32, rank, NULL) == MUSTER_EUSAGE);
    RANK_CHECK(muster_scatter(m, NULL, x, 1, MUSTER_F32, -1, NULL) == MUSTER_EUSAGE);
    RANK_CHECK(muster_scatter(m, x, x + 1, 2, MUSTER_BYTE, rank, NULL) ==
               MUSTER_EUSAGE);
    RANK_CHECK(muster_alltoall(m, x, x + 1, 1, MUSTER_BYTE, NULL) == MUSTER_EUSAGE);
    RANK_CHECK(muster_alltoallv(m, x, ones, NULL, x, ones, NULL, MUSTER_BYTE, NULL) ==
               MUSTER_EUSAGE);
    RANK_CHECK(muster_alltoallv(m, x, ones, NULL, x + 4, ones, zeros, MUSTER_BYTE,
                                NULL) == MUSTER_EUSAGE);
    RANK_CHECK(muster_alltoallv(m, x, ones, NULL, x + 4, zeros, NULL, MUSTER_BYTE,
                                NULL) == MUSTER_EUSAGE);
    RANK_CHECK(muster_alltoallv(m, x, NULL, NULL, x + 4, ones, NULL, MUSTER_BYTE,
                                NULL) == MUSTER_EUSAGE);
    return muster_finalize(m);
}

static void what_cannot_be_done_is_refused(void **state)
{
    forked_well("refused", (struct forked_world){ .size = 2, .nodes = 1 }, refuses,
                NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_difference_between_ranks_is_named),
        cmocka_unit_test(what_cannot_be_done_is_refused),
    };

    return cmocka_run_group_tests_name("call_mistakes", tests, NULL, NULL);
}
