/* SPDX-License-Identifier: BSD-3-Clause */
/* loop.c - epochs, steps, and the few moments at which the ranks agree */
#include "jobscripts/train/train.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/clock.h"

/* How long ranks compute before they add up losses and check for a signal. */
#define AGREE_EVERY 0.5 /* seconds */

volatile sig_atomic_t train_signal;

uint64_t train_effective_batch(const struct train *t)
{
    return (uint64_t)t->opt->batch * (uint64_t)t->opt->accumulate * (uint64_t)t->size;
}

/* The rate depends on the samples seen, not on the steps: so it is the same at the same
 * sample for any number of ranks.
 */
static double learning_rate(const struct train *t, double samples)
{
    const struct train_options *opt = t->opt;
    double n = (double)t->train_set.n, warm = opt->warmup * n;
    double end = (double)opt->epochs * n;
    double lr = opt->lr * (double)train_effective_batch(t) / TRAIN_LR_BATCH;

    if (samples < warm)
        return lr * samples / warm;
    if (!opt->cosine || end <= warm)
        return lr;
    return lr * 0.5 * (1 + cos(M_PI * fmin(1, (samples - warm) / (end - warm))));
}

static int ready(void *arg, int param)
{
    struct train *t = arg;

    t->ready_status = muster_ddp_grad_ready(t->ddp, param, NULL);
    return t->ready_status == MUSTER_OK ? 0 : -1;
}

/* One step over the n samples of this rank: micro-batches whose gradients add up to the
 * mean over n, then the mean over ranks, then the update.
 */
static int one_step(struct train *t, const uint64_t *index, int n, double lr,
                    struct mu_err *err)
{
    int batch = (int)t->opt->batch, status;
    double sum = 0, loss, start;

    for (int at = 0; at < n; at += batch) {
        int micro = n - at < batch ? n - at : batch;

        status = muster_ddp_no_sync(t->ddp, at + batch < n);
        if (status != MUSTER_OK)
            return train_failed(t, status, err);
        if (t->ops->load(t->engine, &t->train_set, index + at, micro, err) < 0)
            return -1;
        if (t->ops->train(t->engine, 1.0 / n, at > 0, ready, t, &loss) < 0)
            return train_failed(t, t->ready_status, err);
        sum += loss;
    }
    start = mu_clock_s();
    status = muster_ddp_sync(t->ddp, NULL);
    t->sync_seconds += mu_clock_s() - start;
    if (status != MUSTER_OK)
        return train_failed(t, status, err);
    train_before_update(t);
    t->ops->update(t->engine, lr, t->opt->momentum, t->opt->decay);
    start = mu_clock_s();
    status = t->opt->zero ? muster_ddp_gather(t->ddp) : MUSTER_OK;
    t->sync_seconds += mu_clock_s() - start;
    if (status != MUSTER_OK)
        return train_failed(t, status, err);
    t->pending_sum[t->npending] = sum;
    t->pending_count[t->npending++] = n;
    t->step++;
    return 0;
}

/* Add a point to the history of the run. At MOMENTS points every other one is dropped.
 */
#define MOMENTS 512

static void note_moment(struct train *t, double seconds)
{
    if (t->rank != 0)
        return;
    if (!t->moments)
        t->moments = calloc(MOMENTS, sizeof *t->moments);
    if (!t->moments)
        return;
    if (t->nmoments == MOMENTS) {
        for (int i = 0; i < MOMENTS / 2; i++)
            t->moments[i] = t->moments[2 * i + 1];
        t->nmoments = MOMENTS / 2;
    }
    t->moments[t->nmoments++] = (struct moment){ t->step, seconds, t->last_loss };
}

/* Add up the pending losses over ranks; agree on stopping and on the next interval. */
static int talk(struct train *t, double step_seconds, struct mu_err *err)
{
    double word[2 + 2 * TRAIN_PENDING] = { 0 };
    uint64_t known = t->nloss;
    int n = t->npending, status;

    word[0] = train_signal != 0;
    if (t->rank == 0)
        word[1] = fmax(1, fmin(TRAIN_PENDING, floor(AGREE_EVERY / step_seconds)));
    memcpy(word + 2, t->pending_sum, (size_t)n * sizeof *word);
    memcpy(word + 2 + n, t->pending_count, (size_t)n * sizeof *word);
    status =
        muster_allreduce(t->m, word, 2 + 2 * (size_t)n, MUSTER_F64, MUSTER_SUM, NULL);
    if (status != MUSTER_OK)
        return train_failed(t, status, err);
    t->stop = word[0] > 0;
    t->interval = (int)word[1];
    for (int i = 0; i < n; i++) {
        t->last_loss = word[2 + i] / word[2 + n + i];
        t->samples_seen += (uint64_t)word[2 + n + i];
        t->loss[t->nloss++] = t->last_loss;
        if (!isfinite(t->last_loss)) {
            t->agreed = 1;
            return mu_err_set(err, MUSTER_ENUMERIC,
                              "the loss of step %llu is %g; lower --lr or lengthen "
                              "--warmup",
                              (unsigned long long)(t->first_step + t->nloss - 1),
                              t->last_loss);
        }
    }
    t->npending = 0;
    return train_agree(t, train_add_to_curve(t, known, err), "write the curve", err);
}

