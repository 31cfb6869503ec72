/* SPDX-License-Identifier: BSD-3-Clause */
/* star.h - every rank connects to rank 0, and all-gathers go over it
 *
 *   rank r                                     rank 0
 *   dial, until it proves the secret  ------>  the endpoint of the rendezvous
 *   rank, size, host                  ------>  refuses a second one of a rank, and
 *                                              another size
 *   its bytes                         ------>  of all ranks
 *   status 0 and the bytes of all     <------
 *   or a status and why               <------  a rank is missing or has died
 */
#ifndef MU_STAR_H
#define MU_STAR_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/err.h"
#include "runtime/base/fork.h"
#include "runtime/endpoint/endpoint.h"

#define MU_STAR_HOST 128

struct mu_star {
    int rank, size;
    int *fd;                    /* by rank; of rank 0: to all, else to rank 0; -1 */
    char (*host)[MU_STAR_HOST]; /* by rank; "": it has not connected */
    double patience;            /* MUSTER_INIT_TIMEOUT, for messages; the caller's */
    struct mu_forkable fork;
};

int mu_star_open(struct mu_star *s, int rank, int size, const char *host,
                 struct mu_err *err);
void mu_star_close(struct mu_star *s); /* fine after a failed open, and twice */

/* Rank 0: take all others from ep. hint ends the sentence that names missing ranks. */
int mu_star_accept(struct mu_star *s, struct mu_endpoint *ep, double timeout,
                   const char *hint, struct mu_err *err);
/* Another rank: call `at` until rank 0 answers, and a little longer than rank 0 waits.
 * own: this process's endpoint; host, where, hint: of rank 0, for sentences.
 */
int mu_star_call(struct mu_star *s, const struct mu_address *own,
                 const struct mu_address *at, bool tcp, const uint8_t *secret,
                 double timeout, const char *host, const char *where, const char *hint,
                 struct mu_err *err);

/* See struct mu_published. */
int mu_star_gather(void *star, const void *mine, size_t len, void *all, double timeout,
                   struct mu_err *err);
/* Has a rank gone that this one may be waiting for? Does not block. */
bool mu_star_lost(const struct mu_star *s, struct mu_err *err);

#endif
