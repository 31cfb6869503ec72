/* SPDX-License-Identifier: BSD-3-Clause */
/* random_groups.h - random programs over random groups, against float64
 *
 * All ranks draw the same program from a seed: groups, then calls on them with random
 * types, operators, counts and roots. Each rank computes what it must get. It decides
 * by itself which calls only start, and in which order it waits for them.
 */
#ifndef TEST_RANDOM_GROUPS_H
#define TEST_RANDOM_GROUPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/muster.h"

/* The memory that the collectives work on. copy: between it and host memory, also
 * inside it; after what the collectives have enqueued, and done on return.
 */
struct space {
    void *(*alloc)(size_t bytes);
    void (*free)(void *p);
    void (*copy)(void *to, const void *from, size_t bytes);
    bool ends; /* the program finalizes the world too */
};

/* [collective] At most six ranks. A wrong result ends the process with status 96, a
 * failed call with 97, and a sentence.
 */
void random_groups(struct muster *m, uint64_t seed, int calls,
                   const struct space *space);

#endif
