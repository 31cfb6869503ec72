/* SPDX-License-Identifier: BSD-3-Clause */
/* shm_pipe.c - a pipe for each ordered pair of ranks, in the receiver's slots */
#include "runtime/backend/host/shm_pipe.h"

#include <errno.h>

#include "runtime/backend/host/pipe.h"

static struct mu_pipe pipe_of(const struct mu_shm *shm, int to, int from)
{
    size_t slots = (size_t)MU_SHM_NSLOTS * MU_SHM_SLOT;
    size_t bytes = slots / (size_t)shm->nlocal / 4096 * 4096;
    char *at = mu_shm_slot(shm, to, 0) + (size_t)from * bytes;
    size_t ends = sizeof(struct mu_pipe_ends);

    return (struct mu_pipe){ (struct mu_pipe_ends *)(void *)at, at + ends,
                             bytes - ends };
}

/* The result of sendmsg and recv. */
static ssize_t moved(struct mu_shm *shm, int other, size_t bytes)
{
    if (bytes == 0) {
        errno = EAGAIN;
        return -1;
    }
    mu_shm_wake(shm, other);
    return (ssize_t)bytes;
}

ssize_t mu_shm_pipe_write(struct mu_shm *shm, int to, const struct iovec *iov, int n)
{
    struct mu_pipe pipe = pipe_of(shm, to, shm->me);

    return moved(shm, to, mu_pipe_write(&pipe, iov, n));
}

ssize_t mu_shm_pipe_read(struct mu_shm *shm, int from, void *data, size_t len)
{
    struct mu_pipe pipe = pipe_of(shm, shm->me, from);

    return moved(shm, from, mu_pipe_read(&pipe, data, len));
}

bool mu_shm_pipe_readable(const struct mu_shm *shm, int from)
{
    struct mu_pipe pipe = pipe_of(shm, shm->me, from);

    return mu_pipe_content(&pipe) > 0;
}

bool mu_shm_pipe_writable(const struct mu_shm *shm, int to)
{
    struct mu_pipe pipe = pipe_of(shm, to, shm->me);

    return mu_pipe_room(&pipe) > 0;
}
