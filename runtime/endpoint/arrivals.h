/* SPDX-License-Identifier: BSD-3-Clause */
/* arrivals.h - what endpoint.c and arrivals.c share: the endpoint from the inside */
#ifndef MU_ARRIVALS_H
#define MU_ARRIVALS_H

#include <pthread.h>
#include <unistd.h>

#include "runtime/base/fork.h"
#include "runtime/endpoint/bell.h"
#include "runtime/endpoint/endpoint.h"
#include "runtime/endpoint/gate.h"

enum { MU_LOCAL, MU_TCP, MU_GATES };

#define MU_RETIRED 16 /* generations: no caller is so far behind */

struct mu_endpoint {
    struct mu_address address;
    struct mu_gate gate[MU_GATES]; /* the thread's */
    int wake_fd, bell_fd;          /* for the thread; an arrival is there */
    pid_t owner;
    pthread_t thread;
    struct mu_forkable fork;

    pthread_mutex_t lock; /* of what follows */
    bool stop, changed;   /* changed: a secret is new */
    bool has_secret[MU_NSERVICES];
    uint8_t secret[MU_NSERVICES][MU_TOKEN_LEN];
    const struct mu_log *log;
    int lines; /* of warnings left */
    struct mu_arrival *first, **last;
    uint64_t retired[MU_RETIRED]; /* the newest; a ring of nretired entries so far */
    unsigned nretired;
};

/* For the gates, with the endpoint as arg: print a dropped connection; judge a complete
 * claim, and list the arrival if it is proved.
 */
void mu_arrivals_warn(void *arg, const char *from, const char *why);
void mu_arrivals_judge(void *arg, struct mu_gate *g, struct mu_caller *c);

/* Takes *at out of the list and frees it; its descriptor stays open. With the lock. */
void mu_arrivals_unlink(struct mu_endpoint *ep, struct mu_arrival **at);

#endif
