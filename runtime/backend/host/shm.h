/* SPDX-License-Identifier: BSD-3-Clause */
/* shm.h - the segment that the ranks of a domain share
 *
 * One memfd, made by the domain's lowest rank: a mailbox for each rank (counters, the
 * requests that its rank has entered with small payloads), staging slots, then the
 * arena, which grows. Only its owner writes a mailbox, except for `asleep`. Counters
 * only grow, so "every rank has reached x" is a comparison and needs no reset.
 */
#ifndef MU_HOST_SHM_H
#define MU_HOST_SHM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/backend/host/host.h"
#include "runtime/base/cpuset.h"

#define MU_SHM_DEPTH 8            /* requests that a rank may have entered ahead */
#define MU_SHM_SMALL 8192         /* payload that fits into the mailbox */
#define MU_SHM_NSLOTS 4           /* staging slots of a rank */
#define MU_SHM_SLOT (1024 * 1024) /* bytes of each */

enum mu_shm_counter {
    MU_ENTERED, /* requests entered: each entry has the count of its own */
    MU_DONE,    /* requests finished */
    MU_STORED,  /* zero-copy requests whose part of this rank is done */
    MU_STAGED,  /* rounds whose input is in this rank's slots */
    MU_REDUCED, /* rounds whose result of this rank's part is there */
    MU_COPIED,  /* rounds whose results this rank has copied */
    MU_NCOUNTERS
};

enum mu_shm_presence { MU_PRESENT, MU_LEFT, MU_ABORTED };

/* What a rank publishes when it enters a request. A wait for another rank is a transfer
 * of its cache line from core to core: the first one has all of a payload of 16 bytes.
 */
struct mu_shm_entry {
    _Alignas(128) _Atomic uint64_t entered; /* requests so far; stored last */
    struct mu_signature call;
    union {
        char small[MU_SHM_SMALL]; /* the payload, where it fits */
        struct mu_shm_place {
            bool arena;                      /* zero copy is possible on this rank */
            uint64_t send_at, recv_at;       /* offsets in the file */
            uint64_t send_block, recv_block; /* ... of the allocations around them */
        } place;
    };
};
_Static_assert(offsetof(struct mu_shm_entry, small) <= 64 - 16, "one cache line");

/* What a sleeper waits for: a counter, and the value that all ranks must reach. */
#define MU_SHM_WANT(counter, value) ((uint64_t)(counter) << 56 | (value))
#define MU_SHM_WANT_COUNTER(want) ((want) >> 56)
#define MU_SHM_WANT_VALUE(want) ((want) & (UINT64_MAX >> 8))

/* When a rank writes down its cores. */
enum mu_shm_moment { MU_AT_OPEN, MU_AT_ENTRY, MU_NMOMENTS };

struct mu_shm_mailbox {
    _Alignas(128) _Atomic uint64_t counter[MU_NCOUNTERS]; /* MU_ENTERED: not used */
    /* 0: awake, else enum mu_sleep; reset by the rank that wakes the sleeper. */
    _Alignas(128) _Atomic uint32_t asleep;
    _Atomic uint64_t want; /* MU_SHM_WANT */
    _Alignas(128) _Atomic uint32_t presence;
    struct mu_failure failure; /* valid once presence is MU_ABORTED */
    /* mu_cores_own when the rank opens, and when it enters its first request: the
     * program may bind it in between.
     */
    struct mu_cpuset cores[MU_NMOMENTS];
    _Atomic bool opened; /* cores[MU_AT_OPEN] are there */
    struct mu_shm_entry entry[MU_SHM_DEPTH];
};

struct mu_shm {
    int nlocal, me; /* index among the domain's ranks, which are in rank order */
    int *rank_of;   /* rank of each */
    int fd;
    char *base; /* mailboxes and slots, mapped */
    size_t len;
    int *doorbell; /* eventfd of each; our own is the engine's */
    int *watch;    /* pidfd, or the socket to it, or -1 */
    uint64_t want; /* what a blocked request waits for */
    uint64_t room; /* so many requests may be entered, by the last look at MU_DONE */
    /* Has each rank a core of its own? By those at the first request, once all ranks
     * have entered theirs; until then messages go by those at open.
     */
    _Atomic bool first_entered, spins;
    bool all_opened, message_spins; /* of the thread that drives messages */
    uint64_t stored, rounds;        /* sums over the finished requests */
    /* Scratch for one reduction; dst has room for one private copy more. */
    const void **src;
    void **dst;
};

struct mu_shm_mailbox *mu_shm_mailbox_of(const struct mu_shm *shm, int local);
struct mu_shm_entry *mu_shm_entry_of(const struct mu_shm *shm, int local, uint64_t seq);
size_t mu_shm_slot_offset(const struct mu_shm *shm, int local, uint64_t round);
char *mu_shm_slot(const struct mu_shm *shm, int local, uint64_t round);
size_t mu_shm_length(int nlocal); /* bytes before the arena */

/* shm_open.c: create or receive the segment, doorbells and a watch of each local peer.
 */
int mu_shm_open(struct mu_host_backend *b, const struct mu_host_domains *domains,
                struct mu_err *err);
void mu_shm_free(struct mu_shm *shm);

/* shm.c */
void mu_shm_wake(struct mu_shm *shm, int local);          /* if it is asleep */
void mu_shm_ring_doorbell(struct mu_shm *shm, int local); /* asleep or not */
void mu_shm_forget(struct mu_host_backend *b);            /* close the descriptors */
void mu_shm_advance(struct mu_shm *shm, enum mu_shm_counter counter, uint64_t by);
/* Publish this rank's entry of request seq, which is filled. */
void mu_shm_enter(struct mu_shm *shm, uint64_t seq);
bool mu_shm_has_reached(const struct mu_shm *shm, int local, uint64_t want);
bool mu_shm_all_reached(const struct mu_shm *shm, uint64_t want);
/* May a wait for a message spin? Messages may come before any collective. */
bool mu_shm_message_spins(struct mu_shm *shm);
/* True if every rank has reached value; otherwise arm waits for it. */
bool mu_shm_reached(struct mu_shm *shm, enum mu_shm_counter counter, uint64_t value);

/* shm_coll.c */
bool mu_shm_post(struct mu_host_backend *b, struct mu_host_request *rq);
int mu_shm_progress(struct mu_host_backend *b, struct mu_host_request *rq);

/* shm_staged.c */
size_t mu_shm_chunk_elements(const struct mu_shm *shm,
                             const struct mu_host_request *rq);
/* After all ranks have entered. */
int mu_shm_staged_progress(struct mu_host_backend *b, struct mu_host_request *rq);

/* shm_exchange.c. space: MU_SHM_SMALL bytes that the other ranks read. */
void mu_shm_exchange_post(struct mu_host_backend *b, const struct mu_host_request *rq,
                          char *space);
/* After all ranks have entered. */
int mu_shm_exchange_progress(struct mu_host_backend *b, struct mu_host_request *rq);

#endif
