/* SPDX-License-Identifier: BSD-3-Clause */
/* elastic.c - --elastic: go on with fewer ranks at the step of the death
 *
 * libmuster makes sure that the survivors have done the same number of steps. After the
 * last one, some ranks may have done more than others (added up losses, saved, tested):
 * all go back to what every rank has.
 */
#include "jobscripts/train/train.h"

#include <stdlib.h>

enum { PLACE, LOSSES, SAMPLES, SAVED, TESTED, WORDS };

/* Epoch and position as one number. */
static int64_t place(const struct train *t)
{
    struct muster_sampler_state at;

    muster_sampler_save(t->sampler, &at);
    return (int64_t)(at.epoch * (at.samples + 1) + at.position);
}

static int go_to(struct train *t, int64_t place, struct mu_err *err)
{
    struct muster_sampler_state at;
    int status;

    muster_sampler_save(t->sampler, &at);
    at.epoch = (uint64_t)place / (at.samples + 1);
    at.position = (uint64_t)place % (at.samples + 1);
    /* Count the steps of an epoch anew. */
    muster_sampler_set_epoch(t->sampler, at.epoch);
    t->steps_epoch = muster_sampler_steps(t->sampler);
    t->epoch = (long)at.epoch;
    status = muster_sampler_restore(t->sampler, &at);
    return status == MUSTER_OK ? 0 : train_failed(t, status, err);
}

/* Returns MUSTER_OK, or the status of another death or failure. */
static int find_common(struct train *t, int64_t *words)
{
    int status;

    words[PLACE] = place(t);
    words[LOSSES] = (int64_t)t->nloss;
    words[SAMPLES] = (int64_t)t->samples_seen;
    words[SAVED] = (int64_t)t->saved_step;
    words[TESTED] = t->tested;
    status = muster_allreduce(t->m, words, WORDS, MUSTER_I64, MUSTER_MIN, NULL);
    if (status == MUSTER_OK)
        status = muster_barrier(t->m); /* on a GPU the line above only enqueued */
    if (status == MUSTER_OK)
        status = cores_collect(t->m, t->blas_threads, &t->cores);
    return status;
}

/* Rank 0 may now be another process than the one that wrote the curve. */
static int rewrite_curve(struct train *t, struct mu_err *err)
{
    if (t->curve)
        fclose(t->curve);
    t->curve = NULL;
    if (train_open_curve(t, err) < 0)
        return -1;
    return train_add_to_curve(t, 0, err);
}

int train_shrunk(struct train *t, struct mu_err *err)
{
    int64_t words[WORDS] = { 0 };
    int status = MUSTER_ESHRUNK, before = t->size;

    while (status == MUSTER_ESHRUNK)
        status = find_common(t, words);
    if (status != MUSTER_OK)
        return train_failed(t, status, err);
    t->rank = muster_rank(t->m);
    t->size = muster_size(t->m);
    t->agreed = t->mine = 0;
    t->stop = 0; /* the rank that got the signal still has it */
    t->nloss = (uint64_t)words[LOSSES];
    /* Later losses are still there: no step has been done since. */
    t->npending = (int)(t->step - t->first_step - t->nloss);
    t->last_loss = t->nloss ? t->loss[t->nloss - 1] : 0;
    t->samples_seen = (uint64_t)words[SAMPLES];
    t->saved_step = (uint64_t)words[SAVED];
    t->tested = words[TESTED] != 0;
    t->lost += before - t->size;
    show_init(&t->show, t->rank);
    if (go_to(t, words[PLACE], err) < 0 || train_count_steps(t, err) < 0)
        return -1;
    if (t->rank == 0)
        show_line(&t->show,
                  "%d of %d ranks go on at step %llu; effective batch size %llu",
                  t->size, before, (unsigned long long)t->step,
                  (unsigned long long)train_effective_batch(t));
    return train_agree(t, rewrite_curve(t, err), "write the curve", err);
}
