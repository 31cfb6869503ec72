/* SPDX-License-Identifier: BSD-3-Clause */
/* exchange.h - how ranks find each other before they have connections
 */
#ifndef MU_EXCHANGE_H
#define MU_EXCHANGE_H

#include <stddef.h>

#include "runtime/base/err.h"

/* Bytes of the secret that proves to a peer that one is of this job. */
#define MU_TOKEN_LEN 32

/* PMIx behind three calls. Key and value are this rank's; fetch is valid after a fence.
 * Times in seconds.
 */
struct mu_exchange {
    void *arg;
    int (*publish)(void *arg, const char *key, const void *value, size_t len,
                   struct mu_err *err);
    int (*fence)(void *arg, double timeout, struct mu_err *err);
    /* *value is malloc'ed, caller frees */
    int (*fetch)(void *arg, int rank, const char *key, void **value, size_t *len,
                 double timeout, struct mu_err *err);
};

#endif
