/* SPDX-License-Identifier: BSD-3-Clause */
/* ring.h - a byte stream between two ranks of an island, in the shared segment
 *
 * For worlds of several islands: the messages that go over TCP to other nodes go
 * through these inside a node. They take the place of the staging slots: each rank's
 * slots hold one ring for each local sender.
 */
#ifndef MU_HOST_RING_H
#define MU_HOST_RING_H

#include <stdbool.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "runtime/backend/host/shm.h"

/* Like sendmsg and recv without blocking: bytes moved, or -1 with EAGAIN. Wakes the
 * other side if it sleeps.
 */
ssize_t mu_ring_write(struct mu_shm *shm, int to, const struct iovec *iov, int n);
ssize_t mu_ring_read(struct mu_shm *shm, int from, void *data, size_t len);

bool mu_ring_readable(const struct mu_shm *shm, int from);
bool mu_ring_writable(const struct mu_shm *shm, int to);

#endif
