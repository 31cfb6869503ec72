/* SPDX-License-Identifier: BSD-3-Clause */
/* rdzv.h - rank, size and rank 0's port, from the variables that torchrun names */
#ifndef MU_RDZV_H
#define MU_RDZV_H

#include "runtime/core/launch.h"

struct mu_rdzv {
    int rank, size;
    int local_rank;       /* LOCAL_RANK, -1: unset */
    int local_size;       /* LOCAL_WORLD_SIZE, 0: unset */
    const char *node;     /* NODE_RANK, else GROUP_RANK, else ""; borrowed */
    const char *addr;     /* MASTER_ADDR; borrowed */
    unsigned port;        /* on which rank 0 listens */
    const char *port_set; /* what gives it: "MUSTER_PORT" or "MASTER_PORT + 1" */
};

/* 1: RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are not all set, or are those of
 * one rank alone. -1: one of them cannot be right (MUSTER_ERENDEZVOUS).
 */
int mu_rdzv_read(const struct mu_launch *launch, struct mu_rdzv *out,
                 struct mu_err *err);

#endif
