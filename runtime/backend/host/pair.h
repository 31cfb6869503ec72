/* SPDX-License-Identifier: BSD-3-Clause */
/* pair.h - messages between two ranks: inside of pair.c and pair_queue.c
 *
 *   pair_queue.c   the messages in flight; the caller that waits or a thread moves them
 *   pair.c         the connections, and one step of every message
 *   pair_channel.c the bytes of a message inside a domain (pair_channel.h)
 *
 * Messages on one connection keep their order. Those on others pass each other.
 */
#ifndef MU_HOST_PAIR_H
#define MU_HOST_PAIR_H

#include <poll.h>

#include "runtime/backend/host/host.h"
#include "runtime/backend/host/pair_channel.h"

struct mu_message_head {
    uint64_t count;
    uint32_t dtype, zero;
};

/* One direction of a message. */
struct mu_leg {
    int rank; /* -1: none */
    struct mu_message_head head;
    char *data;
    size_t bytes, done;  /* with the head */
    struct mu_leg *next; /* on the same connection */
};

struct mu_message {
    const struct mu_host_request *rq;
    struct mu_leg out, in;
    bool done;
    struct mu_message *next; /* in flight, oldest first */
};

/* Connections to and from a rank, -1: none yet; the legs that wait for them. */
struct mu_pair {
    int out, in;
    bool accepted; /* `in` can be read; in a domain: the offer of memory is here */
    struct mu_channel to, from; /* with memory: the bytes pass through it */
    struct mu_leg *sends, *receives;
};

/* What changes after open is changed with the lock held. */
struct mu_host_pairs {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct mu_pair *of; /* by rank */
    struct mu_message *first;
    bool driven; /* a caller moves the messages, the thread rests */
    bool stop, has_thread;
    pthread_t thread;
    int wake_fd;                          /* ends the thread's sleep */
    struct pollfd *of_caller, *of_thread; /* room for every connection */
};

/* Connect to a rank. Its endpoint answers at any time: it need not be in its call. */
int mu_pair_connect(struct mu_host_backend *b, int rank,
                    const struct mu_host_request *rq, struct mu_err *err);
/* Move what can be moved without waiting. Locked. Finished messages leave the list.
 * After a failure of the backend it does nothing.
 */
void mu_pair_step(struct mu_host_backend *b);
/* What to poll for, from fds[1] on; returns the end, or 0: something can be moved, do
 * not sleep. *missing: a rank that sends has not connected yet. Locked.
 */
int mu_pair_events(struct mu_host_backend *b, struct pollfd *fds, bool *missing);
/* After poll: take what has woken this rank. Locked. */
void mu_pair_woken(struct mu_host_backend *b);

#endif
