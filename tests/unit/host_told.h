/* SPDX-License-Identifier: BSD-3-Clause */
/* host_told.h - a rank of the host backend that notes what it is told of failures */
#ifndef TEST_HOST_TOLD_H
#define TEST_HOST_TOLD_H

#include "tests/unit/ranks.h"

#define host (&mu_backend_host)

/* What env.failed was told. */
extern struct told {
    _Atomic int calls, rank, status;
    _Atomic int64_t at;
    char why[512];
} told;

void sleep_ms(int ms);
/* Once, soon, and this. */
bool was_told(int rank, int status);
/* Open the backend so that failures are noted. 0, or a rank's bad status. */
int open_world(struct ranks_self *self, struct mu_backend **b);
/* An all-reduce in place, and one from begin to end. */
struct mu_coll sum_of(void *p, size_t count);
int reduce(struct mu_backend *b, void *p, size_t count, struct mu_err *err);

#endif
