/* SPDX-License-Identifier: BSD-3-Clause */
/* mesh.h - messages between ranks: a TCP socket per pair, pipes inside a domain
 *
 * Every rank tells every other what it enters (small payloads travel along). Data of a
 * larger collective moves once all have entered it, so each message has a place to go
 * and no socket is ever left unread; a closed connection is noticed at once.
 */
#ifndef MU_HOST_MESH_H
#define MU_HOST_MESH_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/backend/host/host.h"

/* Entries of a peer that are kept; it runs half of them ahead. */
#define MU_MESH_DEPTH 8
#define MU_MESH_READ 16384

enum mu_mesh_verb {
    MU_MESH_ENTER = 1, /* payload: the small input */
    MU_MESH_INPUT,     /* payload: the owner's part, one round */
    MU_MESH_RESULT,    /* payload: the sender's part, one round */
    MU_MESH_CREDIT,    /* a round of input has been used */
    MU_MESH_GOODBYE,
    MU_MESH_ABORT, /* payload: struct mu_failure */
};

/* On the wire, in the byte order of the (equal) machines; the greeting checks it. */
struct mu_mesh_header {
    uint8_t verb;
    struct mu_signature call; /* of MU_MESH_ENTER */
    uint64_t seq, round, len; /* len: payload bytes */
};

/* A message on its way out; payload borrowed until it is sent. */
struct mu_mesh_parcel {
    struct mu_mesh_header head;
    const void *payload;
    struct mu_host_request *rq; /* whose count of open sends it is part of, or NULL */
};

struct mu_mesh_peer {
    int fd;    /* -1: ourselves, in our domain, or gone */
    int local; /* index in our domain: messages go through pipes; -1: no, or gone */
    bool left, wants_out;
    int64_t silent_since; /* ns; nothing acknowledged since then, 0: it was */

    struct mu_mesh_parcel *queue;    /* ring */
    size_t qcap, qhead, qlen, qsent; /* qsent: bytes of the first already written */

    char *buf; /* read ahead */
    size_t buf_at, buf_len;
    struct mu_mesh_header head; /* message under way */
    size_t head_len;            /* bytes of it that are here */
    char *into;                 /* payload goes here */
    size_t missing;             /* payload bytes still to come */

    uint64_t entered; /* number of requests that it has entered */
    struct mu_mesh_header entry[MU_MESH_DEPTH];
    char *small;               /* MU_MESH_DEPTH payloads */
    struct mu_failure failure; /* where an abort is received */

    /* Of the request under way: rounds. */
    uint64_t sent, credit, got, results;
};

/* Who takes what arrives, other than goodbyes and aborts. */
struct mu_mesh_sink {
    /* Where the payload of a message from rank goes; NULL with a failure if nowhere. */
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
    uint64_t window;           /* rounds of input that may be on the way to an owner */
    char *input;               /* [window][size - 1][chunk] */
    struct mu_host_request *under_way;
    int64_t link_timeout; /* ns */
    uint64_t reduced;     /* rounds of the own part */
    const void **src;
};

/* mesh_open.c: a proved connection to every other rank. */
int mu_mesh_open(struct mu_host_backend *b, struct mu_host_rendezvous *rendezvous,
                 const struct mu_mesh_sink *sink, struct mu_err *err);
void mu_mesh_free(struct mu_mesh *mesh, int size);

/* mesh.c */
/* Read and write what the pipes of our domain allow. */
void mu_mesh_poll(struct mu_host_backend *b);
void mu_mesh_send(struct mu_host_backend *b, int rank,
                  const struct mu_mesh_header *head, const void *payload,
                  struct mu_host_request *rq);
bool mu_mesh_linked(const struct mu_mesh_peer *p);
/* Send what is queued, read what has arrived, as far as that goes without waiting. */
void mu_mesh_flush(struct mu_host_backend *b, int rank);
void mu_mesh_read(struct mu_host_backend *b, int rank);
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

#endif
