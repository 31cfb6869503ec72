/* SPDX-License-Identifier: BSD-3-Clause */
/* test_grow.c - processes join a world that has begun: spare ones, and one that returns
 * after a death
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "tests/unit/forked.h"
#include "tests/unit/ways.h"

#define STEPS 24
#define MEET 8 /* the step at whose end the ranks wait for the newcomers */
#define DEATH 4
#define SMALL 33
#define LARGE 70001
#define PROCESSES 6

struct grow_case {
    const char *name;
    int ranks, newcomers;
    unsigned dies;         /* bit r: process r is killed in step DEATH */
    int victim;            /* killed while ranks join; -1: none */
    double after;          /* seconds after rank 0 has begun to wait for newcomers */
    const char *transport; /* MUSTER_TRANSPORT; NULL: not set */
    const char *token;     /* MUSTER_TOKEN; NULL: AF_UNIX alone */
};

/* What the processes report to the test and to each other. */
struct report {
    const struct grow_case *c;
    _Atomic double died_at, met_at; /* the first death; rank 0 waits for newcomers */
    double sum[PROCESSES];
    int steps[PROCESSES], size[PROCESSES], rank[PROCESSES];
    uint64_t position[PROCESSES];
    bool joined[PROCESSES]; /* it began later, and is a rank now */
};

/* One process, and what rank 0 broadcasts to newcomers. */
struct training {
    struct report *report;
    int process; /* before it joins: RANK */
    struct muster_ddp *ddp;
    struct muster_sampler *sampler;
    float weight[SMALL + LARGE], *kept;
    struct muster *group; /* of the first ranks; NULL: none */
    struct {
        int32_t step;
        struct muster_sampler_state at;
    } shared;
};

static void *kill_while_ranks_join(void *arg)
{
    const struct report *report = arg;

    while (report->met_at == 0)
        usleep(50);
    usleep((useconds_t)(report->c->after * 1e6));
    kill(getpid(), SIGKILL);
    return NULL;
}

/* One that returns after a death starts after it. */
static void before_start(int process, void *arg)
{
    struct report *report = arg;
    const struct grow_case *c = report->c;
    pthread_t thread;

    while (process >= c->ranks && c->dies && report->died_at == 0)
        usleep(1000);
    if (process == c->victim &&
        pthread_create(&thread, NULL, kill_while_ranks_join, arg) != 0)
        _exit(96);
}

static int set_up(struct muster *m, struct training *t)
{
    struct muster_param p[2] = {
        { .name = "a", .count = SMALL, .dtype = MUSTER_F32, .data = t->weight },
        { .name = "b", .count = LARGE, .dtype = MUSTER_F32, .data = t->weight + SMALL }
    };
    struct muster_sampler_options samples = { .samples = 5000, .batch = 4, .seed = 1 };
    int rc;

    muster_ddp_destroy(t->ddp);
    muster_sampler_destroy(t->sampler);
    t->ddp = NULL;
    t->sampler = NULL;
    rc = muster_ddp_create(m, p, 2, NULL, &t->ddp);
    if (rc == MUSTER_OK)
        rc = muster_ddp_broadcast(t->ddp, 0);
    if (rc == MUSTER_OK)
        rc = muster_broadcast(m, &t->shared, sizeof t->shared, MUSTER_BYTE, 0, NULL);
    if (rc == MUSTER_OK)
        rc = muster_sampler_create(m, &samples, &t->sampler);
    if (rc == MUSTER_OK && t->shared.at.samples > 0)
        rc = muster_sampler_restore(t->sampler, &t->shared.at);
    return rc;
}

