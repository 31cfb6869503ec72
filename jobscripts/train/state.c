/* SPDX-License-Identifier: BSD-3-Clause */
/* state.c - what a run needs to go on: checkpoints, and the loss curve that fits them
 */
#include "jobscripts/train/train.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/base/parse.h"

/* Weights, momenta, sampler, counters, state of the compression. */
#define ITEMS (4 * MODEL_PARAMS + 2)

/* Further content of a checkpoint. */
struct counters {
    uint64_t step;
    double last_loss;
};

/* `names` stores the names; the last two items are the sampler and the counters. */
static int list_items(struct train *t, struct muster_item *items, char names[ITEMS][48],
                      struct muster_sampler_state *at, struct counters *counters)
{
    uint64_t size = muster_dtype_size(t->ops->dtype);
    int n = 0;

    for (int i = 0; i < t->model.nparams; i++) {
        const struct model_param *param = &t->model.params[i];

        snprintf(names[n], sizeof names[n], "%s", param->name);
        items[n] = (struct muster_item){ .name = names[n],
                                         .bytes = param->count * size,
                                         .data = t->ops->host_weights(t->engine, i) };
        n++;
        snprintf(names[n], sizeof names[n], "%s.momentum", param->name);
        items[n] = (struct muster_item){ .name = names[n],
                                         .bytes = (t->to[i] - t->from[i]) * size,
                                         .data = t->ops->host_momenta(t->engine, i) };
        if (t->opt->zero) {
            items[n].offset = t->from[i] * size;
            items[n].total = param->count * size;
        }
        n++;
    }
    items[n++] =
        (struct muster_item){ .name = "sampler", .data = at, .bytes = sizeof *at };
    items[n++] = (struct muster_item){ .name = "counters",
                                       .data = counters,
                                       .bytes = sizeof *counters };
    if (t->opt->sharded)
        n += muster_ddp_state(t->ddp, items + n, ITEMS - n);
    return n;
}

/* Every rank has the error of a failed checkpoint call, unless a rank died. */
static int checkpoint_failed(struct train *t, int status, struct mu_err *err)
{
    t->agreed = status != MUSTER_EPEER && status != MUSTER_ETIMEOUT;
    return train_failed(t, status, err);
}

static int save_failed(struct train *t, int status, struct mu_err *err)
{
    char why[MU_ERR_TEXT];
    const char *last = muster_checkpoint_path(t->checkpoint);

    checkpoint_failed(t, status, err);
    mu_copy(why, sizeof why, err->text);
    return mu_err_set(err, status,
                      "%s; free disk space or choose another --checkpoint; the last "
                      "good checkpoint is %s",
                      why, *last ? last : "none");
}

int train_open_checkpoint(struct train *t, struct mu_err *err)
{
    const struct train_options *opt = t->opt;
    struct muster_checkpoint_options options = {
        .name = "muster-train",
        .kind = t->kind,
        .keep = (int)opt->keep,
        .sharded = opt->sharded,
        .mode = MUSTER_CHECKPOINT_LAZY,
    };
    int status;

    /* The state of the compression changes in the backward pass, before
     * train_before_update.
     */
    if (opt->sharded && muster_ddp_state(t->ddp, NULL, 0) > 0)
        options.mode = MUSTER_CHECKPOINT_COPY;
    if (opt->foreground)
        options.mode = MUSTER_CHECKPOINT_WAIT;
    if (!opt->checkpoint)
        return 0;
    snprintf(t->kind, sizeof t->kind, "muster-train %s %s", t->model.text,
             opt->dtype == MUSTER_F64 ? "fp64" : "fp32");
    status = muster_checkpoint_open(t->m, opt->checkpoint, &options, &t->checkpoint);
    return status == MUSTER_OK ? 0 : checkpoint_failed(t, status, err);
}

int train_resume(struct train *t, struct mu_err *err)
{
    struct muster_item items[ITEMS];
    char names[ITEMS][48];
    struct muster_sampler_state at;
    struct counters counters;
    uint64_t step;
    int n, status, found;

    if (!t->checkpoint || t->opt->resume == RESUME_NEVER)
        return 0;
    if (t->ops->exchange(t->engine, 1, err) < 0)
        return -1;
    n = list_items(t, items, names, &at, &counters);
    status = muster_checkpoint_load(t->checkpoint, items, n, &step, &found);
    if (status != MUSTER_OK)
        return checkpoint_failed(t, status, err);
    if (!found && t->opt->resume == RESUME_MUST) {
        t->agreed = 1;
        return mu_err_set(err, MUSTER_EIO,
                          "--resume=must, but there is no checkpoint in %s",
                          t->opt->checkpoint);
    }
    if (!found)
        return 0;
    if (muster_sampler_restore(t->sampler, &at) != MUSTER_OK) {
        t->agreed = 1;
        mu_err_set(err, MUSTER_ECONTRACT, "%s", muster_error(t->m));
        return mu_err_context(err, "%s", muster_checkpoint_path(t->checkpoint));
    }
    t->step = t->first_step = t->saved_step = counters.step;
    t->last_loss = counters.last_loss;
    t->epoch = (long)at.epoch;
    if (t->rank == 0)
        show_line(&t->show, "resumed from %s: step %llu, epoch %ld, sample %llu",
                  muster_checkpoint_path(t->checkpoint), (unsigned long long)t->step,
                  t->epoch + 1, (unsigned long long)at.position);
    return t->ops->exchange(t->engine, 0, err);
}

