/* SPDX-License-Identifier: BSD-3-Clause */
/* shm_pipe.h - a byte stream between two ranks of a domain, in the shared segment
 *
 * For worlds of several domains: messages to other nodes go over TCP, messages
 * inside a node through these pipes. They replace the staging slots: each rank's slots
 * hold one pipe for each local sender.
 */
#ifndef MU_HOST_SHM_PIPE_H
#define MU_HOST_SHM_PIPE_H

#include <stdbool.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "runtime/backend/host/shm.h"

/* Like sendmsg and recv without blocking: return bytes moved, or -1 with EAGAIN. Wakes
 * the other side if it sleeps.
 */
ssize_t mu_shm_pipe_write(struct mu_shm *shm, int to, const struct iovec *iov, int n);
ssize_t mu_shm_pipe_read(struct mu_shm *shm, int from, void *data, size_t len);

bool mu_shm_pipe_readable(const struct mu_shm *shm, int from);
bool mu_shm_pipe_writable(const struct mu_shm *shm, int to);

#endif
