/* SPDX-License-Identifier: BSD-3-Clause */
/* descriptors.h - the ranks of a node give each other file descriptors; no CUDA
 *
 * Each rank has a datagram socket, with an abstract name that the kernel chooses and
 * the rank publishes. A message is a note of fixed size and one descriptor. Messages of
 * another user, or of a socket that no rank has published, are dropped.
 */
#ifndef MU_NCCL_DESCRIPTORS_H
#define MU_NCCL_DESCRIPTORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MU_DESCRIPTOR_RANKS 8
#define MU_DESCRIPTOR_NAME 14

/* What a rank publishes. */
struct mu_descriptor_address {
    uint8_t len; /* of the name; 0: this rank has no socket */
    char name[MU_DESCRIPTOR_NAME];
};

struct mu_descriptors {
    int fd, rank, n;
    struct mu_descriptor_address rank_at[MU_DESCRIPTOR_RANKS];
};

/* This rank's socket; *mine is for the others. A failure leaves len 0. */
void mu_descriptors_open(struct mu_descriptors *d, struct mu_descriptor_address *mine);
/* all: by rank. */
void mu_descriptors_join(struct mu_descriptors *d, int rank, int n,
                         const struct mu_descriptor_address *all);
void mu_descriptors_close(struct mu_descriptors *d);

enum mu_sent { MU_SENT, MU_SEND_LATER, MU_SEND_NEVER, MU_SEND_LEFT };

/* fd: borrowed. Later: the peer has not taken the messages before. Left: the peer has
 * closed its socket.
 */
enum mu_sent mu_descriptors_send(const struct mu_descriptors *d, int to,
                                 const void *note, size_t len, int fd);
/* The next message of `len` bytes of note, or false: none is there. Others are dropped.
 * *fd: the caller closes it; -1: the process has no descriptor left.
 */
bool mu_descriptors_take(const struct mu_descriptors *d, int *from, void *note,
                         size_t len, int *fd);
/* Block until a message is there; false: none within `seconds`. */
bool mu_descriptors_await(const struct mu_descriptors *d, double seconds);

#endif
