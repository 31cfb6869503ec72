/* SPDX-License-Identifier: BSD-3-Clause */
/* both_transports.h - a body on three ranks with the host backend, which moves bytes
 * through shared memory in the first run and by TCP in the second
 */
#ifndef MU_TEST_BOTH_TRANSPORTS_H
#define MU_TEST_BOTH_TRANSPORTS_H

#include "tests/unit/ranks.h"

static const struct mu_backend_ops *const host = &mu_backend_host;

void in_both_transports(ranks_body *body);
/* [collective] The sum of all ranks in p. */
int reduce(struct mu_backend *b, float *p, size_t count, struct mu_err *err);
/* Returns when all ranks have called it for the n-th time. */
void meet_at(struct ranks_self *self, int n);

#endif
