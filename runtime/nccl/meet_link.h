/* SPDX-License-Identifier: BSD-3-Clause */
/* meet_link.h - connections of a meeting: names, bytes with a deadline, frames */
#ifndef MU_MEET_LINK_H
#define MU_MEET_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MU_MEET_NEVER 1e18 /* a deadline that does not pass */
#define MU_MEET_MARK 33    /* hexadecimal digits and the end */

/* The communicator's name for others to see, a one-way hash of its id. Any user can
 * read the names of sockets, and whoever has the id can call NCCL's sockets as a rank.
 */
void mu_meet_mark(const void *id, size_t len, char mark[MU_MEET_MARK]);

/* A listener with a name made of the id's hash and this user. -1: errno. */
int mu_meet_listen(const void *id, size_t len);
/* A connection to that name, tried until the deadline. -1: none of this user. */
int mu_meet_dial(const void *id, size_t len, double end);
/* The next connection of this user until the deadline; others are closed. -1: none. */
int mu_meet_accept(int listener, double end);

/* All bytes, or false: the deadline has passed, or the peer has closed. */
bool mu_meet_write(int fd, const void *data, size_t len, double end);
bool mu_meet_read(int fd, void *data, size_t len, double end);

/* A frame is a kind, a length and that many bytes. */
bool mu_meet_send(int fd, char kind, const void *data, size_t len, double end);
/* *data: caller frees. False also for a frame of another kind. */
bool mu_meet_receive(int fd, char kind, void **data, size_t *len, double end);

#endif
