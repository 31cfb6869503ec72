/* SPDX-License-Identifier: BSD-3-Clause */
/* node_ring.h - notice that a rank of another node dies before there are control
 * connections
 *
 * A rank that is alone on its node has no neighbour who would see it die, and after its
 * death PMIx under Slurm answers nobody any more. So the first ranks of the nodes form
 * a ring too, over TCP: each calls the first rank of the next node, whose address and
 * secret it asked PMIx for while that rank was well, and is called by the one of the
 * node before. Both prove the secret, which neither sends, so that neither a
 * stranger nor a wrong host is taken for a rank. Then the caller sends its host's name,
 * and both send a byte for each fence that they enter, so that one that lives but does
 * not come is known too.
 */
#ifndef MU_NODE_RING_H
#define MU_NODE_RING_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/exchange.h"
#include "runtime/endpoint/hello.h"
#include "runtime/endpoint/net.h"

#define MU_NODE_RING_CALLERS 4
#define MU_NODE_RING_HOST 128

/* The address record that a rank publishes over PMIx for the one before it. */
struct mu_node_ring_record {
    uint32_t magic, port;
    uint8_t secret[MU_PROOF_SECRET];
    char host[MU_NODE_RING_HOST];
    char address[MU_NET_ADDRESSES];
    char machine[MU_NET_MACHINE];
};

struct mu_node_ring {
    int rank, next, before; /* next: -1 when there is no other node */
    struct mu_node_ring_record mine, theirs;
    char host_before[MU_NODE_RING_HOST];
    bool have_next; /* theirs is known */
    int listener;
    struct mu_node_ring_link {
        int fd;             /* proved; -1: none (yet) */
        int sent, received; /* fences that we, and it, have entered */
    } to, from;
    int entered;    /* fences */
    int call;       /* to be proved, -1: none */
    bool connected; /* connected: the hello goes on */
    struct mu_hello hello;
    int turn;     /* of the addresses */
    double pause; /* the call ends, or the next may begin, then */
    struct mu_node_ring_caller {
        int fd; /* -1: free */
        double until;
        struct mu_hello hello;
        bool proved;
        size_t got; /* of the host, when it is proved */
        char host[MU_NODE_RING_HOST];
    } callers[MU_NODE_RING_CALLERS];
};

#define MU_NODE_RING_NONE                                                              \
    ((struct mu_node_ring){                                                            \
        .next = -1,                                                                    \
        .before = -1,                                                                  \
        .listener = -1,                                                                \
        .to.fd = -1,                                                                   \
        .from.fd = -1,                                                                 \
        .call = -1,                                                                    \
        .callers = { { .fd = -1 }, { .fd = -1 }, { .fd = -1 }, { .fd = -1 } } })

/* node_of[r]: any number, equal for ranks of one node; host is this one's name. Where
 * rank is not the first of its node, there is one node, or no socket can be had, nobody
 * is watched (next is -1). Otherwise mine is to be published.
 */
void mu_node_ring_open(struct mu_node_ring *n, int rank, const uint64_t *node_of,
                       int size, const char *host);
/* What rank `next` published. */
void mu_node_ring_set_next(struct mu_node_ring *n, const void *record, size_t len);
/* This rank enters a fence. */
void mu_node_ring_enter(struct mu_node_ring *n);
/* At its deadline: the rank next to us that lives and has not entered it, or -1. */
int mu_node_ring_behind(const struct mu_node_ring *n);
/* The rank that died since, or -1, and its host. Does not block; to be called again and
 * again while this rank waits.
 */
int mu_node_ring_poll(struct mu_node_ring *n, const char **host);
void mu_node_ring_close(struct mu_node_ring *n);

#endif
