/* SPDX-License-Identifier: BSD-3-Clause */
/* two_ledgers.h - a folder with the ledgers of two ranks, which a test may change */
#ifndef TEST_TWO_LEDGERS_H
#define TEST_TWO_LEDGERS_H

#include <stddef.h>

#include "runtime/ledger/ledger_out.h"
#include "runtime/tools/profile.h"

#define RECORDS 64

extern char folder[];
extern char path[2][64];
extern struct image {
    struct mu_ledger_head head;
    struct mu_ledger_comm comm[MU_LEDGER_COMMS];
    struct mu_ledger_call call[RECORDS];
} image[2];

/* Write image[rank] anew, and its first bytes into path[rank]. */
void fill(int rank);
void save(int rank, size_t size);
/* Of each test. */
int setup(void **state);
int teardown(void **state);
/* Load the folder; the sentences come into `said`. */
int load(struct mu_profile *p, char *said, size_t size);

#endif