/* The mean of the gradients shows over how many ranks it was taken. */
static int one_step(struct muster *m, struct training *t)
{
    static const size_t count[2] = { SMALL, LARGE };
    int size = muster_size(m), mine = muster_rank(m) + 1, rc;
    uint64_t index[4], n;
    float *w = t->weight;

    muster_sampler_save(t->sampler, &t->shared.at);
    RANK_CHECK(muster_sampler_next(t->sampler, index, &n) == 1 && n == 4);
    for (int i = 1; i >= 0; i--) {
        float *g = muster_ddp_grad(t->ddp, i);

        for (size_t e = 0; e < count[i]; e++)
            g[e] = (float)mine;
        rc = muster_ddp_grad_ready(t->ddp, i, NULL);
        if (rc != MUSTER_OK)
            return rc;
    }
    rc = muster_ddp_sync(t->ddp, NULL);
    if (rc != MUSTER_OK)
        return rc;
    for (int i = 0; i < 2; i++)
        for (size_t e = 0; e < count[i]; e++) {
            RANK_CHECK(muster_ddp_grad(t->ddp, i) != NULL);
            RANK_CHECK(((float *)muster_ddp_grad(t->ddp, i))[e] ==
                       (float)(size + 1) / 2);
            *w++ += (float)(size + 1) / 2 * (float)(t->shared.step + 1);
        }
    t->shared.step++;
    muster_sampler_save(t->sampler, &t->shared.at);
    return MUSTER_OK;
}

static bool is_first(const struct training *t)
{
    return t->process < t->report->c->ranks;
}

static void maybe_die(const struct training *t)
{
    if (!(t->report->c->dies >> t->process & 1) || t->shared.step != DEATH)
        return;
    t->report->died_at = mu_clock_s();
    kill(getpid(), SIGKILL);
}

/* Where a process dies meanwhile, all newcomers wait before the ranks ask for them. */
static void meet(struct muster *m, const struct training *t)
{
    if (muster_rank(m) != 0 || t->report->met_at > 0)
        return;
    if (t->report->c->victim >= 0)
        usleep(150000);
    t->report->met_at = mu_clock_s();
}

/* Have all newcomers that live joined? Rank 0 decides for all. */
static int all_here(struct muster *m, const struct training *t, int32_t *here)
{
    const struct grow_case *c = t->report->c;

    *here = 1;
    for (int p = c->ranks; p < c->ranks + c->newcomers; p++)
        if (p != c->victim && !t->report->joined[p])
            *here = 0;
    return muster_broadcast(m, here, sizeof *here, MUSTER_BYTE, 0, NULL);
}

/* At the end of each step; from MEET on the ranks wait until all newcomers are here. */
static int grow(struct muster *m, struct training *t, int *fresh)
{
    const struct grow_case *c = t->report->c;
    int before = muster_size(m), joined = 0, rc;
    int32_t here = 1;

    *fresh = 0;
    if (t->shared.step < MEET && c->victim >= 0)
        return MUSTER_OK;
    do {
        if (!here)
            usleep(500);
        if (t->shared.step >= MEET)
            meet(m, t);
        rc = muster_grow(m, &joined);
        if (rc == MUSTER_OK && joined == 0 && t->shared.step >= MEET)
            rc = all_here(m, t, &here);
    } while (rc == MUSTER_OK && joined == 0 && !here);
    if (rc != MUSTER_OK)
        return rc;
    RANK_CHECK(joined == 0 || c->victim >= 0 || muster_size(m) == before + joined);
    if (joined > 0) {
        RANK_CHECK(muster_ddp_grad_ready(t->ddp, 0, NULL) == MUSTER_EUSAGE);
        RANK_CHECK(strstr(muster_error(m), "destroy it, and create it anew"));
    }
    *fresh = joined > 0;
    return MUSTER_OK;
}

/* Memory of muster_alloc has its contents, also where newcomers share none of it. */
static int check_kept(struct muster *m, struct training *t)
{
    int rc;

    for (int i = 0; i < LARGE; i++)
        RANK_CHECK(t->kept[i] == (float)(i % 5));
    rc = muster_allreduce(m, t->kept, LARGE, MUSTER_F32, MUSTER_SUM, NULL);
    for (int i = 0; rc == MUSTER_OK && i < LARGE; i++)
        RANK_CHECK(t->kept[i] == (float)(i % 5 * muster_size(m)));
    return rc;
}

