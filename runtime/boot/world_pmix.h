/* SPDX-License-Identifier: BSD-3-Clause */
/* world_pmix.h - inside of the world of PMIx
 *
 *   world_pmix.c     open, meet, close, abort
 *   pmix_publish.c   publish a value, get one; the ranks of this node
 *   pmix_exchange.c  fetch, fence; who is missing when a fence does not end
 *   pmix_watch.c     who died while this rank waits in a fence
 *   pmix_call.c      one non-blocking call of PMIx and the wait for it
 */
#ifndef MU_WORLD_PMIX_H
#define MU_WORLD_PMIX_H

#include <pmix.h>

#include "runtime/boot/pmix_call.h"
#include "runtime/boot/ring.h"
#include "runtime/boot/world.h"

struct mu_pmix_watch {
    struct mu_ring ring;
    struct mu_pmix_request {  /* for the record of the next rank of each ring */
        struct mu_call *call; /* NULL: none */
        bool sent;
        pmix_status_t rc;
    } request[MU_RINGS];
    bool *local, *gone; /* ranks of this node, and those of them without a process */
    int suspect;        /* one of the latter, seen once; -1: none */
    double next_poll;   /* for tasks, seconds of the monotonic clock */
    int lost;           /* the rank that died, or -1 */
    char lost_host[128];
    unsigned behind; /* ranks of this node that report it before this one */
};

struct pmix {
    pmix_proc_t self;
    struct mu_world *world;
    struct mu_pmix_watch watch;
    int number; /* of the worlds of this process, which the ranks open in one order */
    bool left;  /* PMIx is finalized */
    char last_key[MU_PMIX_KEY]; /* published last: every rank does so before a fence */
};

/* ---- pmix_publish.c ---- */
/* The name of a key in this world. A client of PMIx 5 keeps the first value of a key
 * that it gets, so each world of a process has keys of its own.
 */
void mu_pmix_key(const struct pmix *p, const char *key, char name[MU_PMIX_KEY]);
int mu_pmix_publish(void *pmix, const char *key, const void *value, size_t len,
                    struct mu_err *err);
/* The ranks of this node, from PMIx's list "0,1,2"; false: not known. */
bool mu_pmix_local_ranks(const struct mu_world *w, bool *local);

/* The host of a rank, which need not have started; "": not known. Slurm has no node id
 * for ranks of other nodes.
 */
void mu_pmix_host_of(const struct pmix *p, int rank, char *host, size_t len);
/* Start to get what our own server has already; *out NULL: out of memory. */
int mu_pmix_start_get(const struct pmix *p, int rank, const char *key, double timeout,
                      struct mu_call **out);

/* ---- pmix_exchange.c ---- */
int mu_pmix_fetch(void *pmix, int rank, const char *key, void **value, size_t *len,
                  double timeout, struct mu_err *err);
/* Wait for all ranks; on a timeout name those that are missing. */
int mu_pmix_fence(void *pmix, double timeout, struct mu_err *err);

/* ---- pmix_watch.c ---- */
/* To be called before the record is published. Without sockets no rank is watched. */
void mu_pmix_watch_open(struct mu_world *w);
/* A rank was lost: see watch.lost. Does not block; the arg is struct pmix. */
bool mu_pmix_watch_poll(void *pmix);
/* The same, and report it in err. */
bool mu_pmix_watch_lost(void *pmix, struct mu_err *err);
/* Report the lost rank in err. One rank reports before the others. Returns -1. */
int mu_pmix_watch_report(const struct pmix *p, struct mu_err *err);
void mu_pmix_watch_close(struct pmix *p);

#endif
