/* SPDX-License-Identifier: BSD-3-Clause */
/* test_calls.c - the collectives of muster.h on the program's own buffers: operators,
 * element types, what each rank gets
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

static int refuses(struct muster *m, int rank, void *arg)
{
    uint8_t x[8] = { 0 };

    RANK_CHECK(muster_allreduce(m, x, 4, MUSTER_BYTE, MUSTER_SUM, NULL) ==
               MUSTER_EUSAGE);
    RANK_CHECK(strcmp(muster_error(m), "muster_allreduce: bytes cannot be added, use a "
                                       "number type") == 0);
    RANK_CHECK(muster_reduce_scatter(m, x, x, 1, MUSTER_BYTE, NULL) == MUSTER_EUSAGE);
    RANK_CHECK(muster_allreduce(m, x, 1, MUSTER_F32, (enum muster_op)4, NULL) ==
               MUSTER_EUSAGE);
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
        cmocka_unit_test(a_mean_is_the_sum_by_the_number_of_ranks),
        cmocka_unit_test(bytes_are_moved),
        cmocka_unit_test(what_cannot_be_done_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
