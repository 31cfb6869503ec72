/* SPDX-License-Identifier: BSD-3-Clause */
/* monitor.h - `muster monitor`: what a job does now, from the ledgers that it writes
 *
 *   monitor.c          the command line, and the round of each interval
 *   monitor_job.c      from a job's id to the folders of its ledgers
 *   monitor_view.c     the last records of each rank, put together
 *   monitor_devices.c  this node's GPUs and network interfaces
 *   monitor_record.c   GPUs into a file, for muster report
 *   monitor_advice.c   GPUs of the job that are idle, slow, or nearly empty
 *   monitor_print.c    text, JSON, and Prometheus' text format
 *   monitor_screen.c   the terminal
 */
#ifndef MU_MONITOR_H
#define MU_MONITOR_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "runtime/base/err.h"

#define MU_MONITOR_FOLDERS 16
#define MU_MONITOR_GPUS 32
#define MU_MONITOR_NICS 64
#define MU_MONITOR_ADVICE 8

/* -1: unknown. */
struct mu_monitor_rank {
    int rank, pid;
    char host[64];
    char gpu[32];   /* PCI bus id, "" unknown */
    double step;    /* steps so far, by the collectives of one */
    double step_ms; /* median of the last steps */
    double share;   /* of the time: a collective runs */
    double busbw;   /* GB/s while one runs */
    double idle;    /* seconds since its last collective began */
    double last;    /* share of the last steps in which the others waited for it */
};

struct mu_monitor_gpu {
    char pci[32];       /* as nvidia-smi prints it */
    double utilization; /* percent */
    double watts, mhz, used_mib, total_mib;
};

struct mu_monitor_nic {
    char name[64];
    double received, sent;  /* bytes so far */
    double receives, sends; /* bytes per second, -1 before the second look */
};

struct mu_monitor {
    const char *only; /* job whose ledgers are read, NULL: all; borrowed */
    char job[32];
    struct mu_monitor_rank *rank; /* by rank */
    int nranks;
    char note[640]; /* for whom the others wait; "": all are alike */
    struct mu_monitor_gpu gpu[MU_MONITOR_GPUS];
    int ngpus;
    struct mu_monitor_nic nic[MU_MONITOR_NICS];
    int nnics;
    char advice[MU_MONITOR_ADVICE][192]; /* about the GPUs that ranks use here */
    int nadvice;
    double looked; /* seconds: when the interfaces were read */
};

/* Folders of the ledgers of a job's processes on this node that the caller may look at.
 * The caller frees them. Returns how many; -1 none, with what to do.
 */
int mu_monitor_find(const char *job, char *folder[MU_MONITOR_FOLDERS],
                    struct mu_err *err);

/* Replace m->rank, job and note by what the ledgers show now. -1: nothing can be read;
 * each fault is a sentence to `complain`.
 */
int mu_monitor_look(struct mu_monitor *m, char **paths, int n, FILE *complain);
/* Replace the GPUs and interfaces; rates are those since the last call. */
void mu_monitor_devices(struct mu_monitor *m);
/* Replace m->advice by what ranks and GPUs show. `host` is this node's name. */
void mu_monitor_advise(struct mu_monitor *m, const char *host);
/* Append this node's GPUs to FOLDER/HOST.samples every `interval` seconds, until the
 * process is ended by a signal, or `once`. -1 with what is wrong.
 */
int mu_monitor_record(struct mu_monitor *m, const char *folder, double interval,
                      bool once, struct mu_err *err);
void mu_monitor_clear(struct mu_monitor *m);

void mu_monitor_text(const struct mu_monitor *m, FILE *to);
json_t *mu_monitor_json(const struct mu_monitor *m);
void mu_monitor_prometheus(const struct mu_monitor *m, FILE *to);

/* The terminal: open, draw a text, wait for a key. */
int mu_screen_open(struct mu_err *err);
void mu_screen_draw(const char *text);
/* True: the user has ended it. Returns after `seconds`, or earlier to draw again. */
bool mu_screen_wait(double seconds, bool *again);
void mu_screen_close(void);

#endif
