/* SPDX-License-Identifier: BSD-3-Clause */
/* world_pmix.h - inside of the world of PMIx
 *
 *   world_pmix.c     open, meet, close, abort
 *   pmix_exchange.c  publish, fetch, fence; who is missing when a fence does not end
 *   pmix_call.c      one non-blocking call of PMIx and the wait for it
 */
#ifndef MU_WORLD_PMIX_H
#define MU_WORLD_PMIX_H

#include <pmix.h>

#include "runtime/boot/neighbour.h"
#include "runtime/boot/world.h"

/* What each rank tells the others first. */
struct card {
    uint32_t magic;
    int32_t pid;
    char host[128], node_key[160];
    uint8_t token[MU_TOKEN_LEN]; /* rank 0's counts */
};

struct pmix {
    pmix_proc_t self;
    struct card card;
    const struct mu_world *world;
    struct mu_neighbour neighbour;
    bool left;         /* PMIx is finalized */
    int lost;          /* the neighbour that died in a fence, or -1 */
    char last_key[64]; /* published last: every rank does so before each fence */
};

/* ---- pmix_exchange.c ---- */
int mu_pmix_publish(void *pmix, const char *key, const void *value, size_t len,
                    struct mu_err *err);
int mu_pmix_fetch(void *pmix, int rank, const char *key, void **value, size_t *len,
                  double timeout, struct mu_err *err);
/* Wait for all ranks, and say who is missing when they do not come. */
int mu_pmix_fence(void *pmix, double timeout, struct mu_err *err);
/* The ranks of this node, from PMIx's list "0,1,2"; false: not known. */
bool mu_pmix_local_ranks(const struct mu_world *w, bool *local);

#endif
