/* SPDX-License-Identifier: BSD-3-Clause */
/* impl.h - the one struct of state behind muster.h, for the files of api/
 *
 * Public functions only: each checks its arguments, calls the layers below, and ends in
 * mu_fail or mu_fail_err.
 */
#ifndef MU_IMPL_H
#define MU_IMPL_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/comm/comm.h"
#include "runtime/muster.h"
#include "runtime/recover/recover.h"

struct muster {
    struct mu_comm comm;
    struct mu_recover recover;
    struct mu_group group; /* root NULL: a world */
    char **host_of;        /* of a group, by rank; else NULL */
    struct muster *parent; /* of a group: the one that was split */
    int splits, groups;    /* done so far; not finalized yet */
    /* Of muster_start: where the handle of the next collective goes, or NULL; those not
     * waited for yet.
     */
    struct muster_handle **start_into, *handles;
    struct mu_resettable dropping; /* of the handles */
    struct mu_err err;             /* of the last failed call */
    int status;
};

/* Store the sentence; returns status, so that a public function ends with it. */
int mu_fail(struct muster *m, int status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* The same for an err whose code is a muster_status: the end of every public function
 * that has called the layers below. Only this function calls mu_recover.
 */
int mu_fail_err(struct muster *m, const struct mu_err *err);

/* ---- coll.c, for the collectives of other files ---- */
/* Element type, and buffers of `count` elements; a buffer that is not used is `other`.
 */
int mu_check_buffers(struct muster *m, const char *call, const void *buffer,
                     const void *other, size_t count, enum muster_dtype dtype);
/* role: what the rank is in the call, for the sentence. */
int mu_check_rank(struct muster *m, const char *call, const char *role, int rank);
/* Run it; `name` is its name in messages. */
int mu_run_coll(struct muster *m, const char *name, struct mu_coll *coll);

/* ---- handle.c ---- */
/* After muster_start: start it instead, and fill *m->start_into. name: as in
 * mu_run_coll; NULL: a message, which coll->what names.
 */
int mu_handle_start(struct muster *m, const char *name, struct mu_coll *coll);
/* How many are not waited for yet. */
int mu_handles(const struct muster *m);

/* With true: muster_init fails alike on all tasks and task 0 reports it, so
 * muster_report does not print it here.
 */
void mu_fail_reported_elsewhere(bool elsewhere);

/* Start in a world that exists (takes it, also on failure): muster_init calls it after
 * PMIx, tests with ranks of their own.
 */
int mu_init_world(struct muster **out, const struct mu_config *config,
                  struct mu_world *world);

/* Free m and what it holds. */
void mu_release(struct muster *m);

/* MUSTER_EUSAGE, with the names of call and struct, where one of the n words that a
 * later release may use is not 0.
 */
int mu_check_reserved(struct muster *m, const char *call, const char *name,
                      const uint64_t *words, size_t n);
/* object: pointer to a `struct type`, not NULL. */
#define MU_CHECK_RESERVED(m, call, type, object)                                       \
    mu_check_reserved(m, call, #type, (object)->reserved,                              \
                      sizeof(object)->reserved / sizeof(uint64_t))

#endif
