/* SPDX-License-Identifier: BSD-3-Clause */
/* test_seeds.c - random double kills and random misdeeds: no hang, no wrong name
 *
 * SEEDS is how many of each (default 8), SEED the first one (default 1). By hand:
 *     SEEDS=200 tests/unit/test_seeds
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "runtime/base/clock.h"
#include "tests/unit/elastic.h"
#include "tests/unit/patience.h"

static unsigned long number(const char *name, unsigned long otherwise)
{
    const char *text = getenv(name);

    return text ? strtoul(text, NULL, 10) : otherwise;
}

/* The other seeds go on. */
static int faults;

__attribute__((format(printf, 1, 2))) static void wrong(const char *fmt, ...)
{
    char text[8192];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    print_error("# %s\n", text);
    faults++;
}

static unsigned draw(uint64_t *seed, unsigned below)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (unsigned)(*seed >> 33) % below;
}

static uint64_t start_of(unsigned long seed)
{
    uint64_t state = seed * UINT64_C(0x9e3779b97f4a7c15);

    draw(&state, 2);
    return state;
}

static struct forked_world draw_world(uint64_t *seed, int least)
{
    struct forked_world w = { .first_bucket = 256, .bucket_cap = 256 };

    w.size = least + (int)draw(seed, 4);
    switch (draw(seed, 3)) {
    case 0:
        break;
    case 1:
        w.force_tcp = true;
        break;
    default:
        w.nodes = 2;
    }
    return w;
}

/* Times of all seeds, for one line at the end. */
struct times {
    double most, sum;
    unsigned long n, slow; /* slow: above a second */
};

static void add_time(struct times *t, double seconds)
{
    t->n++;
    t->sum += seconds;
    t->slow += seconds > 1;
    if (seconds > t->most)
        t->most = seconds;
}

static void print_times(const char *what, const struct times *t)
{
    print_message("# %lu %s: mean %.3f s, most %.3f s, %lu above 1 s\n", t->n, what,
                  t->sum / (double)(t->n ? t->n : 1), t->most, t->slow);
}

/* ---- Two ranks die, the others go on -------------------------------------------- */

#define WITHIN 2.0 /* from the first death to a good step of all survivors */

static double check_survivors(const struct elastic_case *c, const struct told *told,
                              const struct forked_result *r)
{
    double last = 0;
    int first = -1;

    for (int k = 0; k < c->world.size; k++) {
        bool dead = k == c->death[0].rank || k == c->death[1].rank;

        if (r->status[k] != (dead ? 128 + SIGKILL : 0))
            wrong("%s: rank %d: status %d\n%s", c->name, k, r->status[k], r->text);
        if (dead)
            continue;
        if (first < 0)
            first = k;
        if (told->steps[k] != STEPS || told->sum[k] != told->sum[first])
            wrong("%s: rank %d: %d steps, weights %g, not %d and %g\n%s", c->name, k,
                  told->steps[k], told->sum[k], STEPS, told->sum[first], r->text);
        if (told->good_at[k] > last)
            last = told->good_at[k];
    }
    if (!strstr(r->text, "go on"))
        wrong("%s: no rank goes on\n%s", c->name, r->text);
    for (int k = 0; k < c->world.size; k++) {
        char dead[64];

        snprintf(dead, sizeof dead, ", pid %d) died", told->pid[k]);
        if (k != c->death[0].rank && k != c->death[1].rank && strstr(r->text, dead))
            wrong("%s: rank %d lives\n%s", c->name, k, r->text);
    }
    return last - told->died_at;
}

