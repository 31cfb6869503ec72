/* SPDX-License-Identifier: BSD-3-Clause */
/* test_elastic.c - ranks die, the others go on with fewer, with equal weights */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "tests/unit/forked.h"

#define STEPS 12
#define SMALL 64
#define LARGE 100000 /* beyond what travels in a desk: the zero-copy path */

enum phase {
    NEVER,
    BETWEEN_STEPS,
    IN_BUCKET,      /* its first bucket has started, the others wait for the second */
    AFTER_SYNC,     /* at once behind sync: some may not have come out of it yet */
    WITH_THE_VOTES, /* stopped when it has handed the votes of its node on, and killed
                       once others had their answer: what comes from above gets no
                       further */
    IN_FINALIZE,
    BEHIND_ANOTHER, /* `after` seconds behind the first death: in the agreement */
};

struct death {
    int rank, step;
    enum phase phase;
    double after;
};

struct elastic_case {
    const char *name;
    struct forked_world world;
    struct death death[3];
    int left;           /* ranks at the end */
    int status;         /* of the survivors */
    const char *expect; /* on standard error */
    double slow; /* seconds that rank 1 computes in the step of the first death */
};

/* What the ranks tell the test, and each other. */
struct told {
    pid_t pid[RANKS_MAX];
    double died_at;            /* the first */
    double good_at[RANKS_MAX]; /* the first good step after MUSTER_ESHRUNK */
    double sum[RANKS_MAX];     /* of the weights at the end */
    int steps[RANKS_MAX], shrinks[RANKS_MAX], size[RANKS_MAX];
    uint64_t position[RANKS_MAX]; /* of the sampler */
};

struct run {
    const struct elastic_case *c;
    struct told *told;
    int origin;
};

static void pause_for(double seconds)
{
    struct timespec t = { (time_t)seconds,
                          (long)((seconds - (double)(time_t)seconds) * 1e9) };

    while (nanosleep(&t, &t) < 0) {
    }
}

static void die(const struct run *run)
{
    if (run->told->died_at == 0)
        run->told->died_at = forked_now();
    kill(getpid(), SIGKILL);
    pause_for(10);
}

static void maybe_die(const struct run *run, int step, enum phase phase)
{
    for (int i = 0; i < 3; i++) {
        const struct death *d = &run->c->death[i];

        if (d->phase == phase && d->rank == run->origin && d->step == step)
            die(run);
    }
}

static bool dies_in_finalize(const struct run *run)
{
    return run->c->death[0].phase == IN_FINALIZE &&
           run->c->death[0].rank == run->origin;
}

/* Dies at its time, wherever the program is. */
static void *second_death(void *arg)
{
    const struct run *run = arg;
    const struct death *mine = NULL;

    for (int i = 0; i < 3; i++)
        if (run->c->death[i].phase == BEHIND_ANOTHER &&
            run->c->death[i].rank == run->origin)
            mine = &run->c->death[i];
    while (mine && ((volatile struct told *)run->told)->died_at == 0)
        pause_for(0.00005);
    if (mine) {
        pause_for(mine->after);
        die(run);
    }
    return NULL;
}

static void in_a_thread(void *(*work)(void *), void *arg)
{
    pthread_t thread;

    if (pthread_create(&thread, NULL, work, arg) != 0 || pthread_detach(thread) != 0)
        _exit(96);
}

static void *stop_soon(void *arg)
{
    pause_for(0.2);
    kill(getpid(), SIGSTOP);
    return NULL;
}

/* Rank 1 votes late; by then the victim stands still. */
static void before_the_vote(const struct run *run, int step)
{
    const struct death *d = &run->c->death[0];

    if (d->phase != WITH_THE_VOTES || d->step != step)
        return;
    if (run->origin == d->rank)
        in_a_thread(stop_soon, NULL);
    if (run->origin == 1)
        pause_for(0.5);
}

