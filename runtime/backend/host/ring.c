/* SPDX-License-Identifier: BSD-3-Clause */
/* ring.c - one writer, one reader, positions that only grow */
#include "runtime/backend/host/ring.h"

#include <errno.h>
#include <string.h>

struct ring {
    _Alignas(128) _Atomic uint64_t written; /* bytes, by the sender */
    _Alignas(128) _Atomic uint64_t read;    /* bytes, by the receiver */
    _Alignas(128) char data[];
};

static size_t ring_bytes(const struct mu_shm *shm)
{
    size_t slots = (size_t)MU_SHM_NSLOTS * MU_SHM_SLOT;

    return slots / (size_t)shm->nlocal / 4096 * 4096;
}

static size_t capacity(const struct mu_shm *shm)
{
    return ring_bytes(shm) - sizeof(struct ring);
}

static struct ring *ring_of(const struct mu_shm *shm, int to, int from)
{
    return (struct ring *)(void *)(mu_shm_slot(shm, to, 0) +
                                   (size_t)from * ring_bytes(shm));
}

/* Copy len bytes at position `at` of the stream in or out. */
static void move(struct ring *ring, size_t cap, uint64_t at, char *data, size_t len,
                 bool in)
{
    size_t first = (size_t)(at % cap), n = len < cap - first ? len : cap - first;

    memcpy(in ? ring->data + first : data, in ? data : ring->data + first, n);
    if (n < len)
        memcpy(in ? ring->data : data + n, in ? data + n : ring->data, len - n);
}

ssize_t mu_ring_write(struct mu_shm *shm, int to, const struct iovec *iov, int n)
{
    struct ring *ring = ring_of(shm, to, shm->me);
    size_t cap = capacity(shm);
    uint64_t at = atomic_load(&ring->written), start = at;
    uint64_t end = atomic_load(&ring->read) + cap;

    for (int i = 0; i < n && at < end; i++) {
        size_t len = iov[i].iov_len < end - at ? iov[i].iov_len : (size_t)(end - at);

        move(ring, cap, at, iov[i].iov_base, len, true);
        at += len;
    }
    if (at == start) {
        errno = EAGAIN;
        return -1;
    }
    atomic_store(&ring->written, at);
    mu_shm_wake(shm, to);
    return (ssize_t)(at - start);
}

ssize_t mu_ring_read(struct mu_shm *shm, int from, void *data, size_t len)
{
    struct ring *ring = ring_of(shm, shm->me, from);
    uint64_t at = atomic_load(&ring->read), have = atomic_load(&ring->written) - at;

    if (have == 0) {
        errno = EAGAIN;
        return -1;
    }
    len = len < have ? len : (size_t)have;
    move(ring, capacity(shm), at, data, len, false);
    atomic_store(&ring->read, at + len);
    mu_shm_wake(shm, from);
    return (ssize_t)len;
}

bool mu_ring_readable(const struct mu_shm *shm, int from)
{
    struct ring *ring = ring_of(shm, shm->me, from);

    return atomic_load(&ring->written) != atomic_load(&ring->read);
}

bool mu_ring_writable(const struct mu_shm *shm, int to)
{
    struct ring *ring = ring_of(shm, to, shm->me);

    return atomic_load(&ring->written) < atomic_load(&ring->read) + capacity(shm);
}
