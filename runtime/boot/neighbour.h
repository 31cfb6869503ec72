/* SPDX-License-Identifier: BSD-3-Clause */
/* neighbour.h - notice that a rank of this node dies before there are control
 * connections
 *
 * PMIx under Slurm tells survivors nothing: when a rank dies in a fence Slurm ends the
 * step a second later, without a reason, and a rank that exits is left out of the
 * fence. So the ranks of a node form a ring of local connections: each connects to the
 * next one and is connected to by the one before. A connection that ends is a rank that
 * died, for a rank that is well keeps its own until the world is closed.
 */
#ifndef MU_NEIGHBOUR_H
#define MU_NEIGHBOUR_H

#include <stdbool.h>
#include <stdint.h>

struct mu_neighbour {
    uint64_t key;           /* of this step on this node: part of the sockets' names */
    int rank, next, before; /* next: -1 when this rank is alone on its node */
    int listener, to, from; /* sockets, -1: none (yet) */
};

#define MU_NEIGHBOUR_NONE ((struct mu_neighbour){ 0, -1, -1, -1, -1, -1, -1 })

/* local[r]: rank r is on this node. Where no socket can be had nobody is watched. */
void mu_neighbour_open(struct mu_neighbour *n, uint64_t key, int rank,
                       const bool *local, int size);
/* The rank that died since, or -1. Does not block; to be called again and again while
 * this rank waits, since neighbours may come later than it.
 */
int mu_neighbour_poll(struct mu_neighbour *n);
void mu_neighbour_close(struct mu_neighbour *n);

#endif
