/* SPDX-License-Identifier: BSD-3-Clause */
/* elastic.c - a training in which ranks die */
#include "tests/unit/elastic.h"

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/boot/control_impl.h"
#include "tests/unit/await_stop.h"

static void die(const struct run *run)
{
    if (run->told->died_at == 0)
        run->told->died_at = mu_clock_s();
    kill(getpid(), SIGKILL);
    mu_pause(10);
}

static bool has_come(const struct run *run, int step, enum phase phase)
{
    for (int i = 0; i < 3; i++) {
        const struct death *d = &run->c->death[i];

        if (d->phase == phase && d->rank == run->origin && d->step == step)
            return true;
    }
    return false;
}

static void maybe_die(const struct run *run, int step, enum phase phase)
{
    if (has_come(run, step, phase))
        die(run);
}

static void maybe_give_up(struct muster *m, const struct run *run, int step)
{
    if (!has_come(run, step, GIVES_UP))
        return;
    run->told->died_at = mu_clock_s();
    muster_extend(m, -1);
    exit(muster_report(m));
}

static bool dies_in_finalize(const struct run *run)
{
    return run->c->death[0].phase == IN_FINALIZE &&
           run->c->death[0].rank == run->origin;
}

static const struct death *dies_behind_another(const struct run *run)
{
    for (int i = 0; i < 3; i++)
        if (run->c->death[i].phase == BEHIND_ANOTHER &&
            run->c->death[i].rank == run->origin)
            return &run->c->death[i];
    return NULL;
}

/* Dies at its time, wherever the program is. */
static void *second_death(void *arg)
{
    const struct run *run = arg;
    const struct death *mine = dies_behind_another(run);

    while (mine && ((volatile struct told *)run->told)->died_at == 0)
        mu_pause(0.00005);
    if (mine) {
        mu_pause(mine->after);
        die(run);
    }
    return NULL;
}

/* ---- A death when some have the end of a sync --------------------------------------
 */

static void (*pass_frame)(struct mu_control *c, struct mu_link *link,
                          const struct mu_frame *frame, const char *data);
static struct told *votes_told;
static pid_t victim;

/* Stops the victim when its vote and that of the rank behind it have arrived. A frame
 * with a link is passed on to the root itself, without one.
 */
static void stop_with_the_votes(struct mu_control *c, struct mu_link *link,
                                const struct mu_frame *frame, const char *data)
{
    static int votes;

    pass_frame(c, link, frame, data);
    if (link || frame->type != MU_FRAME_GATHER || frame->from < 2 || ++votes != 2)
        return;
    kill(victim, SIGSTOP);
    c->on_frame = pass_frame;
    votes_told->stopped = true;
}

static void await(const volatile bool *flag)
{
    while (!*flag)
        mu_pause(0.001);
}

/* Rank 0 counts the votes of ranks 2 and 3, rank 1 votes behind them. */
static void before_the_vote(struct muster *m, const struct run *run, int step)
{
    const struct death *d = &run->c->death[0];
    struct mu_control *c = m->comm.control;

    if (d->phase != WITH_THE_VOTES || d->step != step)
        return;
    if (run->origin == 0) {
        votes_told = run->told;
        victim = run->told->pid[d->rank];
        pthread_mutex_lock(&c->lock);
        pass_frame = c->on_frame;
        c->on_frame = stop_with_the_votes;
        pthread_mutex_unlock(&c->lock);
        run->told->counting = true;
    }
    await(run->origin == 1 ? &run->told->stopped : &run->told->counting);
    if (run->origin == 1)
        await_stop(run->told->pid[d->rank]);
}

static void after_the_vote(const struct run *run, int step)
{
    const struct death *d = &run->c->death[0];

    if (d->phase != WITH_THE_VOTES || d->step != step || run->origin != 0)
        return;
    run->told->died_at = mu_clock_s();
    kill(run->told->pid[d->rank], SIGKILL);
}

struct model {
    struct muster_ddp *ddp;
    float weight[2 * SMALL + LARGE], *kept;
    struct muster_sampler *sampler;
};

/* The gradient is the rank + 1 everywhere: the mean tells over how many it went. */
static int one_step(struct muster *m, struct model *model, const struct run *run,
                    int step)
{
    static const size_t count[3] = { SMALL, LARGE, SMALL };
    static const int arrival[3] = { 2, 0, 1 }; /* not the order that is assumed */
    int size = muster_size(m), mine = muster_rank(m) + 1, rc;
    float *w = model->weight;

    if (run->before_step)
        run->before_step(m, run, step);
    maybe_die(run, step, BETWEEN_STEPS);
    maybe_give_up(m, run, step);
    if (run->c->slow > 0 && run->origin == 1 && step == run->c->death[0].step)
        mu_pause(run->c->slow);
    for (int k = 0; k < 3; k++) {
        int i = arrival[k];
        float *g = muster_ddp_grad(model->ddp, i);

        for (size_t e = 0; e < count[i]; e++)
            g[e] = (float)mine;
        rc = muster_ddp_grad_ready(model->ddp, i, NULL);
        if (rc != MUSTER_OK)
            return rc;
        if (k == 0)
            maybe_die(run, step, IN_BUCKET);
    }
    before_the_vote(m, run, step);
    rc = muster_ddp_sync(model->ddp, NULL);
    if (rc != MUSTER_OK)
        return rc;
    after_the_vote(run, step);
    maybe_die(run, step, AFTER_SYNC);
    for (int i = 0; i < 3; i++) {
        const float *g = muster_ddp_grad(model->ddp, i);

        for (size_t e = 0; e < count[i]; e++) {
            if (g[e] != (float)(size + 1) / 2) {
                fprintf(stderr, "rank %d of %d, step %d: the mean is %g\n", mine - 1,
                        size, step, (double)g[e]);
                _exit(97);
            }
            *w++ += g[e] * (float)(step + 1);
        }
    }
    return MUSTER_OK;
}