static void after_the_vote(const struct run *run, int step)
{
    const struct death *d = &run->c->death[0];

    if (d->phase != WITH_THE_VOTES || d->step != step || run->origin != 0)
        return;
    run->told->died_at = forked_now();
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
    int size = muster_size(m), mine = muster_rank(m) + 1, rc;
    float *w = model->weight;

    maybe_die(run, step, BETWEEN_STEPS);
    if (run->c->slow > 0 && run->origin == 1 && step == run->c->death[0].step)
        pause_for(run->c->slow);
    for (int i = 2; i >= 0; i--) {
        float *g = muster_ddp_grad(model->ddp, i);

        for (size_t e = 0; e < count[i]; e++)
            g[e] = (float)mine;
        rc = muster_ddp_grad_ready(model->ddp, i, NULL);
        if (rc != MUSTER_OK)
            return rc;
        if (i == 2)
            maybe_die(run, step, IN_BUCKET);
    }
    before_the_vote(run, step);
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
    struct muster_param p[3] = { { "a", SMALL, MUSTER_F32, NULL, NULL, 0 },
                                 { "b", LARGE, MUSTER_F32, NULL, NULL, 0 },
                                 { "c", SMALL, MUSTER_F32, NULL, NULL, 0 } };
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

static int body(struct muster *m, int rank, void *arg)
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
    in_a_thread(second_death, &run);
    if (open_model(m, model) != MUSTER_OK)
        return muster_report(m);
    for (int step = 0; step < STEPS;) {
        deal(m, model, &at, &next);
        RANK_CHECK(step == 0 || at.position == told->position[rank]);
        if (told->died_at > 0)
            pause_for(0.008);
        rc = one_step(m, model, &run, step);
        if (rc == MUSTER_ESHRUNK) {
            RANK_CHECK(strstr(muster_error(m), "go on, this is rank "));
            RANK_OK(muster_sampler_restore(model->sampler, &at));
            shrinks++;
            continue;
        }
        if (rc != MUSTER_OK)
            return muster_report(m);
        if (shrinks > 0 && told->good_at[rank] == 0)
            told->good_at[rank] = forked_now();
        told->position[rank] = next;
        told->steps[rank] = ++step;
    }
    rc = check_kept(m, model);
    if (rc == MUSTER_ESHRUNK) /* died behind the last sync */
        shrinks++;
    if (dies_in_finalize(&run))
        pause_for(0.3); /* the others have the all-reduce behind them too */
    maybe_die(&run, STEPS, IN_FINALIZE);
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

#define SHM                                                                            \
    {                                                                                  \
        .size = 4, .elastic = 1, .first_bucket = 256, .bucket_cap = 256                \
    }
#define TCP                                                                            \
    {                                                                                  \
        .size = 4, .elastic = 1, .force_tcp = true, .first_bucket = 256,               \
        .bucket_cap = 256                                                              \
    }
#define NODES                                                                          \
    {                                                                                  \
        .size = 4, .nodes = 2, .elastic = 1, .first_bucket = 256, .bucket_cap = 256    \
    }

static const struct elastic_case cases[] = {
    { "shared memory: one of 4 in a bucket",
      SHM,
      { { 2, 5, IN_BUCKET, 0 } },
      3,
      0,
      "muster: rank 2 (node a, pid ",
      0 },
    { "TCP: one of 4 in a bucket",
      TCP,
      { { 2, 5, IN_BUCKET, 0 } },
      3,
      0,
      "died; 3 of 4 ranks go on",
      0 },
    { "two nodes: one of 4 in a bucket",
      NODES,
      { { 3, 5, IN_BUCKET, 0 } },
      3,
      0,
      "died; 3 of 4 ranks go on",
      0 },
    { "the first rank of another node",
      NODES,
      { { 2, 5, BETWEEN_STEPS, 0 } },
      3,
      0,
      "muster: rank 2 (node b, pid ",
      0 },
    { "shared memory: rank 0",
      SHM,
      { { 0, 5, IN_BUCKET, 0 } },
      3,
      0,
      "muster: rank 0 (node a, pid ",
      0 },
    { "TCP: rank 0", TCP, { { 0, 5, IN_BUCKET, 0 } }, 3, 0, "muster: rank 0 (", 0 },
    { "two nodes: rank 0",
      NODES,
      { { 0, 5, BETWEEN_STEPS, 0 } },
      3,
      0,
      "muster: rank 0 (",
      0 },
    { "behind a sync", SHM, { { 1, 5, AFTER_SYNC, 0 } }, 3, 0, "muster: rank 1 (", 0 },
    { "rank 0 behind a sync",
      SHM,
      { { 0, 5, AFTER_SYNC, 0 } },
      3,
      0,
      "muster: rank 0 (",
      0 },
    { "some have the end of a sync and others do not",
      NODES,
      { { 2, 5, WITH_THE_VOTES, 0 } },
      3,
      0,
      "died; 3 of 4 ranks go on",
      0 },
    { "two deaths, one after the other",
      SHM,
      { { 2, 3, IN_BUCKET, 0 }, { 0, 7, BETWEEN_STEPS, 0 } },
      2,
      0,
      "died; 2 of 3 ranks go on",
      0 },
    { "two deaths at once",
      SHM,
      { { 2, 5, BETWEEN_STEPS, 0 }, { 3, 5, BETWEEN_STEPS, 0 } },
      2,
      0,
      "go on",
      0 },
    { "a whole node",
      NODES,
      { { 2, 5, BETWEEN_STEPS, 0 }, { 3, 5, BETWEEN_STEPS, 0 } },
      2,
      0,
      "go on",
      0 },
    { "the node of rank 0",
      NODES,
      { { 0, 5, BETWEEN_STEPS, 0 }, { 1, 5, BETWEEN_STEPS, 0 } },
      2,
      0,
      "go on",
      0 },
    { "down to one rank",
      SHM,
      { { 2, 3, IN_BUCKET, 0 }, { 0, 5, BETWEEN_STEPS, 0 }, { 1, 8, IN_BUCKET, 0 } },
      1,
      0,
      "died; 1 of 2 ranks go on",
      0 },
    { "one of two",
      { .size = 2, .elastic = 1 },
      { { 1, 5, IN_BUCKET, 0 } },
      1,
      0,
      "died; 1 of 2 ranks go on",
      0 },
    { "a survivor that computes is waited for",
      SHM,
      { { 2, 5, IN_BUCKET, 0 } },
      3,
      0,
      "died; 3 of 4 ranks go on",
      0.7 },
    { "on the way to finalize",
      SHM,
      { { 3, STEPS, IN_FINALIZE, 0 } },
      3,
      0,
      "died; 3 of 4 ranks go on",
      0 },
    { "below the least number of ranks",
      { .size = 4, .elastic = 4 },
      { { 2, 5, IN_BUCKET, 0 } },
      0,
      MUSTER_EPEER,
      "died; 3 ranks are left, and MUSTER_ELASTIC asks for at least 4",
      0 },
    { "before the first sync the job ends",
      { .size = 4, .elastic = 1 },
      { { 2, 0, BETWEEN_STEPS, 0 } },
      0,
      MUSTER_EPEER,
      "muster: rank 2 (node a",
      0 },
    { "without elastic the job ends",
      { .size = 4 },
      { { 2, 5, IN_BUCKET, 0 } },
      0,
      MUSTER_EPEER,
      "muster: rank 2 (node a",
      0 },
};

static bool dies(const struct elastic_case *c, int rank)
{
    for (int i = 0; i < 3; i++)
        if (c->death[i].phase != NEVER && c->death[i].rank == rank)
            return true;
    return false;
}

static double check(const struct elastic_case *c, const struct told *told,
                    const struct forked_result *r)
{
    double sum = 0, last = 0;
    int spoke = 0, first = -1;

    for (int k = 0; k < c->world.size; k++) {
        if (dies(c, k)) {
            if (r->status[k] != 128 + SIGKILL)
                fail_msg("%s: rank %d did not die: %d\n%s", c->name, k, r->status[k],
                         r->text);
            continue;
        }
        spoke += r->status[k] == c->status;
        /* Who did not speak is ended by the one that did. */
        if (r->status[k] != c->status &&
            !(c->status != 0 && r->status[k] == 128 + SIGKILL))
            fail_msg("%s: rank %d: status %d\n%s", c->name, k, r->status[k], r->text);
        if (c->status != 0)
            continue;
        if (first < 0) {
            first = k;
            sum = told->sum[k];
        }
        if (told->steps[k] != STEPS || told->sum[k] != sum)
            fail_msg("%s: rank %d: %d steps, weights %g, not %d and %g\n%s", c->name, k,
                     told->steps[k], told->sum[k], STEPS, sum, r->text);
        if (c->left > 0 && told->size[k] > c->left + (c->death[0].phase == IN_FINALIZE))
            fail_msg("%s: rank %d is one of %d at the end, not of %d\n%s", c->name, k,
                     told->size[k], c->left, r->text);
        if (told->position[k] != told->position[first])
            fail_msg("%s: rank %d is at sample %d, rank %d at %d\n%s", c->name, k,
                     (int)told->position[k], first, (int)told->position[first],
                     r->text);
        if (told->good_at[k] > last)
            last = told->good_at[k];
    }
    if (spoke == 0 || !strstr(r->text, c->expect))
        fail_msg("%s: '%s' is not in\n%s", c->name, c->expect, r->text);
    return last > 0 ? last - told->died_at : 0;
}

static double run_case(const struct elastic_case *c)
{
    struct told *told = forked_shared(sizeof *told);
    struct run run = { c, told, 0 };
    struct forked_result r;
    double took;

    forked_run(&c->world, body, &run, 40, &r);
    took = check(c, told, &r);
    print_message("# %.3f s: %s: %.*s\n", took, c->name, (int)strcspn(r.text, "\n"),
                  r.text);
    forked_clear(&r);
    return took;
}

static void survivors_go_on_with_equal_weights(void **state)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        run_case(&cases[i]);
}

