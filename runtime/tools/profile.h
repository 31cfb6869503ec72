/* SPDX-License-Identifier: BSD-3-Clause */
/* profile.h - `muster report profile`: the ledger files of a job's ranks, put together
 *
 *   profile.c          reads the files, and joins the records of one collective
 *   profile_print.c    text and JSON
 *   profile_trace.c    Chrome's trace viewer
 *   report.c           the command line
 */
#ifndef MU_PROFILE_H
#define MU_PROFILE_H

#include <jansson.h>
#include <stdio.h>

#include "runtime/core/ledger_file.h"

struct mu_profile_file {
    char *path; /* owned */
    void *image;
    size_t size;
    const struct mu_ledger_head *head;
};

/* One rank's record of one collective. */
struct mu_profile_record {
    const struct mu_ledger_call *call;
    int file, rank; /* rank in the communicator */
    uint64_t hash;
    double bytes; /* of the message */
};

/* A communicator, as all its ranks' files together show it. */
struct mu_profile_comm {
    uint64_t hash;
    const char *name;
    int size, nodes; /* 0 unknown */
    int ranks;       /* that have a file */
    int missing;     /* the lowest rank that has none, -1 all have one */
};

/* Collectives of one communicator, function, size and way. Times are microseconds, -1
 * unknown. A collective takes as long as on the rank that began it last: the others
 * waited for that rank. The skew is the difference between longest and shortest.
 */
struct mu_profile_row {
    int comm; /* index */
    const struct mu_ledger_call *like;
    double bytes;
    long calls;      /* collectives */
    long unfinished; /* records without an end */
    double median, least, most, total;
    double busbw; /* GB/s, median; -1 unknown */
    double skew, skew_most;
    int late; /* the rank that was last most often, -1 unknown */
    double late_share;
    double launch; /* of the host, median */
};

struct mu_profile {
    struct mu_profile_file *files;
    int nfiles, faults;                /* files read; files that could not be */
    struct mu_profile_record *records; /* by communicator, way, sequence, rank */
    size_t nrecords;
    uint64_t overwritten; /* records that a full ring has lost */
    struct mu_profile_comm *comms;
    int ncomms;
    struct mu_profile_row *rows;
    int nrows;
};

/* Read files, and the ledgers in folders. Each fault is one sentence to `complain`, and
 * the rest is read. -1: nothing could be read, or no memory.
 */
int mu_profile_load(struct mu_profile *p, char **paths, int n, FILE *complain);
void mu_profile_clear(struct mu_profile *p);

void mu_profile_text(const struct mu_profile *p, FILE *to);
json_t *mu_profile_json(const struct mu_profile *p);
/* Events for chrome://tracing and Perfetto: a process for each rank, with a track for
 * launches and one for the GPU. The GPU's clock is shifted by a constant for each rank,
 * so that one kernel begins with its launch and none before.
 */
void mu_profile_trace(const struct mu_profile *p, FILE *to);

#endif