static int open_model(struct muster *m, struct model *model)
{
    struct muster_param p[3] = { { .name = "a", .count = SMALL, .dtype = MUSTER_F32 },
                                 { .name = "b", .count = LARGE, .dtype = MUSTER_F32 },
                                 { .name = "c", .count = SMALL, .dtype = MUSTER_F32 } };
    struct muster_sampler_options samples = { .samples = 1000, .batch = 4, .seed = 1 };
    int rc = muster_ddp_create(m, p, 3, NULL, &model->ddp);

    if (rc == MUSTER_OK)
        rc = muster_sampler_create(m, &samples, &model->sampler);
    model->kept = muster_alloc(m, LARGE * sizeof *model->kept);
    for (int i = 0; model->kept && i < LARGE; i++)
        model->kept[i] = (float)(i % 7);
    return rc;
}

/* Memory of muster_alloc is where it was, with what was in it, and shared again. */
static int check_kept(struct muster *m, struct model *model)
{
    float *kept = model->kept;
    int rc;

    for (int i = 0; i < LARGE; i++)
        RANK_CHECK(kept[i] == (float)(i % 7));
    rc = muster_allreduce(m, kept, LARGE, MUSTER_F32, MUSTER_SUM, NULL);
    for (int i = 0; rc == MUSTER_OK && i < LARGE; i++)
        RANK_CHECK(kept[i] == (float)(i % 7 * muster_size(m)));
    return rc;
}

/* The samples of a step; where they began, and where the next step's would. */
static void deal(struct muster *m, struct model *model, struct muster_sampler_state *at,
                 uint64_t *next)
{
    uint64_t index[4], n;

    muster_sampler_save(model->sampler, at);
    RANK_CHECK(muster_sampler_next(model->sampler, index, &n) == 1);
    RANK_CHECK(n == 4);
    *next = at->position + 4 * (uint64_t)muster_size(m);
}

static void die_now(void *arg)
{
    die(arg);
}

int elastic_train(struct muster *m, int rank, void *arg)
{
    struct run run = *(struct run *)arg;
    struct told *told = run.told;
    struct model *model = calloc(1, sizeof *model);
    struct muster_sampler_state at;
    uint64_t next;
    double sum = 0;
    int rc, shrinks = 0;

    run.origin = rank;
    told->pid[rank] = getpid();
    forked_thread(second_death, &run);
    if (open_model(m, model) != MUSTER_OK)
        return muster_report(m);
    for (int step = 0; step < STEPS;) {
        deal(m, model, &at, &next);
        RANK_CHECK(step == 0 || at.position == told->position[rank]);
        if (told->died_at > 0)
            mu_pause(0.008);
        rc = one_step(m, model, &run, step);
        if (rc == MUSTER_ESHRUNK) {
            RANK_CHECK(strstr(muster_error(m), "go on, and this rank is now rank "));
            RANK_OK(muster_sampler_restore(model->sampler, &at));
            shrinks++;
            continue;
        }
        if (rc != MUSTER_OK)
            return muster_report(m);
        if (shrinks > 0 && told->good_at[rank] == 0)
            told->good_at[rank] = mu_clock_s();
        told->position[rank] = next;
        told->steps[rank] = ++step;
    }
    rc = check_kept(m, model);
    if (rc == MUSTER_ESHRUNK) /* died behind the last sync */
        shrinks++;
    if (dies_behind_another(&run))
        mu_pause(10); /* on a busy machine its time may not be there yet */
    if (dies_in_finalize(&run))
        mu_pause(0.3); /* the others have the all-reduce behind them too */
    maybe_die(&run, STEPS, IN_FINALIZE);
    if (has_come(&run, STEPS, ALL_IN_FINALIZE))
        forked_before_close(m, die_now, &run);
    if (has_come(&run, STEPS, WITH_THE_RESULT))
        forked_with_result(m, die_now, &run);
    for (size_t i = 0; i < sizeof model->weight / sizeof model->weight[0]; i++)
        sum += model->weight[i];
    told->sum[rank] = sum;
    told->shrinks[rank] = shrinks;
    told->size[rank] = muster_size(m);
    muster_free(m, model->kept);
    muster_sampler_destroy(model->sampler);
    muster_ddp_destroy(model->ddp);
    free(model);
    rc = muster_finalize(m);
    return rc == MUSTER_OK ? 0 : muster_report(NULL);
}