int train_save(struct train *t, struct mu_err *err)
{
    struct muster_item items[ITEMS];
    char names[ITEMS][48];
    /* They are copied in the background, so they must outlive the call. */
    struct muster_sampler_state *at = &t->saved_at;
    struct counters *counters = (struct counters *)t->saved_counters;
    double start = mu_clock_s();
    int n, status;

    _Static_assert(sizeof *counters <= sizeof t->saved_counters,
                   "room for the counters");
    if (!t->checkpoint || t->saved_step == t->step)
        return 0;
    /* The last save may still be copying what changes now. */
    muster_checkpoint_copied(t->checkpoint);
    muster_sampler_save(t->sampler, at);
    *counters = (struct counters){ t->step, t->last_loss };
    if (t->ops->exchange(t->engine, 1, err) < 0)
        return -1;
    n = list_items(t, items, names, at, counters);
    status = muster_checkpoint_save(t->checkpoint, t->step, items, n);
    if (status != MUSTER_OK)
        return save_failed(t, status, err);
    t->saved_step = t->step;
    t->nsaves++;
    t->stall_seconds += mu_clock_s() - start;
    return 0;
}

void train_before_update(struct train *t)
{
    double start;

    if (!t->checkpoint)
        return;
    start = mu_clock_s();
    muster_checkpoint_copied(t->checkpoint);
    t->stall_seconds += mu_clock_s() - start;
}

int train_finish_saves(struct train *t, struct mu_err *err)
{
    int status;

    if (train_save(t, err) < 0)
        return -1;
    status = t->checkpoint ? muster_checkpoint_wait(t->checkpoint) : MUSTER_OK;
    return status == MUSTER_OK ? 0 : save_failed(t, status, err);
}

/* Copy the lines of steps before first_step; later steps are done again. */
static int curve_keep(struct train *t, FILE *to, struct mu_err *err)
{
    FILE *from = fopen(t->opt->curve, "re");
    unsigned long long step;
    double loss;
    int bad = 0;

    if (!from)
        return errno == ENOENT ? 0
                               : mu_err_set(err, MUSTER_EIO, "%s cannot be read: %s",
                                            t->opt->curve, strerror(errno));
    while (fscanf(from, "%llu %lf", &step, &loss) == 2)
        if (step < t->first_step)
            bad |= fprintf(to, "%llu\t%.17g\n", step, loss) < 0;
    fclose(from);
    return bad ? mu_err_set(err, MUSTER_EIO, "%s cannot be written: %s", t->opt->curve,
                            strerror(errno))
               : 0;
}

int train_open_curve(struct train *t, struct mu_err *err)
{
    char temporary[4096];

    if (!t->opt->curve || t->rank != 0)
        return 0;
    snprintf(temporary, sizeof temporary, "%s.tmp", t->opt->curve);
    t->curve = fopen(temporary, "we");
    if (!t->curve)
        return mu_err_set(err, MUSTER_EIO, "%s cannot be written: %s", temporary,
                          strerror(errno));
    if (t->first_step > 0 && curve_keep(t, t->curve, err) < 0)
        return -1;
    if (fflush(t->curve) == EOF || rename(temporary, t->opt->curve) < 0)
        return mu_err_set(err, MUSTER_EIO, "%s cannot be written: %s", t->opt->curve,
                          strerror(errno));
    return 0;
}

int train_add_to_curve(struct train *t, uint64_t from, struct mu_err *err)
{
    if (!t->curve)
        return 0;
    for (uint64_t i = from; i < t->nloss; i++)
        fprintf(t->curve, "%llu\t%.17g\n", (unsigned long long)(t->first_step + i),
                t->loss[i]);
    if (fflush(t->curve) == EOF)
        return mu_err_set(err, MUSTER_EIO, "%s cannot be written: %s", t->opt->curve,
                          strerror(errno));
    return 0;
}
