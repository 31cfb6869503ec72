/* SPDX-License-Identifier: BSD-3-Clause */
/* profile.h - `muster report profile`: the ledger files of a job's ranks, put together
 *
 *   profile.c          reads the files
 *   profile_rows.c     joins the records of one collective
 *   profile_values.c   a record's time, a median, a process's name
 *   profile_buckets.c  libmuster's buckets: ready, started, ended, exposed
 *   samples.c          what GPUs did meanwhile; samples.h
 *   profile_steps.c    the steps of the training, and who was late in them
 *   findings.c         rules: what is slow, and the remedy; findings.h
 *   profile_print.c    text and JSON
 *   profile_html.c     a page with plots; profile_page.h
 *   profile_plots.c    its plots
 *   profile_placement.c   hosts, NUMA nodes and ranks as boxes
 *   profile_trace.c    Chrome's trace viewer
 *   report.c           the command line
 *   monitor_advice.c   medians, for muster monitor
 *   monitor_view.c     the last records, for muster monitor
 */
#ifndef MU_PROFILE_H
#define MU_PROFILE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "runtime/core/ledger_file.h"

struct mu_sample; /* samples.h */

struct mu_profile_file {
    char *path; /* owned */
    void *image;
    size_t size;
    const struct mu_ledger_head *head;
    bool found; /* in a folder; else it was named */
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
    long untimed;    /* collectives whose times were not asked for: as long as others */
    double median, least, most, total;
    double p99;   /* one percent takes longer */
    double busbw; /* GB/s, median; -1 unknown */
    double skew, skew_most;
    int late; /* the rank that was last most often, -1 unknown */
    double late_share;
    double launch; /* of the host, median */
    bool minor; /* with next to none of its communicator's time: left out of tables */
};

/* A process: what its ledger alone shows. Microseconds, -1 unknown. */
struct mu_profile_part {
    int rank;        /* in the job, else in its first communicator; -1 unknown */
    double span;     /* from its first collective to the end of its last */
    double busy;     /* of it: at least one collective was on the GPU; where not all
                      * are timed, in the share that those have */
    double launch;   /* of one collective by the host, median */
    double launches; /* all together */
};

/* One repetition of the collectives that repeat, as one process shows it: a step of the
 * training. Microseconds.
 */
struct mu_profile_step {
    size_t first, end; /* records of the process: index in struct mu_profile_steps */
    double begin;      /* since the first step */
    double took;
    double busy;    /* collectives on the GPU, -1 unknown: not all were timed */
    double compute; /* from the last collective of the step before to its first */
    double wait;    /* of the first process for the last, over all collectives */
    int late;       /* the process that caused most of it: index in files, -1 none */
};

struct mu_profile_steps {
    int file;                           /* the process that has most records */
    const struct mu_ledger_call **call; /* its records, in order */
    size_t ncalls;
    int period; /* collectives in a step, without those below MU_PROFILE_SMALL */
    struct mu_profile_step *step;
    int n;
    int timed;                     /* steps of which all collectives were timed */
    struct mu_profile_step median; /* took, busy, compute, wait, each by itself */
};

/* A bucket of libmuster's gradients, or all of a step (MU_LEDGER_STEP), over the steps
 * and processes that recorded it. Medians in microseconds, -1 unknown.
 */
struct mu_profile_bucket {
    uint64_t hash; /* of the communicator */
    uint32_t ddp, bucket;
    long records;
    double bytes;
    double ready;                 /* its last gradient, since the step before ended */
    double launch;                /* from there to its launch */
    double queue;                 /* from there until the backend worked on it */
    double work;                  /* until it ended */
    double exposed, exposed_most; /* sync waited for it */
    double joined;                /* sync went on, since the step before ended */
};

/* Bytes. A smaller collective is a loss or a barrier, and does not mark a step. */
#define MU_PROFILE_SMALL 4096

/* What a rule found. */
struct mu_finding {
    const char *rule;    /* "straggler" */
    const char *remedy;  /* what to do */
    int file;            /* the process it concerns, -1 all */
    double value, limit; /* what was measured, and what it should not pass */
    char text[640];
};

#define MU_FINDINGS_MOST 32

