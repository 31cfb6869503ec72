/* SPDX-License-Identifier: BSD-3-Clause */
/* pipe.c - one writer, one reader, positions that only grow */
#include "runtime/backend/host/pipe.h"

#include <stdbool.h>
#include <string.h>

size_t mu_pipe_content(const struct mu_pipe *pipe)
{
    return (size_t)(atomic_load(&pipe->ends->written) - atomic_load(&pipe->ends->read));
}

size_t mu_pipe_room(const struct mu_pipe *pipe)
{
    return pipe->capacity - mu_pipe_content(pipe);
}

/* Copy len bytes at position `at` of the stream in or out. */
static void move(const struct mu_pipe *pipe, uint64_t at, char *data, size_t len,
                 bool in)
{
    size_t cap = pipe->capacity, first = (size_t)(at % cap);
    size_t n = len < cap - first ? len : cap - first;

    memcpy(in ? pipe->data + first : data, in ? data : pipe->data + first, n);
    if (n < len)
        memcpy(in ? pipe->data : data + n, in ? data + n : pipe->data, len - n);
}

size_t mu_pipe_write(const struct mu_pipe *pipe, const struct iovec *iov, int n)
{
    uint64_t at = atomic_load(&pipe->ends->written), start = at;
    uint64_t end = atomic_load(&pipe->ends->read) + pipe->capacity;

    for (int i = 0; i < n && at < end; i++) {
        size_t len = iov[i].iov_len < end - at ? iov[i].iov_len : (size_t)(end - at);

        move(pipe, at, iov[i].iov_base, len, true);
        at += len;
    }
    if (at != start)
        atomic_store(&pipe->ends->written, at);
    return (size_t)(at - start);
}

size_t mu_pipe_read(const struct mu_pipe *pipe, void *data, size_t len)
{
    uint64_t at = atomic_load(&pipe->ends->read);
    size_t have = mu_pipe_content(pipe);

    len = len < have ? len : have;
    if (len == 0)
        return 0;
    move(pipe, at, data, len, false);
    atomic_store(&pipe->ends->read, at + len);
    return len;
}
