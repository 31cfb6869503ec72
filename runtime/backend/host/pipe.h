/* SPDX-License-Identifier: BSD-3-Clause */
/* pipe.h - a byte stream in memory that two processes share: one writer, one reader
 *
 * Positions only grow: what lies between them is written and not read yet.
 */
#ifndef MU_HOST_PIPE_H
#define MU_HOST_PIPE_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

/* In shared memory. Bytes since the start, each in a cache line of its own. */
struct mu_pipe_ends {
    _Alignas(128) _Atomic uint64_t written; /* by the writer */
    _Alignas(128) _Atomic uint64_t read;    /* by the reader */
};

/* How this process sees it. */
struct mu_pipe {
    struct mu_pipe_ends *ends;
    char *data; /* capacity bytes */
    size_t capacity;
};

/* Bytes that can be written, or read, at once. */
size_t mu_pipe_room(const struct mu_pipe *pipe);
size_t mu_pipe_content(const struct mu_pipe *pipe);
/* Do not wait; return the bytes moved, 0: there is no room, or no content. */
size_t mu_pipe_write(const struct mu_pipe *pipe, const struct iovec *iov, int n);
size_t mu_pipe_read(const struct mu_pipe *pipe, void *data, size_t len);

#endif
