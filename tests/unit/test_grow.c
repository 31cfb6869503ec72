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
#include "tests/unit/patience.h"
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
    double died_at, met_at; /* the first death; rank 0 waits for newcomers */
    double sum[PROCESSES];
    int steps[PROCESSES], size[PROCESSES], rank[PROCESSES];
    uint64_t position[PROCESSES];
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
        int32_t step, joined;
        struct muster_sampler_state at;
    } shared;
};

static int process_number(void)
{
    return atoi(getenv("RANK"));
}

static void *kill_while_ranks_join(void *arg)
{
    const volatile struct report *report = arg;

    while (report->met_at == 0)
        usleep(50);
    usleep((useconds_t)(report->c->after * 1e6));
    kill(getpid(), SIGKILL);
    return NULL;
}

/* One that returns after a death starts after it. */
static void before_start(int process, void *arg)
{
    volatile struct report *report = arg;
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

/* At the end of each step; from MEET on the ranks wait until all newcomers are here. */
static int grow(struct muster *m, struct training *t, int *fresh)
{
    const struct grow_case *c = t->report->c;
    int before = muster_size(m), joined, rc;
    int wanted = c->newcomers - (c->victim >= c->ranks);

    *fresh = 0;
    if (t->shared.step < MEET && c->victim >= 0)
        return MUSTER_OK;
    do {
        if (t->shared.step >= MEET)
            meet(m, t);
        rc = muster_grow(m, &joined);
        if (rc != MUSTER_OK && rc != MUSTER_ESHRUNK)
            return rc;
        if (joined == 0 && t->shared.step >= MEET)
            usleep(500);
    } while (joined == 0 && t->shared.step >= MEET && t->shared.joined < wanted);
    RANK_CHECK(joined == 0 || c->victim >= 0 || muster_size(m) == before + joined);
    if (joined > 0) {
        RANK_CHECK(muster_ddp_grad_ready(t->ddp, 0, NULL) == MUSTER_EUSAGE);
        RANK_CHECK(strstr(muster_error(m), "destroy it, and create it anew"));
    }
    t->shared.joined += joined;
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

static int end(struct muster *m, struct training *t)
{
    struct report *report = t->report;
    int p = t->process, rc = check_kept(m, t);

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
    t->process = process_number();
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

static void file_path(char *path, size_t len)
{
    snprintf(path, len, "%s/muster-grow-%d",
             getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp", (int)getpid());
}

static void run_case(const struct grow_case *c)
{
    struct report *report = forked_shared(sizeof *report);
    char path[256], size[8];
    struct ways w = { .size = c->ranks + c->newcomers, .before = before_start };
    struct ways_result r;
    struct stat st;
    int n = 0;

    file_path(path, sizeof path);
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

/* ---- What is refused ------------------------------------------------------------ */

static int ask_for_a_while(struct muster *m, void *arg)
{
    int joined;

    RANK_CHECK(process_number() < 2);
    for (int i = 0; i < 400; i++) {
        RANK_OK(muster_grow(m, &joined));
        RANK_CHECK(joined == 0);
        usleep(1000);
    }
    return muster_finalize(m);
}

/* A world of two with MUSTER_ELASTIC=1, and a third process that joins by path. */
static void run_with_newcomer(const char *path, const char *its_elastic,
                              double init_timeout,
                              int (*body)(struct muster *m, void *arg),
                              struct ways_result *r)
{
    ways_run(&(struct ways){ .size = 3,
                             .set = { { -1, "WORLD_SIZE", "2" },
                                      { -1, "MUSTER_ELASTIC", "1" },
                                      { -1, "MUSTER_GROW", path },
                                      { 2, "MUSTER_ELASTIC", its_elastic },
                                      { 2, "MUSTER_JOIN", path } },
                             .init_timeout = init_timeout },
             ways_port(), body, NULL, r);
}

static void a_process_of_other_settings_does_not_join(void **state)
{
    struct ways_result r;
    char path[256];

    file_path(path, sizeof path);
    run_with_newcomer(path, "2", 0, ask_for_a_while, &r);
    if (r.status[0] || r.status[1] || r.status[2] != MUSTER_ECONTRACT ||
        !ways_line(r.text, "muster-grow-", "elastic 1', but this process 'libmuster") ||
        !ways_line(r.text, "elastic 1", "elastic 2': both must be equal"))
        fail_msg("%d %d %d\n%s", r.status[0], r.status[1], r.status[2], r.text);
    free(r.text);
}

static int must_not_begin(struct muster *m, void *arg)
{
    return 90;
}

static void a_file_of_no_use_is_named(void **state)
{
    static const struct {
        const char *name, *content;
        mode_t mode;
        const char *expect;
    } rows[] = {
        { "no file", NULL, 0600, "did not exist within 0.3 s" },
        { "another file", "hello", 0600, "is not a file that MUSTER_GROW of this" },
        { "a file that others read", "hello", 0644, "has mode 0644: others may read" },
    };
    char path[256];

    file_path(path, sizeof path);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct ways_result r;

        if (rows[i].content) {
            FILE *f = fopen(path, "w");

            assert_non_null(f);
            fputs(rows[i].content, f);
            fclose(f);
            assert_int_equal(chmod(path, rows[i].mode), 0);
        }
        ways_run(&(struct ways){ .size = 1,
                                 .set = { { -1, "MUSTER_ELASTIC", "1" },
                                          { -1, "MUSTER_JOIN", path } },
                                 .init_timeout = 0.3 },
                 ways_port(), must_not_begin, NULL, &r);
        if (r.status[0] != MUSTER_ERENDEZVOUS ||
            !ways_line(r.text, "MUSTER_JOIN=", rows[i].expect))
            fail_msg("%s: %d\n%s", rows[i].name, r.status[0], r.text);
        free(r.text);
    }
    unlink(path);
}

static int leave_without_finalize(struct muster *m, void *arg)
{
    int status = process_number() < 2 ? 0 : 90;

    muster_barrier(m);
    _exit(status);
}

static void a_job_that_has_ended_is_named(void **state)
{
    struct ways_result r;
    char path[256];

    file_path(path, sizeof path);
    run_with_newcomer(path, "1", WAYS_SHORT * PATIENCE, leave_without_finalize, &r);
    if (r.status[2] != MUSTER_ERENDEZVOUS ||
        !(ways_line(r.text, "rank 0 of job ", "the job may have ended") ||
          ways_line(r.text, "MUSTER_JOIN=", "did not call muster_grow")))
        fail_msg("%d\n%s", r.status[2], r.text);
    unlink(path);
    free(r.text);
}

static int calls_that_are_refused(struct muster *m, void *arg)
{
    struct muster_handle *h = NULL;
    struct muster *group;
    int32_t one = 1;
    int joined = 7;

    RANK_CHECK(muster_grow(m, NULL) == MUSTER_EUSAGE);
    if (muster_size(m) == 1) {
        RANK_CHECK(muster_grow(m, &joined) == MUSTER_EUSAGE);
        RANK_CHECK(strstr(muster_error(m), "has begun with one rank"));
        return muster_finalize(m);
    }
    if (!getenv("MUSTER_GROW")) {
        RANK_CHECK(muster_grow(m, &joined) == MUSTER_EUSAGE);
        RANK_CHECK(strstr(muster_error(m), "start all ranks with MUSTER_GROW=FILE"));
        return muster_finalize(m);
    }
    RANK_OK(muster_split(m, 0, 0, "all", &group));
    RANK_CHECK(muster_grow(group, &joined) == MUSTER_EUSAGE);
    RANK_CHECK(strstr(muster_error(group), "group 'all': call it on the world"));
    RANK_OK(muster_finalize(group));
    RANK_OK(muster_start(m, &h));
    RANK_OK(muster_allreduce(m, &one, 1, MUSTER_I32, MUSTER_SUM, NULL));
    RANK_CHECK(muster_grow(m, &joined) == MUSTER_EUSAGE);
    RANK_CHECK(strstr(muster_error(m), "wait for 1 handle of muster_start first"));
    RANK_OK(muster_wait(h, 0));
    RANK_CHECK(joined == 7);
    RANK_OK(muster_grow(m, &joined));
    RANK_CHECK(joined == 0 && one == 2);
    return muster_finalize(m);
}

static void calls_at_a_wrong_place_are_refused(void **state)
{
    static const struct {
        int size;
        bool grows;
    } rows[] = { { 2, true }, { 2, false }, { 1, true } };
    char path[256];

    file_path(path, sizeof path);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct ways w = { .size = rows[i].size,
                          .set = { { -1, "MUSTER_ELASTIC", "1" },
                                   { -1, "MUSTER_GROW", path } } };
        struct ways_result r;

        if (!rows[i].grows)
            w.set[1].name = NULL;
        ways_run(&w, ways_port(), calls_that_are_refused, NULL, &r);
        if (r.status[0] || (rows[i].size > 1 && r.status[1]))
            fail_msg("row %zu: %d %d\n%s", i, r.status[0], r.status[1], r.text);
        free(r.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processes_join_with_equal_weights),
        cmocka_unit_test(a_death_while_ranks_join_is_survived),
        cmocka_unit_test(a_process_of_other_settings_does_not_join),
        cmocka_unit_test(a_file_of_no_use_is_named),
        cmocka_unit_test(a_job_that_has_ended_is_named),
        cmocka_unit_test(calls_at_a_wrong_place_are_refused),
    };

    return cmocka_run_group_tests_name("grow", tests, NULL, NULL);
}
