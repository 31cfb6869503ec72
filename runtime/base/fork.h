/* SPDX-License-Identifier: BSD-3-Clause */
/* fork.h - close the library's descriptors in a forked child
 *
 * A child that keeps a connection open hides its parent's death from the peer. exec
 * closes all of them; this is for children without exec, such as data loaders.
 */
#ifndef MU_FORK_H
#define MU_FORK_H

/* Part of a struct that owns descriptors. in_child runs in the child, which has no
 * other thread and in which locks of the owner may stay locked: it only closes.
 */
struct mu_forkable {
    void (*in_child)(struct mu_forkable *self);
    struct mu_forkable *next;
};

/* From here on each forked child calls f->in_child once. */
void mu_fork_enter(struct mu_forkable *f);
/* Call it before f or its descriptors are released. Fine for an f that never entered,
 * and in a child.
 */
void mu_fork_leave(struct mu_forkable *f);

#endif