static void kill_two(unsigned long number, struct times *times)
{
    static const enum phase phases[] = { BETWEEN_STEPS, IN_BUCKET, AFTER_SYNC };
    uint64_t seed = start_of(number);
    struct told *told = forked_shared(sizeof *told);
    struct elastic_case c = { .world = draw_world(&seed, 4) };
    struct run run = { .c = &c, .told = told };
    struct forked_result r;
    char name[128];
    double took;

    c.world.elastic = 1;
    c.death[0].rank = (int)draw(&seed, (unsigned)c.world.size);
    c.death[1].rank =
        (c.death[0].rank + 1 + (int)draw(&seed, (unsigned)c.world.size - 1)) %
        c.world.size;
    c.death[0].step = 1 + (int)draw(&seed, 5); /* the other one dies in time too */
    c.death[0].phase = phases[draw(&seed, 3)];
    c.death[1].phase = BEHIND_ANOTHER;
    c.death[1].after = draw(&seed, 40000) * 1e-6;
    snprintf(name, sizeof name,
             "seed %lu: %d ranks, nodes %d, tcp %d: rank %d in step %d, phase %d; rank "
             "%d %.2f ms later",
             number, c.world.size, c.world.nodes, c.world.force_tcp, c.death[0].rank,
             c.death[0].step, c.death[0].phase, c.death[1].rank,
             c.death[1].after * 1e3);
    c.name = name;
    forked_run(&c.world, elastic_train, &run, 40, &r);
    took = check_survivors(&c, told, &r);
    if (took > 1)
        print_message("# %.3f s: %s\n%s", took, name, r.text);
    if (took > WITHIN * PATIENCE)
        wrong("%s: took %.3f s\n%s", name, took, r.text);
    add_time(times, took);
    forked_clear(&r);
}

static void with_each_seed(void (*one)(unsigned long number, struct times *times),
                           const char *what)
{
    unsigned long first = number("SEED", 1), n = number("SEEDS", 8);
    struct times times = { 0 };

    faults = 0;
    for (unsigned long s = first; s < first + n; s++)
        one(s, &times);
    print_times(what, &times);
    assert_int_equal(faults, 0);
}

static void two_deaths_at_any_time_are_survived(void **state)
{
    with_each_seed(kill_two, "double kills");
}

/* ---- One rank does wrong, the job ends with its name ----------------------------- */

enum misdeed {
    DIES,
    EXITS,
    ABORTS,
    LEAVES,
    NEVER_COMES,
    OTHER_COUNT,
    BARRIER_FIRST,
    SKIPS,
    MISDEEDS
};

static const struct misdeed_rule {
    const char *name;
    int status;    /* -1: a contract or a deadline, whichever shows it */
    double within; /* seconds from the deed to the end */
} rules[MISDEEDS] = {
    [DIES] = { "dies", MUSTER_EPEER, 2 },
    [EXITS] = { "exits", MUSTER_EPEER, 2 },
    [ABORTS] = { "aborts", 42, 2 },
    [LEAVES] = { "leaves", MUSTER_EUSAGE, 2 },
    [NEVER_COMES] = { "never comes", MUSTER_ETIMEOUT, 5 },
    [OTHER_COUNT] = { "reduces another count", -1, 2 },
    [BARRIER_FIRST] = { "is in a barrier", -1, 2 },
    [SKIPS] = { "skips a step", -1, 5 },
};

/* Places of a step. */
enum place { AT_START, IN_THE_BUCKET, AT_THE_REDUCE, AT_THE_BARRIER, PLACES };

struct wrong {
    enum misdeed deed;
    enum place place;
    int rank, step;
    double *deed_at; /* shared */
};

static void misbehave(struct muster *m, const struct wrong *w)
{
    float x[6] = { 0 };

    *w->deed_at = mu_clock_s();
    switch (w->deed) {
    case DIES:
        kill(getpid(), SIGKILL);
        break;
    case EXITS:
        _exit(3);
    case ABORTS:
        muster_abort(m, 42, "the loss is not a number");
    case LEAVES:
        muster_extend(m, -1);
        exit(muster_report(m));
    case NEVER_COMES:
        mu_pause(60);
        break;
    case OTHER_COUNT:
        muster_allreduce(m, x, 6, MUSTER_F32, MUSTER_SUM, NULL);
        break;
    case BARRIER_FIRST:
        muster_barrier(m);
        break;
    default: /* skips a step */
        break;
    }
}

static int wrong_body(struct muster *m, int rank, void *arg)
{
    const struct wrong *w = arg;
    struct muster_param p[2] = { { .name = "a", .count = 64, .dtype = MUSTER_F32 },
                                 { .name = "b", .count = 64, .dtype = MUSTER_F32 } };
    struct muster_ddp *ddp;
    float x[6] = { 0 };

    if (!m || muster_ddp_create(m, p, 2, NULL, &ddp) != MUSTER_OK)
        return muster_report(m);
    for (int step = 0; step < 5; step++) {
        bool mine = rank == w->rank && step == w->step;

        for (enum place at = AT_START; at < PLACES; at++) {
            int rc;

            if (mine && at == w->place) {
                misbehave(m, w);
                if (w->deed == SKIPS)
                    break;
            }
            if (at == AT_START)
                rc = muster_ddp_grad_ready(ddp, 1, NULL);
            else if (at == IN_THE_BUCKET &&
                     (rc = muster_ddp_grad_ready(ddp, 0, NULL)) == MUSTER_OK)
                rc = muster_ddp_sync(ddp, NULL);
            else if (at == AT_THE_REDUCE)
                rc = muster_allreduce(m, x, 5, MUSTER_F32, MUSTER_SUM, NULL);
            else if (at == AT_THE_BARRIER)
                rc = muster_barrier(m);
            if (rc != MUSTER_OK)
                return muster_report(m);
        }
    }
    muster_ddp_destroy(ddp);
    return muster_finalize(m);
}

