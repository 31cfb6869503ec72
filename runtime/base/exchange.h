/* SPDX-License-Identifier: BSD-3-Clause */
/* exchange.h - how ranks find each other before they are connected */
#ifndef MU_EXCHANGE_H
#define MU_EXCHANGE_H

#include <stdbool.h>
#include <stddef.h>

#include "runtime/base/err.h"

/* Bytes of the secret by which a rank proves to a peer that both are of one job. */
#define MU_TOKEN_LEN 32

/* A table to which each rank adds: the three calls of PMIx that the library needs.
 * publish stores a value of this rank; other ranks may fetch it after the next fence.
 * Times are in seconds.
 */
struct mu_exchange {
    void *arg;
    int (*publish)(void *arg, const char *key, const void *value, size_t len,
                   struct mu_err *err);
    int (*fence)(void *arg, double timeout, struct mu_err *err);
    /* *value: caller frees */
    int (*fetch)(void *arg, int rank, const char *key, void **value, size_t *len,
                 double timeout, struct mu_err *err);
    /* Has a rank died that this rank may be waiting for? Fills err. Does not block.
     * NULL: not known.
     */
    bool (*lost)(void *arg, struct mu_err *err);
};

#endif
