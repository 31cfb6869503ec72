/* SPDX-License-Identifier: BSD-3-Clause */
/* pair_channel.h - the messages from one rank to another of its domain, in shared
 * memory
 *
 * The sender makes the memory and sends its descriptor as the first byte of the new
 * connection. From then on the connection carries bytes that only wake a sleeper, and
 * its end is the end of the other rank. Where no memory can be had, the connection
 * carries the messages.
 */
#ifndef MU_HOST_PAIR_CHANNEL_H
#define MU_HOST_PAIR_CHANNEL_H

#include <stdbool.h>
#include <sys/types.h>

#include "runtime/backend/host/pipe.h"

struct mu_channel_memory;

/* One end of it. */
struct mu_channel {
    struct mu_channel_memory *memory; /* NULL: none */
    struct mu_pipe pipe;
    int fd;     /* the connection, borrowed */
    bool ended; /* the other rank has ended; what it has written can be read */
};

/* Of the sender, first on the connection fd; -1: the connection has failed, errno. */
int mu_channel_offer(struct mu_channel *channel, int fd);
/* Of the receiver. 1: the offer is here, with or without memory; 0: not yet; -1: the
 * connection has failed (errno) or ended (errno 0).
 */
int mu_channel_accept(struct mu_channel *channel, int fd);
/* leaves: the other rank learns that this one is gone; not so in a forked child. */
void mu_channel_close(struct mu_channel *channel, bool leaves);

/* Like sendmsg and recv that do not wait: bytes, 0 at the end (of recv), or -1 with
 * EAGAIN or EPIPE. They move at most a part of the channel, so that the other rank
 * works at the same time. Write changes iov.
 */
ssize_t mu_channel_write(struct mu_channel *channel, struct iovec *iov, int n);
ssize_t mu_channel_read(struct mu_channel *channel, void *data, size_t len);
/* After a row of reads: wake the writer if it waits for room. */
void mu_channel_release(struct mu_channel *channel);

/* Before poll on fd: announce the sleep. False: there is room (content) already. */
bool mu_channel_arm_writer(struct mu_channel *channel);
bool mu_channel_arm_reader(struct mu_channel *channel);
/* After it: take the bytes that have woken this rank. */
void mu_channel_hear(struct mu_channel *channel);

#endif