struct mu_profile {
    struct mu_profile_file *files;
    struct mu_sample *samples; /* of GPUs, from files beside the ledgers */
    size_t nsamples;
    uint64_t last;      /* records of a file that are read; 0: all */
    const char *job;    /* whose files are taken from folders; NULL: any; borrowed */
    int nfiles, faults; /* files read; files that could not be */
    struct mu_profile_record *records; /* by communicator, way, sequence, rank */
    size_t nrecords;
    uint64_t overwritten; /* records that a full ring has lost */
    struct mu_profile_comm *comms;
    int ncomms;
    struct mu_profile_row *rows;
    int nrows;
    struct mu_profile_part *parts; /* by file */
    struct mu_profile_steps steps;
    struct mu_profile_bucket
        *buckets; /* by hash, ddp: the step, its buckets by ready */
    int nbuckets;
    struct mu_finding findings[MU_FINDINGS_MOST];
    int nfindings;
};

/* Rules look at the timed steps, where there are any: the GPU's times of the others are
 * those of the host.
 */
static inline bool mu_profile_counts(const struct mu_profile_steps *s, int i)
{
    return s->timed == 0 || s->step[i].busy >= 0;
}

/* Microseconds of a call on its GPU, -1 unknown. */
double mu_profile_gpu_us(const struct mu_ledger_call *call);
/* Sorts them; -1 without values. */
double mu_profile_median(double *values, size_t n);
/* The rank of a process and its host, for a sentence. */
const char *mu_profile_name(const struct mu_profile *p, int file, char *buf,
                            size_t size);

/* Seconds of CLOCK_REALTIME when a process launched a call. */
double mu_profile_moment(const struct mu_profile *p, int file,
                         const struct mu_ledger_call *call);

/* It has libmuster's buckets alone, as on GPUs: the calls are in NCCL's file. */
static inline bool mu_profile_is_buckets(const struct mu_ledger_head *head)
{
    return head->interface == MU_LEDGER_LIBMUSTER && head->calls == 0;
}

/* Its CPUs are at another NUMA node than its GPU. */
bool mu_profile_is_remote(const struct mu_ledger_head *head);

/* Fill p->comms, p->records and p->rows. -1: no memory. */
int mu_profile_join(struct mu_profile *p);
/* Fill p->parts and p->steps from records in order. -1: no memory. */
int mu_profile_steps_find(struct mu_profile *p);
/* Fill p->buckets. -1: no memory. */
int mu_profile_buckets_find(struct mu_profile *p);
/* Fill p->findings. */
void mu_findings_make(struct mu_profile *p);

/* Read files, and the ledgers and samples in folders. Each fault is one sentence to
 * `complain`, and the rest is read. From folders only the ledgers of `job` are taken,
 * "1234" or "1234.0", and of several jobs or steps those of the one that began last.
 * NULL: any job. -1: nothing could be read, or no memory.
 */
int mu_profile_load(struct mu_profile *p, char **paths, int n, const char *job,
                    FILE *complain);
/* The same of the last records of each file: what a job does now. */
int mu_profile_load_last(struct mu_profile *p, char **paths, int n, const char *job,
                         uint64_t last, FILE *complain);
void mu_profile_clear(struct mu_profile *p);

/* What the ledgers lack, each between two texts. */
void mu_profile_notes(const struct mu_profile *p, const char *open, const char *close,
                      FILE *to);
void mu_profile_text(const struct mu_profile *p, FILE *to);
json_t *mu_profile_json(const struct mu_profile *p);
/* One page that needs no other file, with the timeline of this step, -1: the slowest.
 * Where gnuplot is missing, a sentence is in place of each plot, and one goes to
 * `complain`. -1: there is no such step, and nothing was written.
 */
int mu_profile_html(const struct mu_profile *p, int step, FILE *to, FILE *complain);
/* Events for chrome://tracing and Perfetto: a process for each rank, with a track for
 * launches and one for the GPU. The GPU's clock is shifted by a constant for each rank,
 * so that one kernel begins with its launch and none before. libmuster's ranks have two
 * more tracks: the backend's work on each bucket, and sync.
 */
void mu_profile_trace(const struct mu_profile *p, FILE *to);

#endif
