/* SPDX-License-Identifier: BSD-3-Clause */
/* fork.h - what a forked child gives up
 *
 * A child that kept a connection open would hide its parent's death from the peer. exec
 * closes them anyway; this is for children that only fork (data loaders, for one).
 */
#ifndef MU_FORK_H
#define MU_FORK_H

/* Embedded in what owns descriptors. in_child runs in the child alone, where no other
 * thread is left and locks of the owner may be held for ever: it closes, and no more.
 */
struct mu_forkable {
    void (*in_child)(struct mu_forkable *self);
    struct mu_forkable *next;
};

/* From here on a child calls f->in_child, once, and forgets f. */
void mu_fork_enter(struct mu_forkable *f);
/* Before f or its descriptors go. Fine for one that never entered, and in a child. */
void mu_fork_leave(struct mu_forkable *f);

#endif
