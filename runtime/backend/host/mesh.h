/* SPDX-License-Identifier: BSD-3-Clause */
/* mesh.h - messages between ranks: a TCP socket per pair, pipes inside a domain
 *
 * Every rank sends every other rank an announcement of what it enters, with small
 * payloads attached. Data of a larger collective follows once all ranks have entered
 * it: every message has a buffer, so every socket is always read, and the end of a
 * connection is detected at once.
 */
#ifndef MU_HOST_MESH_H
#define MU_HOST_MESH_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/backend/host/host.h"

/* Announcements kept for each peer; a peer runs at most half of them ahead. */
#define MU_MESH_DEPTH 8
#define MU_MESH_READ 16384

enum mu_mesh_verb {
    MU_MESH_ENTER = 1, /* payload: the small input */
    MU_MESH_INPUT,  /* payload: the owner's part, one round; a chunk of an exchange */
    MU_MESH_RESULT, /* payload: the sender's part, one round */
    MU_MESH_CREDIT, /* the owner has consumed a round of input */
    MU_MESH_GOODBYE,
    MU_MESH_ABORT, /* payload: struct mu_failure */
};

/* On the wire, in the byte order of the (equal) machines, which the handshake checks.
 */
struct mu_mesh_header {
    uint8_t verb;
    struct mu_signature call; /* of MU_MESH_ENTER */
    uint64_t seq, round, len; /* len: payload bytes */
    /* Elements; in the announcement of an exchange: what the sender has for this rank,
     * and what it expects.
     */
    uint64_t part, expected;
};

/* A message to send; payload is borrowed until it is sent. */
struct mu_mesh_parcel {
    struct mu_mesh_header head;
    const void *payload;
    struct mu_host_request *rq; /* counts this message in open_sends, or NULL */
};

struct mu_mesh_peer {
    int fd;    /* -1: this rank, a rank of our domain, or closed */
    int local; /* index in our domain (reached by pipes); -1: none, or closed */
    bool left, wants_out;
    int64_t silent_since; /* ns: last acknowledgement; 0: nothing is unacknowledged */

    struct mu_mesh_parcel *queue;    /* ring */
    size_t qcap, qhead, qlen, qsent; /* qsent: bytes of the first already written */

    char *buf; /* read ahead */
    size_t buf_at, buf_len;
    struct mu_mesh_header head; /* message under way */
    size_t head_len;            /* bytes of it received */
    char *into;                 /* destination of the payload */
    size_t missing;             /* payload bytes not received yet */

    uint64_t entered; /* requests that the peer has entered */
    struct mu_mesh_header entry[MU_MESH_DEPTH];
    char *small;               /* MU_MESH_DEPTH payloads */
    struct mu_failure failure; /* buffer for the payload of MU_MESH_ABORT */

    /* Rounds of the current request. */
    uint64_t sent, credit, got, results;
};

/* Receives all messages except goodbyes and aborts. */
struct mu_mesh_sink {
    /* Buffer for the payload of a message from rank; NULL after mu_engine_fail. */
    char *(*place)(struct mu_host_backend *b, int rank,
                   const struct mu_mesh_header *head);
    /* The message is complete. */
    void (*arrived)(struct mu_host_backend *b, int rank,
                    const struct mu_mesh_header *head);
};

struct mu_mesh {
    const struct mu_mesh_sink *sink;
    struct mu_mesh_peer *peer; /* by rank */
    size_t small;              /* largest small payload */
    size_t chunk;              /* bytes of a round for each part */
    uint64_t window;           /* rounds of input in flight to an owner, at most */
    char *input;               /* [window][size - 1][chunk] */
    struct mu_host_request *under_way;
    int64_t link_timeout; /* ns */
    uint64_t reduced;     /* rounds of the own part */
    const void **src;
};

/* mesh_open.c: an authenticated connection to every other rank. */
int mu_mesh_open(struct mu_host_backend *b, const struct mu_host_domains *domains,
                 const struct mu_mesh_sink *sink, struct mu_err *err);
void mu_mesh_free(struct mu_mesh *mesh, int size);

/* mesh.c */
/* Read and write the pipes of our domain, without waiting. */
void mu_mesh_poll(struct mu_host_backend *b);
void mu_mesh_send(struct mu_host_backend *b, int rank,
                  const struct mu_mesh_header *head, const void *payload,
                  struct mu_host_request *rq);
bool mu_mesh_linked(const struct mu_mesh_peer *p);
/* Send queued messages, read received ones; neither waits. */
void mu_mesh_flush(struct mu_host_backend *b, int rank);
void mu_mesh_read(struct mu_host_backend *b, int rank);
/* From now on messages belong to this request. */
void mu_mesh_begin_large(struct mu_host_backend *b, struct mu_host_request *rq);
/* The message belongs to no request: NULL, after mu_engine_fail. */
char *mu_mesh_misplaced(struct mu_host_backend *b, int rank,
                        const struct mu_mesh_header *head);
/* Close the connection. */
void mu_mesh_drop(struct mu_host_backend *b, int rank);
/* The connection has ended. `why` is an errno value, 0: the other side closed it. */
void mu_mesh_lost(struct mu_host_backend *b, int rank, int why);

/* mesh_coll.c */
bool mu_mesh_post(struct mu_host_backend *b, struct mu_host_request *rq);
int mu_mesh_progress(struct mu_host_backend *b, struct mu_host_request *rq);
extern const struct mu_mesh_sink mu_mesh_collectives;
void mu_mesh_late(struct mu_host_backend *b, const struct mu_host_request *rq,
                  struct mu_failure *failure);

/* mesh_exchange.c. The announcement `head` is that of any collective. */
void mu_mesh_exchange_post(struct mu_host_backend *b, struct mu_host_request *rq,
                           struct mu_mesh_header *head);
char *mu_mesh_exchange_place(struct mu_host_backend *b,
                             const struct mu_host_request *rq, int rank,
                             const struct mu_mesh_header *head);
int mu_mesh_exchange_progress(struct mu_host_backend *b, struct mu_host_request *rq);

#endif
