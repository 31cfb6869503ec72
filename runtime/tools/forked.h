/* SPDX-License-Identifier: BSD-3-Clause */
/* forked.h - a world of ranks forked on this node, without Slurm or PMIx
 *
 * For benchmarks and tests on a machine that has only GPUs.
 */
#ifndef MU_FORKED_H
#define MU_FORKED_H

#include "runtime/boot/world.h"
#include "runtime/tools/fork_ranks.h"

/* Fork n children. Child r runs body with a world of rank r and exits with its result;
 * the body closes the world with mu_world_close, or passes it on. With `narrow`,
 * CUDA_VISIBLE_DEVICES of child r names only the r-th of the devices visible here, as
 * Muster's plugin does for a task. Call it before this process uses CUDA.
 *
 * Returns 0 when all children returned 0, else the status of one that did not (128 +
 * signal when they were only killed). The other children are killed `patience` seconds
 * later.
 */
int mu_forked_run(int n, bool narrow, double patience,
                  int (*body)(struct mu_world *world, void *arg), void *arg);

/* This process sees only the r-th of the devices visible here. */
void mu_forked_narrow(int rank);

/* Inside a forked rank: its world. host has the name of each rank's node (borrowed);
 * NULL: all ranks are on this node. NULL when memory or sockets are short. `self` must
 * outlive it.
 */
struct mu_world *mu_forked_world(struct mu_fork_rank *self, const char *const *host);

#endif