/* Sentences about the end of the job: neither a rank's own report nor its record. */
static int count_sentences(const char *text)
{
    int n = 0;

    for (const char *at = text; (at = strstr(at, "muster: ")); at++) {
        bool begins = at == text || at[-1] == '\n';

        n += begins && at[8] != ' ' && !forked_is_report(at);
    }
    return n;
}

static void check_misdeed(const char *name, const struct forked_world *world,
                          const struct wrong *w, const struct forked_result *r)
{
    const struct misdeed_rule *rule = &rules[w->deed];
    char who[32];
    int ended = 0;

    snprintf(who, sizeof who, "rank %d", w->rank);
    for (int k = 0; k < world->size; k++) {
        bool right = rule->status < 0 ? r->status[k] == MUSTER_ECONTRACT ||
                                            r->status[k] == MUSTER_ETIMEOUT
                                      : r->status[k] == rule->status;

        ended += right;
        if (k != w->rank && !right && r->status[k] != 128 + SIGKILL)
            wrong("%s: rank %d: status %d\n%s", name, k, r->status[k], r->text);
        if (k != w->rank && rule->status >= 0 && forked_sentence(r->text, k))
            wrong("%s: an innocent rank is named\n%s", name, r->text);
    }
    if (ended == 0 || !strstr(r->text, who))
        wrong("%s: no rank names it\n%s", name, r->text);
    if (count_sentences(r->text) != 1)
        wrong("%s: %d sentences\n%s", name, count_sentences(r->text), r->text);
}

/* Only these need a short deadline, which a busy machine may exceed. */
static bool deadline_may_show(enum misdeed deed)
{
    return rules[deed].status == MUSTER_ETIMEOUT || rules[deed].status == -1;
}

static void do_wrong(unsigned long number, struct times *times)
{
    uint64_t seed = start_of(number);
    struct forked_world world = draw_world(&seed, 3);
    struct wrong w = { .deed = (enum misdeed)draw(&seed, MISDEEDS),
                       .place = (enum place)draw(&seed, PLACES),
                       .rank = (int)draw(&seed, (unsigned)world.size),
                       .step = 1 + (int)draw(&seed, 3),
                       .deed_at = forked_shared(sizeof(double)) };
    double start = mu_clock_s(), took = 0;
    struct forked_result r;
    char name[128];

    if (w.deed == SKIPS)
        w.place = AT_START; /* elsewhere it is a mistake of that rank alone */
    if (deadline_may_show(w.deed))
        world.timeout = 1.5 * PATIENCE;
    snprintf(name, sizeof name,
             "seed %lu: %d ranks, nodes %d, tcp %d: rank %d %s, step %d, place %d",
             number, world.size, world.nodes, world.force_tcp, w.rank,
             rules[w.deed].name, w.step, w.place);
    forked_run(&world, wrong_body, &w, 30, &r);
    for (int k = 0; k < world.size; k++)
        if (r.seconds[k] - (*w.deed_at - start) > took)
            took = r.seconds[k] - (*w.deed_at - start);
    check_misdeed(name, &world, &w, &r);
    if (took > rules[w.deed].within * PATIENCE)
        wrong("%s: took %.2f s\n%s", name, took, r.text);
    add_time(times, took);
    forked_clear(&r);
}

static void a_misdeed_ends_the_job_with_one_sentence_and_the_right_name(void **state)
{
    with_each_seed(do_wrong, "misdeeds");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_deaths_at_any_time_are_survived),
        cmocka_unit_test(a_misdeed_ends_the_job_with_one_sentence_and_the_right_name),
    };

    return cmocka_run_group_tests_name("seeds", tests, NULL, NULL);
}
