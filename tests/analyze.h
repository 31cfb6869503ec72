/* SPDX-License-Identifier: BSD-3-Clause */
/* analyze.h - what tests/analyze puts in front of each file: mu_err_set returns -1, and
 * an analyzer reads one file at a time, so that it would also follow the way where
 * `rc = mu_err_set(...)` gives 0
 */
#include "runtime/base/err.h"

static inline int mu_err_minus_one(int rc)
{
    (void)rc;
    return -1;
}

#define mu_err_set(...) mu_err_minus_one(mu_err_set(__VA_ARGS__))
#define mu_err_context(...) mu_err_minus_one(mu_err_context(__VA_ARGS__))
