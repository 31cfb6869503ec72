/* SPDX-License-Identifier: BSD-3-Clause */
/* flight.h - each rank's last collectives, and which rank is guilty of a stall
 *
 *   flight.c        the record of a rank
 *   flight_blame.c  the verdict on the records of all ranks
 */
#ifndef MU_FLIGHT_H
#define MU_FLIGHT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/err.h"

#define MU_FLIGHT_RING 16
#define MU_FLIGHT_WHAT 64
#define MU_FLIGHT_ELSEWHERE 128

/* One collective. All ranks enter the same collectives in the same order, so the number
 * (1, 2, ...) is equal on all. Times are seconds of this rank's clock.
 */
struct mu_flight_entry {
    uint64_t number;
    uint64_t bytes;
    double entered, left; /* left 0: the rank is still in it */
    /* Where the backend matches collectives by their order alone: how many had started
     * with this one, and the hash of their order. 0: it has no place in the order.
     */
    uint64_t ordered, order;
    char what[MU_FLIGHT_WHAT]; /* its name: "bucket 7 of step 1204" */
};

/* The flight record of a rank. It is sent over the control connections as it is: it has
 * no pointers, and all ranks have agreed on one release before.
 */
struct mu_flight {
    int32_t rank;
    int32_t pid;
    int32_t partner;      /* 1 + the rank of the message that it waits for; 0: none */
    int32_t mixes;        /* collectives in another order are compared in syncs only */
    uint64_t entered;     /* number of the last collective entered, 0 none */
    double now;           /* of this rank's clock, when the record was sent */
    double waiting_since; /* 0: not waiting */
    char waiting_for[MU_FLIGHT_WHAT];
    /* It waits in another group: in which call, and since how many seconds. */
    char elsewhere[MU_FLIGHT_ELSEWHERE];
    double elsewhere_for;
    char doing[MU_FLIGHT_WHAT]; /* between collectives: "saving a checkpoint", or "" */
    struct mu_flight_entry ring[MU_FLIGHT_RING]; /* entry n at n % MU_FLIGHT_RING */
};

/* Enter the next collective; returns its number. */
uint64_t mu_flight_enter(struct mu_flight *flight, const char *what, uint64_t bytes,
                         double now);
void mu_flight_order(struct mu_flight *flight, uint64_t number, uint64_t ordered,
                     uint64_t order);
void mu_flight_leave(struct mu_flight *flight, uint64_t number, double now);
/* Collective `number` did not start on this rank: the next one takes its number. */
void mu_flight_cancel(struct mu_flight *flight, uint64_t number);
/* The entry of collective `number`, or NULL when it was not entered or is too old. */
const struct mu_flight_entry *mu_flight_find(const struct mu_flight *flight,
                                             uint64_t number);

/* The names of ranks in a sentence. */
struct mu_flight_names {
    const char *const *host_of; /* by rank */
    const char *const *gpu_of;  /* by rank, "" or NULL: none */
    const int *parent_of; /* by rank: the rank that forwards its record, -1: the root */
};

/* Writes "rank 3 (node b, GPU 0000:41:00.0)"; returns its length. */
size_t mu_flight_name(int rank, const struct mu_flight_names *names, char *text,
                      size_t len);

/* Add the collectives of one rank to those of all. False: under one number they have
 * another name there.
 */
bool mu_flight_merge(struct mu_flight *all, const struct mu_flight *one);
/* Do the two wait for each other for ever? Each waits in a collective that the other
 * one has not entered. Both records must show the same moment.
 */
bool mu_flight_apart(const struct mu_flight *a, const struct mu_flight *b);

/* Have the ranks started collectives in another order? Then none of them will end
 * rightly, whatever the ranks do now. records[r] is NULL where rank r did not answer.
 * Returns the place of the first difference that the records show, or 0.
 */
uint64_t mu_flight_disorder(const struct mu_flight *const *records, int size);

/* records[r] is NULL where rank r did not answer. Writes one sentence, for example
 *   rank 3 (node b, GPU 0000:41:00.0) has not entered bucket 7 of step 1204; 7 others
 *   wait
 * Returns the guilty rank, or -1 where none can be named. *status becomes
 * MUSTER_ECONTRACT when ranks wait in different collectives, or have started them in
 * another order; else it stays.
 */
int mu_flight_verdict(const struct mu_flight *const *records, int size,
                      const struct mu_flight_names *names, int *status, char *text,
                      size_t len);

/* One rank's line of the flight record, for standard error. */
void mu_flight_line(const struct mu_flight *flight, int rank,
                    const struct mu_flight_names *names, char *text, size_t len);

#endif