static void tell_progress(struct train *t, double lr, double seconds)
{
    double rate = (double)t->samples_seen / seconds;
    uint64_t done = t->step - t->first_step, left = t->steps_total - t->step;
    struct show_progress p = {
        .epoch = t->epoch + 1,
        .epochs = t->opt->epochs,
        .step = t->steps_epoch - muster_sampler_steps(t->sampler),
        .steps = t->steps_epoch,
        .loss = t->last_loss,
        .lr = lr,
        .rate = rate,
        .eta = done ? seconds / (double)done * (double)left : 0,
    };

    show_progress(&t->show, &p);
}

static int one_epoch(struct train *t, uint64_t *index, struct mu_err *err)
{
    struct muster_sampler_state at, step_at;
    double start = mu_clock_s(), cpu = cores_cpu_seconds(), lr = 0, before;
    uint64_t n, first = t->step;
    int rc = 0;

    before = t->train_seconds;
    muster_sampler_save(t->sampler, &step_at);
    while (rc == 0 && !t->stop && t->step < t->steps_total &&
           muster_sampler_next(t->sampler, index, &n)) {
        muster_sampler_save(t->sampler, &at);
        lr = learning_rate(t, (double)t->epoch * (double)t->train_set.n +
                                  (double)at.position);
        rc = one_step(t, index, (int)n, lr, err);
        if (rc < 0) /* --elastic repeats the step */
            muster_sampler_restore(t->sampler, &step_at);
        step_at = at;
        if (rc == 0 && t->npending >= t->interval) {
            double seconds = mu_clock_s() - start;

            rc = talk(t, seconds / (double)(t->step - first), err);
            note_moment(t, before + seconds);
            tell_progress(t, lr, before + seconds);
        }
        if (rc == 0 && t->opt->checkpoint_every &&
            t->step % t->opt->checkpoint_every == 0)
            rc = train_save(t, err);
    }
    if (rc == 0 && t->npending > 0)
        rc = talk(t, (mu_clock_s() - start) / (double)(t->step - first), err);
    t->train_seconds += mu_clock_s() - start;
    t->cpu_seconds += cores_cpu_seconds() - cpu;
    return rc;
}

/* Each rank tests its share; the counts are added up. */
static int test(struct train *t, struct mu_err *err)
{
    uint64_t n = t->test_set.n, from = n * (uint64_t)t->rank / (uint64_t)t->size;
    uint64_t to = n * (uint64_t)(t->rank + 1) / (uint64_t)t->size;
    uint64_t batch = (uint64_t)t->opt->batch, index[batch];
    double word[2] = { 0 }, start = mu_clock_s();
    int status;

    while (from < to) {
        int k = 0, correct;
        double loss;

        for (; k < (int)batch && from < to; k++)
            index[k] = from++;
        if (t->ops->load(t->engine, &t->test_set, index, k, err) < 0 ||
            t->ops->test(t->engine, &loss, &correct) < 0)
            return -1;
        word[0] += loss;
        word[1] += correct;
    }
    status = muster_allreduce(t->m, word, 2, MUSTER_F64, MUSTER_SUM, NULL);
    if (status != MUSTER_OK)
        return train_failed(t, status, err);
    t->test_loss = word[0] / (double)n;
    t->test_accuracy = word[1] / (double)n;
    t->test_seconds += mu_clock_s() - start;
    t->tested = 1;
    return 0;
}

int train_run(struct train *t, struct mu_err *err)
{
    uint64_t *index =
        calloc((size_t)(t->opt->batch * t->opt->accumulate), sizeof *index);
    int rc = 0;

    if (!index)
        return mu_err_set(err, MUSTER_EMEMORY, "no memory for the batch");
    t->interval = 1;
    while (rc == 0 && !t->stop && t->epoch < t->opt->epochs &&
           t->step < t->steps_total) {
        rc = one_epoch(t, index, err);
        if (rc < 0 || t->stop)
            break;
        if (!t->opt->checkpoint_every)
            rc = train_save(t, err);
        if (rc == 0)
            rc = test(t, err);
        if (rc == 0 && t->rank == 0)
            show_line(
                &t->show,
                "epoch %ld/%ld | loss %.4f | test loss %.4f | test accuracy %.4f | "
                "%.1f s",
                t->epoch + 1, t->opt->epochs, t->last_loss, t->test_loss,
                t->test_accuracy, t->train_seconds);
        t->epoch++;
        muster_sampler_set_epoch(t->sampler, (uint64_t)t->epoch);
    }
    show_bar_end(&t->show);
    free(index);
    if (rc == 0 && !t->stop && !t->tested) /* resumed after its last step */
        rc = test(t, err);
    return rc == 0 ? train_finish_saves(t, err) : rc;
}
