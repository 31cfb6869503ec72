/* SPDX-License-Identifier: BSD-3-Clause */
/* ring.h - notice that a rank dies before there are control connections
 *
 * PMIx under Slurm reports no death to survivors: when a rank dies in a fence, Slurm
 * ends the step a second later, without a reason; a rank that exits is left out of the
 * fence; and after the death of a whole node's ranks PMIx does not answer. So the ranks
 * watch each other in two rings:
 *
 *   of a node    all ranks of the node
 *   of nodes     the first rank of each node
 *
 * In each ring a rank calls the endpoint of the next one, whose record it requested
 * from PMIx while that rank lived. Both prove the secret of that record: there is no
 * token before the ranks have met. A connection that ends is a rank that died, because
 * each rank keeps its own until the world is closed. The caller sends its host's name,
 * and both send a byte for each fence that they enter: this shows a rank that lives but
 * does not enter a fence.
 */
#ifndef MU_RING_H
#define MU_RING_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/endpoint/endpoint.h"

#define MU_RING_HOST 128

/* What a rank publishes for the one before it. */
struct mu_ring_record {
    struct mu_address address;
    uint8_t secret[MU_TOKEN_LEN];
    char host[MU_RING_HOST];
};

enum mu_ring_kind { MU_RING_NODE, MU_RING_NODES, MU_RINGS };

struct mu_ring_link {
    int fd;             /* proved; -1: none (yet) */
    double since;       /* monotonic clock, seconds */
    int sent, received; /* fences that we, and it, have entered */
    size_t got;         /* of the caller's host name */
};

struct mu_ring {
    struct mu_endpoint *endpoint; /* borrowed; NULL: no rank is watched */
    int rank, entered;            /* fences */
    struct mu_ring_record mine;
    struct mu_ring_side {
        int next, before; /* next: -1 when this rank is not in the ring, or alone */
        bool have_next;   /* theirs is known */
        struct mu_ring_record theirs;
        char host_before[MU_RING_HOST];
        struct mu_ring_link to, from;
        struct mu_dial dial;
        bool dialing;
        double pause; /* no call before, seconds of the monotonic clock */
    } side[MU_RINGS];
};

/* node_of[r]: any number, equal for ranks of one node, 0: not known; host is this
 * node's name. Then mine is to be published, where endpoint is set.
 */
void mu_ring_open(struct mu_ring *n, struct mu_endpoint *endpoint, int rank,
                  const uint64_t *node_of, int size, const char *host);
/* What rank `next` of that ring published. */
void mu_ring_set_next(struct mu_ring *n, enum mu_ring_kind kind, const void *record,
                      size_t len);
/* This rank enters a fence. */
void mu_ring_enter(struct mu_ring *n);
/* At its deadline: the rank next to us in the ring of nodes that lives and has not
 * entered it, or -1. A connection of less than a second does not count.
 */
int mu_ring_behind(const struct mu_ring *n);
/* The rank that died since, or -1, its host, and the ring. Does not block; to be called
 * again and again while this rank waits.
 */
int mu_ring_poll(struct mu_ring *n, const char **host, enum mu_ring_kind *kind);
void mu_ring_close(struct mu_ring *n);

#endif
