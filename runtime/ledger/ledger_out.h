/* SPDX-License-Identifier: BSD-3-Clause */
/* ledger_out.h - writes a process's ledger file, mapped into memory
 *
 *   ledger_out.c       the file, its communicators and calls
 *   ledger_place.c     where the process runs
 *
 * The kernel keeps what was written when the process dies, and another process may
 * read the file meanwhile. Its blocks are reserved when it is made, so that a full disk
 * shows then. All functions but mu_ledger_open and mu_ledger_comm are called by several
 * threads at once; they take no lock and allocate nothing.
 */
#ifndef MU_LEDGER_OUT_H
#define MU_LEDGER_OUT_H

#include "runtime/core/ledger_file.h"

struct mu_ledger_out {
    struct mu_ledger_head *head; /* NULL: nothing is written */
    struct mu_ledger_comm *comms;
    struct mu_ledger_call *calls;
    struct mu_ledger_bucket *buckets; /* NULL: none are recorded */
};

/* Fill the head's gpu, nic, cpus and NUMA nodes, from MUSTER_PLAN (NULL: there is none)
 * and the files of /sys, which tests have elsewhere. What cannot be read stays unknown.
 */
void mu_ledger_place(struct mu_ledger_head *head, const char *plan, const char *sys);

/* Make a file with this many slots in the folder, which is made if it is missing. With
 * `buckets` it has half as many for these. Its name has the job, the rank and the
 * process id. On failure nothing is left.
 */
int mu_ledger_open(struct mu_ledger_out *out, const char *folder, uint32_t records,
                   bool buckets, struct mu_err *err);

/* The same as MUSTER_PROFILE and MUSTER_PROFILE_RECORDS ask for. */
int mu_ledger_open_asked(struct mu_ledger_out *out, bool buckets, struct mu_err *err);
void mu_ledger_close(struct mu_ledger_out *out);

/* A new communicator's entry; name may be NULL. */
struct mu_ledger_comm *mu_ledger_comm(struct mu_ledger_out *out, uint64_t hash,
                                      const char *name, int rank, int size, int nodes);

/* Record a call, of which `what` has communicator, sequence, count, channels, warps,
 * element and names. The handle is for the functions below; it is no address.
 */
void *mu_ledger_begin(struct mu_ledger_out *out, const struct mu_ledger_call *what);
/* A channel of the call with this handle began, at this time; 0: now, by the host. A
 * handle of a call that the ring has overwritten since gives NULL.
 */
void *mu_ledger_channel(struct mu_ledger_out *out, void *call, uint64_t when);
/* The time at which the channel ended; 0: now, by the host. */
void mu_ledger_channel_time(struct mu_ledger_out *out, void *channel, uint64_t when);
/* The call was launched, or the channel ended. */
void mu_ledger_end(struct mu_ledger_out *out, void *handle);

/* Record a bucket, or a step, of which `what` has all but the number. */
void mu_ledger_add_bucket(struct mu_ledger_out *out,
                          const struct mu_ledger_bucket *what);
/* Record a bucket of a step, and add it to the step's own record. */
void mu_ledger_add_to_step(struct mu_ledger_out *out, struct mu_ledger_bucket *step,
                           struct mu_ledger_bucket *what);

/* Of two times; 0: unknown. */
static inline uint64_t mu_ledger_earlier(uint64_t a, uint64_t b)
{
    return a == 0 || (b != 0 && b < a) ? b : a;
}
static inline uint64_t mu_ledger_later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

#endif
