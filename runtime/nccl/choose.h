/* SPDX-License-Identifier: BSD-3-Clause */
/* choose.h - the limits of a communicator's ranks: from the file of their machine, or
 * measured now and written there
 *
 * Rank 0 alone reads and writes the file: the others take what it sends.
 */
#ifndef MU_NCCL_CHOOSE_H
#define MU_NCCL_CHOOSE_H

#include "runtime/backend/serve.h"
#include "runtime/nccl/limits.h"

struct mu_choose {
    int rank, size;
    struct mu_exchange exchange;
    double timeout; /* seconds, of each fence */
    void *comm;     /* NCCL's handle */
    struct mu_backend *backend;
    const struct mu_nccl_serve *serve;
    const struct mu_log *log;
};

/* Collective. Where nothing can be measured, what is known of H200 GPUs; -1: not that
 * either.
 */
int mu_choose(const struct mu_choose *c, struct mu_limits *out, struct mu_err *err);

#endif
