/* SPDX-License-Identifier: BSD-3-Clause */
/* published.h - an exchange over any all-gather of bytes */
#ifndef MU_PUBLISHED_H
#define MU_PUBLISHED_H

#include "runtime/base/exchange.h"

struct mu_published_entry;

struct mu_published {
    int rank, size;
    /* [collective] all has size * len bytes, in rank order. */
    int (*gather)(void *arg, const void *mine, size_t len, void *all, double timeout,
                  struct mu_err *err);
    void *arg;
    /* By rank, for messages; borrowed. NULL, all or one: not known. */
    char *const *host_of;
    struct mu_published_entry *first; /* of all ranks, since the first fence */
    char *out;                        /* of this rank, since the last one */
    size_t out_len;
};

/* arg of the exchange is p; `lost` is the caller's. */
struct mu_exchange mu_published_exchange(struct mu_published *p);
void mu_published_clear(struct mu_published *p);

#endif
