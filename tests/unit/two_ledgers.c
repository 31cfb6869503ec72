/* SPDX-License-Identifier: BSD-3-Clause */
/* two_ledgers.c - a folder with the ledgers of two ranks, which a test may change */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/folder.h"
#include "tests/unit/two_ledgers.h"

char folder[] = "/tmp/muster-ledger-XXXXXX";
char path[2][64];
struct image image[2];

/* Rank 1 begins its second all-reduce 40 us late; its first ends 10 us after rank 0's.
 * Rank 1's GPU has another clock. 64 MiB in 100 us are 671.1 GB/s on the bus of two.
 */
static const struct {
    uint64_t begin, end, gpu_begin, gpu_end; /* ns */
} times[2][2] = {
    { { 1000000, 1010000, 7020000, 7120000 }, { 2000000, 2010000, 8020000, 8160000 } },
    { { 1001000, 1012000, 500000, 610000 }, { 2040000, 2050000, 1560000, 1660000 } },
};

void fill(int rank)
{
    struct image *m = &image[rank];

    memset(m, 0, sizeof *m);
    m->head =
        (struct mu_ledger_head){ .magic = MU_LEDGER_MAGIC,
                                 .order = 0x01020304,
                                 .records = RECORDS,
                                 .calls = 2,
                                 .comms = 1,
                                 .interface = 5,
                                 .opened_real = 5000000000 + (uint64_t)rank * 1000,
                                 .opened_monotonic = 900000,
                                 .rank = rank,
                                 .host = "n1" };
    m->comm[0] = (struct mu_ledger_comm){
        .hash = 0xabc, .rank = rank, .size = 2, .nodes = 1, .name = "group"
    };
    for (int i = 0; i < 2; i++)
        m->call[i] = (struct mu_ledger_call){ .sequence = (uint64_t)i,
                                              .count = 16 << 20,
                                              .begin = times[rank][i].begin,
                                              .end = times[rank][i].end,
                                              .gpu_begin = times[rank][i].gpu_begin,
                                              .gpu_end = times[rank][i].gpu_end,
                                              .number = (uint64_t)i + 1,
                                              .began = 8,
                                              .ended = 8,
                                              .channels = 8,
                                              .element = 4,
                                              .func = "AllReduce",
                                              .algo = "RING",
                                              .proto = "SIMPLE" };
}

void save(int rank, size_t size)
{
    FILE *f = fopen(path[rank], "w");

    assert_non_null(f);
    assert_int_equal(fwrite(&image[rank], 1, size, f), size);
    assert_int_equal(fclose(f), 0);
}

int setup(void **state)
{
    if (!mkdtemp(strcpy(folder, "/tmp/muster-ledger-XXXXXX")))
        return -1;
    for (int rank = 0; rank < 2; rank++) {
        snprintf(path[rank], sizeof path[rank], "%s/r%d.ledger", folder, rank);
        fill(rank);
        save(rank, sizeof image[rank]);
    }
    return 0;
}

int teardown(void **state)
{
    return folder_remove(folder);
}

int load(struct mu_profile *p, char *said, size_t size)
{
    char *paths[] = { folder };
    FILE *to = fmemopen(said, size, "w");
    int rc = mu_profile_load(p, paths, 1, NULL, to);

    fclose(to);
    return rc;
}
