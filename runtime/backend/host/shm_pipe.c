/* SPDX-License-Identifier: BSD-3-Clause */
/* shm_pipe.c - one writer, one reader, positions that only grow */
#include "runtime/backend/host/shm_pipe.h"

#include <errno.h>
#include <string.h>

struct pipe {
    _Alignas(128) _Atomic uint64_t written; /* bytes, by the sender */
    _Alignas(128) _Atomic uint64_t read;    /* bytes, by the receiver */
    _Alignas(128) char data[];
};

static size_t pipe_bytes(const struct mu_shm *shm)
{
    size_t slots = (size_t)MU_SHM_NSLOTS * MU_SHM_SLOT;

    return slots / (size_t)shm->nlocal / 4096 * 4096;
}

static size_t capacity(const struct mu_shm *shm)
{
    return pipe_bytes(shm) - sizeof(struct pipe);
}

static struct pipe *pipe_of(const struct mu_shm *shm, int to, int from)
{
    return (struct pipe *)(void *)(mu_shm_slot(shm, to, 0) +
                                   (size_t)from * pipe_bytes(shm));
}

/* Copy len bytes at position `at` of the stream in or out. */
static void move(struct pipe *pipe, size_t cap, uint64_t at, char *data, size_t len,
                 bool in)
{
    size_t first = (size_t)(at % cap), n = len < cap - first ? len : cap - first;

    memcpy(in ? pipe->data + first : data, in ? data : pipe->data + first, n);
    if (n < len)
        memcpy(in ? pipe->data : data + n, in ? data + n : pipe->data, len - n);
}

ssize_t mu_shm_pipe_write(struct mu_shm *shm, int to, const struct iovec *iov, int n)
{
    struct pipe *pipe = pipe_of(shm, to, shm->me);
    size_t cap = capacity(shm);
    uint64_t at = atomic_load(&pipe->written), start = at;
    uint64_t end = atomic_load(&pipe->read) + cap;

    for (int i = 0; i < n && at < end; i++) {
        size_t len = iov[i].iov_len < end - at ? iov[i].iov_len : (size_t)(end - at);

        move(pipe, cap, at, iov[i].iov_base, len, true);
        at += len;
    }
    if (at == start) {
        errno = EAGAIN;
        return -1;
    }
    atomic_store(&pipe->written, at);
    mu_shm_wake(shm, to);
    return (ssize_t)(at - start);
}

ssize_t mu_shm_pipe_read(struct mu_shm *shm, int from, void *data, size_t len)
{
    struct pipe *pipe = pipe_of(shm, shm->me, from);
    uint64_t at = atomic_load(&pipe->read), have = atomic_load(&pipe->written) - at;

    if (have == 0) {
        errno = EAGAIN;
        return -1;
    }
    len = len < have ? len : (size_t)have;
    move(pipe, capacity(shm), at, data, len, false);
    atomic_store(&pipe->read, at + len);
    mu_shm_wake(shm, from);
    return (ssize_t)len;
}

bool mu_shm_pipe_readable(const struct mu_shm *shm, int from)
{
    struct pipe *pipe = pipe_of(shm, shm->me, from);

    return atomic_load(&pipe->written) != atomic_load(&pipe->read);
}

bool mu_shm_pipe_writable(const struct mu_shm *shm, int to)
{
    struct pipe *pipe = pipe_of(shm, to, shm->me);

    return atomic_load(&pipe->written) < atomic_load(&pipe->read) + capacity(shm);
}
