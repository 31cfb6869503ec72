/* SPDX-License-Identifier: BSD-3-Clause */
/* train.h - one run of muster-train: its parts, in the order of their use
 *
 * Functions return 0 or -1; err->code is then the exit status. A failure that every
 * rank has alike sets train.agreed, so that the ranks may exit one by one. After any
 * other failure the whole job is ended.
 */
#ifndef TRAIN_TRAIN_H
#define TRAIN_TRAIN_H

#include <signal.h>
#include <stdio.h>

#include "jobscripts/train/cores.h"
#include "jobscripts/train/data.h"
#include "jobscripts/train/engine.h"
#include "jobscripts/train/options.h"
#include "jobscripts/train/show.h"

/* Losses of at most this many steps are kept locally before the ranks add them up. */
#define TRAIN_PENDING 64

/* What a rank sends at the end; whole 64-bit words. */
struct rank_figures {
    double seconds, cpu_seconds, sync_seconds, stall_seconds;
    uint64_t weights_hash;
    uint64_t momenta_bytes;
    char cpus[64];
};

/* The progress of a run when the ranks agreed. */
struct moment {
    uint64_t step;
    double seconds, loss;
};

struct train {
    const struct train_options *opt;
    struct muster *m;
    int rank, size;
    int lost;         /* ranks that died, with --elastic */
    int agreed, mine; /* after a failure: all ranks have it; it happened on this rank */

    struct model model;
    struct dataset train_set, test_set;
    const struct engine_ops *ops;
    struct engine *engine;
    struct muster_ddp *ddp;
    size_t from[MODEL_PARAMS],
        to[MODEL_PARAMS];   /* the elements that this rank updates */
    uint64_t weights_bytes; /* of weights, and of gradients */
    struct muster_sampler *sampler;
    struct muster_checkpoint *checkpoint; /* NULL without --checkpoint */
    char kind[128];
    struct cores cores;
    int blas_threads;
    struct show show;

    /* Progress */
    long epoch;                /* from 0 */
    uint64_t step, first_step; /* of the run; first_step is the first of this process */
    uint64_t steps_total, steps_epoch; /* in all; from the start of an epoch */
    int stop;                          /* all ranks agreed to stop after a signal */

    /* Checkpoints */
    uint64_t saved_step;
    struct muster_sampler_state saved_at;
    uint64_t saved_counters[2];
    int nsaves;
    double stall_seconds; /* for which steps waited for them */
    FILE *curve;

    /* Losses not yet added up over ranks, and how often to do that */
    double pending_sum[TRAIN_PENDING], pending_count[TRAIN_PENDING];
    int npending, interval;
    int ready_status; /* of the last muster_ddp_grad_ready */

    /* Results; equal on all ranks */
    double *loss; /* mean of step first_step + i */
    uint64_t nloss;
    double last_loss, test_loss, test_accuracy;
    int tested;
    double train_seconds, test_seconds, cpu_seconds;
    double sync_seconds;   /* in muster_ddp_sync: communication that was not hidden */
    uint64_t samples_seen; /* by all ranks in this process */
    struct rank_figures *figures; /* by rank, after train_collect */
    struct moment *moments;       /* rank 0 */
    int nmoments;
};

extern volatile sig_atomic_t train_signal; /* SIGUSR1 or SIGTERM was received */

/* setup.c: data, model, engine, parameters, sampler; banner. [collective] */
int train_setup(struct train *t, struct mu_err *err);
/* Count the steps from the position of the sampler to the end; make room for their
 * losses.
 */
int train_count_steps(struct train *t, struct mu_err *err);
/* Momenta that this rank keeps. */
uint64_t train_momenta_bytes(const struct train *t);
void train_clear(struct train *t);

/* loop.c: epochs to the end, the step limit or a signal. [collective] */
int train_run(struct train *t, struct mu_err *err);
uint64_t train_effective_batch(const struct train *t);
/* Samples of all ranks per step at which --lr holds. */
#define TRAIN_LR_BATCH 128

/* elastic.c. [collective] After a call that returned MUSTER_ESHRUNK: the survivors go
 * back to the same sample, and may go on with train_run.
 */
int train_shrunk(struct train *t, struct mu_err *err);

/* state.c. All are [collective] except those of the curve; none does anything unless
 * the options ask for it.
 */
int train_open_checkpoint(struct train *t, struct mu_err *err);
int train_resume(struct train *t, struct mu_err *err);
/* Save the current step, unless it is saved. */
int train_save(struct train *t, struct mu_err *err);
/* Call it before weights change. */
void train_before_update(struct train *t);
/* Returns when all saves are on disk. */
int train_finish_saves(struct train *t, struct mu_err *err);
/* Rank 0 writes the losses; after a resume the lines of repeated steps are replaced. */
int train_open_curve(struct train *t, struct mu_err *err);
int train_add_to_curve(struct train *t, uint64_t from, struct mu_err *err);

/* result.c: gather the numbers of the ranks, and fail when weights are not equal bit
 * for bit [collective]; write the JSON file.
 */
int train_collect(struct train *t, struct mu_err *err);
int train_write_result(const struct train *t, struct mu_err *err);

/* Turn a failed call of libmuster into err, with the sentence of muster_error. */
int train_failed(const struct train *t, int status, struct mu_err *err);
/* [collective] Pass rc and err of each rank. If any rc is -1 all return -1; ranks
 * without an error get the code of the lowest rank that failed. Sets t->agreed.
 */
int train_agree(struct train *t, int rc, const char *what, struct mu_err *err);

#endif