/* The group of the first ranks has nothing to do with those that join. */
static int check_group(struct muster *m, struct training *t)
{
    int32_t one = 1;

    if (!t->group)
        return MUSTER_OK;
    RANK_OK(muster_allreduce(t->group, &one, 1, MUSTER_I32, MUSTER_SUM, NULL));
    RANK_CHECK(one == t->report->c->ranks);
    return muster_finalize(t->group);
}

/* Newcomers have divided the world less often than the others. */
static int check_split(struct muster *m)
{
    struct muster *all;
    int32_t one = 1;

    RANK_OK(muster_split(m, 0, 0, "all", &all));
    RANK_OK(muster_allreduce(all, &one, 1, MUSTER_I32, MUSTER_SUM, NULL));
    RANK_CHECK(one == muster_size(m));
    return muster_finalize(all);
}

/* The process that is to die does not end before. */
static void await_death(struct muster *m, const struct training *t)
{
    if (t->report->c->victim == t->process)
        mu_pause(60);
    while (muster_barrier(m) == MUSTER_ESHRUNK)
        ;
}

static int end(struct muster *m, struct training *t)
{
    struct report *report = t->report;
    int p = t->process, rc;

    await_death(m, t);
    rc = check_kept(m, t);
    if (rc == MUSTER_OK)
        rc = check_split(m);
    if (rc == MUSTER_OK)
        rc = check_group(m, t);
    if (rc != MUSTER_OK)
        return muster_report(m);
    for (size_t i = 0; i < SMALL + LARGE; i++)
        report->sum[p] += t->weight[i];
    report->steps[p] = t->shared.step;
    report->size[p] = muster_size(m);
    report->rank[p] = muster_rank(m);
    report->position[p] = t->shared.at.position;
    muster_free(m, t->kept);
    muster_sampler_destroy(t->sampler);
    muster_ddp_destroy(t->ddp);
    free(t);
    rc = muster_finalize(m);
    return rc == MUSTER_OK ? 0 : muster_report(NULL);
}

static int train(struct muster *m, void *arg)
{
    struct training *t = calloc(1, sizeof *t);
    int fresh = 1;

    t->report = arg;
    t->process = ways_rank();
    t->report->joined[t->process] = !is_first(t);
    t->kept = muster_alloc(m, LARGE * sizeof *t->kept);
    for (int i = 0; i < LARGE; i++)
        t->kept[i] = (float)(i % 5);
    for (size_t i = 0; i < SMALL + LARGE; i++)
        t->weight[i] = is_first(t) ? 1 : -1;
    if (is_first(t) && !t->report->c->dies && t->report->c->victim < 0)
        RANK_OK(muster_split(m, 0, 0, "the first", &t->group));
    while (t->shared.step < STEPS) {
        int rc = fresh ? set_up(m, t) : MUSTER_OK;

        maybe_die(t);
        if (rc == MUSTER_OK)
            rc = one_step(m, t);
        if (rc == MUSTER_OK)
            rc = grow(m, t, &fresh);
        else if (rc == MUSTER_ESHRUNK && t->sampler && t->shared.at.samples > 0)
            RANK_OK(muster_sampler_restore(t->sampler, &t->shared.at));
        if (rc != MUSTER_OK && rc != MUSTER_ESHRUNK)
            return muster_report(m);
    }
    return end(m, t);
}

/* ---- Cases ---------------------------------------------------------------------- */

static const struct grow_case cases[] = {
    { "one process joins two ranks", 2, 1, 0, -1, 0, NULL, NULL },
    { "three processes join three ranks", 3, 3, 0, -1, 0, NULL, NULL },
    { "three processes join, over TCP", 3, 3, 0, -1, 0, "tcp", WAYS_TOKEN },
    { "rank 2 is killed and returns", 3, 1, 1u << 2, -1, 0, NULL, NULL },
    { "rank 2 is killed and returns, over TCP", 3, 1, 1u << 2, -1, 0, "tcp", NULL },
    { "rank 0 is killed and returns", 3, 1, 1u << 0, -1, 0, NULL, WAYS_TOKEN },
    { "ranks 0 and 1 are killed and return to one", 3, 2, 3, -1, 0, NULL, NULL },
};