/* Another rank dies 0 .. 60 ms behind the first: in the agreement, while the survivors
 * connect, or behind that. Whoever it is.
 */
static void a_second_death_in_the_agreement_is_survived(void **state)
{
    static const double after[] = { 0,     0.0003, 0.001, 0.002, 0.003,
                                    0.005, 0.008,  0.012, 0.02,  0.03 };
    static const struct forked_world worlds[] = { SHM, TCP, NODES };

    for (size_t w = 0; w < sizeof worlds / sizeof worlds[0]; w++)
        for (size_t i = 0; i < sizeof after / sizeof after[0]; i++) {
            struct elastic_case c = { .world = worlds[w], .expect = "go on" };
            char name[96];

            c.death[0] = (struct death){ 2, 5, IN_BUCKET, 0 };
            c.death[1] = (struct death){ i % 2 ? 3 : 0, 0, BEHIND_ANOTHER, after[i] };
            snprintf(name, sizeof name, "world %zu: rank %d %.1f ms behind rank 2", w,
                     c.death[1].rank, after[i] * 1e3);
            c.name = name;
            run_case(&c);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(survivors_go_on_with_equal_weights),
        cmocka_unit_test(a_second_death_in_the_agreement_is_survived),
    };

    return cmocka_run_group_tests_name("elastic", tests, NULL, NULL);
}
