/* SPDX-License-Identifier: BSD-3-Clause */
/* control.h - one control connection per rank, under every backend
 *
 *   rank 0 --- TCP --- first rank of node 1, 2, ...   (a tree of width 16)
 *     |                   |
 *   AF_UNIX             AF_UNIX
 *     |                   |
 *   ranks of node 0     ranks of its node
 *
 * Carries what neither PMIx nor NCCL can: who died, who is late and what each was
 * doing, how long to wait, small agreements, and the reason of the end. The endpoints
 * prove the job's token to each other before anything else. One thread serves the
 * connections and sleeps when idle.
 */
#ifndef MU_CONTROL_H
#define MU_CONTROL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/err.h"
#include "runtime/base/exchange.h"
#include "runtime/base/log.h"
#include "runtime/boot/world.h"
#include "runtime/core/flight.h"
#include "runtime/core/reporter.h"

struct mu_control;

/* How the job fails; each rank receives it once. */
struct mu_ending {
    int status;    /* muster_status, or the exit status given to muster_abort */
    int rank;      /* the guilty one, -1 unknown */
    bool reporter; /* this process prints the reason and ends the step */
    bool written;  /* hooks.alarmed has returned true since */
    bool printed;  /* another world has printed the reason: it only ends the step */
    char text[MU_ERR_TEXT];
    /* At a deadline, on the reporter: by rank, NULL where there was no answer; else
     * NULL. Valid during the call.
     */
    const struct mu_flight *const *records;
};

/* Called from the control thread. record and judge: with its lock held, so they must
 * not call back; they are only used by the rank that collects.
 */
struct mu_control_hooks {
    void *arg;
    void (*record)(void *arg, struct mu_flight *out);
    /* Sentence, status and guilty rank from the records; parent_of as in flight.h. */
    int (*judge)(void *arg, const struct mu_flight *const *records,
                 const int *parent_of, int *status, char *text, size_t len);
    /* A failure was noticed: another rank may end this process at any moment. Called
     * before `ended` or instead of it, and again until it returns true: this rank has
     * written what it prints. Must return soon.
     */
    bool (*alarmed)(void *arg);
    /* All living ranks have written what they print, or MU_WRITE_SECONDS are over.
     * Where each rank reports immediately: at once.
     */
    void (*ended)(void *arg, const struct mu_ending *ending);
    /* Deadlines move to at least this many seconds from now. */
    void (*extended)(void *arg, double seconds);
};

struct mu_control_env {
    const struct mu_world *world; /* met; borrowed until close, as are the others */
    double init_timeout, timeout; /* seconds */
    /* Each rank reports a failure at once, and does not let a rank above it report
     * first.
     */
    bool report_immediately;
    const struct mu_log *log;
    struct mu_control_hooks hooks;
};

/* [collective] Connect. On failure err->code is a muster_status; *out is NULL unless
 * this rank is connected and another one has died.
 */
int mu_control_open(const struct mu_control_env *env, struct mu_control **out,
                    struct mu_err *err);
/* [collective] Wait until all ranks are here, say goodbye, free c. After a failure it
 * does not wait.
 */
int mu_control_close(struct mu_control *c, struct mu_err *err);

/* Free c without a word: the others see this rank leave. */
void mu_control_discard(struct mu_control *c);
/* From now on as with that env.report_immediately. */
void mu_control_report_immediately(struct mu_control *c, bool immediately);
/* Seconds that a wait which begins now may last. */
double mu_control_patience(struct mu_control *c);

/* What each rank gave to a gather: at[r], len[r] bytes. */
struct mu_gathered {
    void *blob;
    const void **at;
    size_t *len;
};
/* [collective] Each rank receives the bytes of all ranks (a few KiB each); blocks.
 * `what` names it in messages. The result is freed with mu_gathered_clear.
 */
int mu_control_gather(struct mu_control *c, const char *what, const void *data,
                      size_t len, struct mu_gathered *out, struct mu_err *err);
void mu_gathered_clear(struct mu_gathered *g);

/* The absent-gradient agreement of a step. Each rank posts hashes of what it reduces
 * and of the order in which its collectives started. If they differ, the job ends and
 * the message names the first rank of the minority. A rank that waits for the others
 * adds a bitmap of its absent gradients, and blocks until all posted `step`; absent
 * gets those that every rank lacks. nbytes 0: this rank has them all, and does not
 * block.
 */
int mu_control_agree(struct mu_control *c, uint64_t step, const uint64_t hashes[2],
                     uint8_t *absent, size_t nbytes, struct mu_err *err);

/* The caller starts to wait for other ranks in `what`: when that lasts longer than the
 * deadline the flight records are collected and the job ends. Not nested. The deadline
 * is that of the options; `seconds`, if above 0, can only shorten it.
 */
void mu_control_wait_begin(struct mu_control *c, const char *what, double seconds);
void mu_control_wait_end(struct mu_control *c);
/* All ranks' waits last at least this many seconds from now. Any rank may call. */
void mu_control_extend(struct mu_control *c, double seconds);
/* Report to all ranks that the job fails, from any thread. Returns at once. rank: the
 * guilty one. Where it is -1, a death may be the cause of MUSTER_EPEER and
 * MUSTER_EDEVICE, and is waited for.
 */
void mu_control_fail(struct mu_control *c, int status, int rank, const char *why);
/* The same, where another world of this process reports it. */
void mu_control_fail_printed(struct mu_control *c, int status, const char *why);
/* The same: that rank died. */
void mu_control_report_death(struct mu_control *c, int rank, enum mu_death death);
/* The backend reports that a wait is overdue: collect the records, judge, end. */
void mu_control_overdue(struct mu_control *c);
/* The same wait as before `ended`, for a thread that ends the job by itself. */
void mu_control_await_written(struct mu_control *c);
/* Has the job failed? Fills err and returns true. */
bool mu_control_failed(struct mu_control *c, struct mu_err *err);
/* The guilty rank, -1: unknown, or it has not failed. */
int mu_control_guilty(struct mu_control *c);

#endif