static bool dies(const struct grow_case *c, int process)
{
    return c->dies >> process & 1 || process == c->victim;
}

/* Each process that lives has the weights, the size and the samples of the others. */
static void check(const struct grow_case *c, const struct report *report,
                  const struct ways_result *r)
{
    int first = -1;

    for (int p = 0; p < c->ranks + c->newcomers; p++) {
        if (r->status[p] != (dies(c, p) ? 128 + SIGKILL : 0))
            fail_msg("%s: process %d ended with %d\n%s", c->name, p, r->status[p],
                     r->text);
        if (dies(c, p))
            continue;
        first = first < 0 ? p : first;
        if (report->steps[p] != STEPS || report->sum[p] != report->sum[first] ||
            report->position[p] != report->position[first] ||
            report->size[p] != report->size[first])
            fail_msg("%s: process %d: %d steps, weights %g, sample %d, %d ranks\n%s",
                     c->name, p, report->steps[p], report->sum[p],
                     (int)report->position[p], report->size[p], r->text);
    }
}

static void run_case(const struct grow_case *c)
{
    struct report *report = forked_shared(sizeof *report);
    char path[256], size[8];
    struct ways w = { .size = c->ranks + c->newcomers, .before = before_start };
    struct ways_result r;
    struct stat st;
    int n = 0;

    ways_join_file(path, sizeof path);
    snprintf(size, sizeof size, "%d", c->ranks);
    report->c = c;
    w.set[n].rank = -1, w.set[n].name = "WORLD_SIZE", w.set[n++].value = size;
    w.set[n].rank = -1, w.set[n].name = "MUSTER_ELASTIC", w.set[n++].value = "1";
    w.set[n].rank = -1, w.set[n].name = "MUSTER_GROW", w.set[n++].value = path;
    if (c->transport)
        w.set[n].rank = -1, w.set[n].name = "MUSTER_TRANSPORT",
        w.set[n++].value = c->transport;
    if (c->token)
        w.set[n].rank = -1, w.set[n].name = "MUSTER_TOKEN", w.set[n++].value = c->token;
    for (int p = c->ranks; p < w.size; p++)
        w.set[n].rank = p, w.set[n].name = "MUSTER_JOIN", w.set[n++].value = path;
    ways_run(&w, ways_port(), train, report, &r);
    print_message("# %.2f s: %s\n", r.seconds, c->name);
    check(c, report, &r);
    if (c->victim < 0) {
        assert_true(strstr(r.text, c->newcomers == 1 ? "1 rank joined; " : "joined; "));
        assert_int_equal(report->size[w.size - 1],
                         w.size - __builtin_popcount(c->dies));
    }
    assert_int_not_equal(stat(path, &st), 0); /* removed at the end */
    free(r.text);
}

static void processes_join_with_equal_weights(void **state)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        run_case(&cases[i]);
}

/* A rank, rank 0 or a newcomer is killed before, while and after ranks join. */
static void a_death_while_ranks_join_is_survived(void **state)
{
    static const double after[] = { 0,     0.0003, 0.001, 0.002, 0.003, 0.005,
                                    0.008, 0.012,  0.02,  0.03,  0.05 };

    for (size_t i = 0; i < 2 * sizeof after / sizeof after[0]; i++) {
        struct grow_case c = { .ranks = 3,
                               .victim = (int)(i % 4),
                               .after = after[i % (sizeof after / sizeof after[0])] };
        char name[96];

        c.newcomers = c.victim == 3 ? 2 : 1;
        c.transport = i / 11 ? "tcp" : NULL;
        snprintf(name, sizeof name, "process %d is killed %.1f ms after the ranks meet",
                 c.victim, c.after * 1e3);
        c.name = name;
        run_case(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processes_join_with_equal_weights),
        cmocka_unit_test(a_death_while_ranks_join_is_survived),
    };

    return cmocka_run_group_tests_name("grow", tests, NULL, NULL);
}
