/* SPDX-License-Identifier: BSD-3-Clause */
/* test_group_seeds.c - random misdeeds in calls on groups, also in messages and in what
 * only starts: no hang, right name
 *
 * All ranks draw the same program; one of them does wrong at one call. SEEDS is how
 * many (default 8), SEED the first one (default 1). By hand:
 *     SEEDS=200 tests/unit/test_group_seeds
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "tests/unit/forked.h"
#include "tests/unit/patience.h"

enum { RANKS = 6, GROUPS = 3, ROW = 1, STEPS = 3, CALLS = 6, MOST = 9000 };

enum misdeed {
    DIES,
    DIES_INSIDE,
    EXITS,
    ABORTS,
    NEVER_COMES,
    OTHER_COUNT,
    OTHER_CALL,
    SKIPS,
    SWAPS,
    MISDEEDS
};

static const struct misdeed_rule {
    const char *name;
    int status; /* -1: a contract or a deadline, whichever shows it */
} rules[MISDEEDS] = {
    [DIES] = { "dies", MUSTER_EPEER },
    [DIES_INSIDE] = { "dies inside", MUSTER_EPEER },
    [EXITS] = { "exits", MUSTER_EPEER },
    [ABORTS] = { "aborts", 42 },
    [NEVER_COMES] = { "never comes", MUSTER_ETIMEOUT },
    [OTHER_COUNT] = { "takes another count", -1 },
    [OTHER_CALL] = { "makes another call", -1 },
    [SKIPS] = { "skips the call", -1 },
    [SWAPS] = { "makes the call after the next one", -1 },
};

enum call {
    ALLREDUCE,
    BROADCAST,
    ALLGATHER,
    REDUCE_SCATTER,
    REDUCE,
    GATHER,
    SCATTER,
    ALLTOALL,
    ALLTOALLV,
    RING,
    MESSAGE,
    BARRIER,
    NCALLS
};

static const char *const names_of[NCALLS] = {
    "allreduce", "broadcast", "allgather", "reduce_scatter", "reduce",  "gather",
    "scatter",   "alltoall",  "alltoallv", "ring",           "message", "barrier"
};

struct wrong {
    enum misdeed deed;
    int rank, step, call;
    uint64_t seed;
};

struct step {
    enum call call;
    int group;
    size_t count;
    bool starts; /* it is waited for at the end of the step */
};

static unsigned draw(uint64_t *state, unsigned below)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (unsigned)(*state >> 33) % below;
}

static struct step draw_step(uint64_t *state)
{
    static const size_t counts[] = { 1, 300, MOST };
    struct step s = { .call = (enum call)draw(state, NCALLS) };

    s.group = (int)draw(state, GROUPS);
    if (s.call == MESSAGE && s.group == ROW) /* an odd number of ranks */
        s.group = 0;
    s.count = counts[draw(state, 3)];
    s.starts = draw(state, 2) && s.call != BARRIER;
    return s;
}

/* Each pair has a number of elements of its own. */
static int to_and_from_each(struct muster *g, size_t k, const int32_t *x, int32_t *y)
{
    size_t to[RANKS], from[RANKS];
    int n = muster_size(g), me = muster_rank(g);

    for (int r = 0; r < n; r++) {
        to[r] = k + (size_t)(3 * me + r) % 4;
        from[r] = k + (size_t)(3 * r + me) % 4;
    }
    return muster_alltoallv(g, x, to, NULL, y, from, NULL, MUSTER_I32, NULL);
}

static int run(struct muster *g, const struct step *s, struct muster_handle **h)
{
    static int32_t out[CALLS + 1][(MOST + 4) * RANKS];
    static int32_t in[CALLS + 1][(MOST + 4) * RANKS];
    static int slot;
    int n = muster_size(g), me = muster_rank(g), *x = out[slot], *y = in[slot];
    size_t k = s->count;

    slot = (slot + 1) % (CALLS + 1);
    if (s->starts)
        muster_start(g, h);
    switch (s->call) {
    case ALLREDUCE:
        return muster_allreduce(g, x, k, MUSTER_I32, MUSTER_SUM, NULL);
    case BROADCAST:
        return muster_broadcast(g, x, k, MUSTER_I32, 1, NULL);
    case ALLGATHER:
        return muster_allgather(g, x, y, k, MUSTER_I32, NULL);
    case REDUCE_SCATTER:
        return muster_reduce_scatter(g, x, y, k, MUSTER_I32, NULL);
    case REDUCE:
        return muster_reduce(g, x, y, k, MUSTER_I32, MUSTER_MAX, 0, NULL);
    case GATHER:
        return muster_gather(g, x, y, k, MUSTER_I32, 1, NULL);
    case SCATTER:
        return muster_scatter(g, x, y, k, MUSTER_I32, 0, NULL);
    case ALLTOALL:
        return muster_alltoall(g, x, y, k, MUSTER_I32, NULL);
    case ALLTOALLV:
        return to_and_from_each(g, k, x, y);
    case MESSAGE:
        return me % 2 ? muster_recv(g, y, k, MUSTER_I32, me - 1, NULL)
                      : muster_send(g, x, k, MUSTER_I32, me + 1, NULL);
    case RING:
        return muster_sendrecv(g, x, k, (me + 1) % n, y, k, (me + n - 1) % n,
                               MUSTER_I32, NULL);
    default:
        return muster_barrier(g);
    }
}

/* True: the call is left out. */
static bool misbehave(struct muster *g, enum misdeed deed, struct step *s)
{
    struct muster_handle *h = NULL;

    switch (deed) {
    case DIES_INSIDE:
        s->starts = s->call != BARRIER;
        run(g, s, &h);
        raise(SIGKILL);
        break;
    case DIES:
        raise(SIGKILL);
        break;
    case EXITS:
        _exit(3);
    case ABORTS:
        muster_abort(g, 42, "the loss is not a number");
    case NEVER_COMES:
        for (;;)
            pause();
    case OTHER_COUNT:
        s->count += s->call == BARRIER ? 0 : 1;
        s->call = s->call == BARRIER ? ALLREDUCE : s->call;
        break;
    case OTHER_CALL:
        /* In place of its ring a rank may send the same message. */
        s->call = s->call == RING ? BARRIER : (enum call)((s->call + 1) % NCALLS);
        s->starts &= s->call != BARRIER;
        break;
    case SKIPS:
        return true;
    default:
        break;
    }
    return false;
}

static void swap(struct step *a, struct step *b)
{
    struct step kept = *a;

    *a = *b;
    *b = kept;
}

static int one_step(struct muster **g, int step, uint64_t *state, const struct wrong *w)
{
    struct muster_handle *h[CALLS] = { NULL };
    bool mine = muster_rank(g[0]) == w->rank && step == w->step;
    struct step s[CALLS];

    for (int c = 0; c < CALLS; c++)
        s[c] = draw_step(state);
    if (mine && w->deed == SWAPS)
        swap(&s[w->call], &s[w->call + 1]);
    for (int c = 0; c < CALLS; c++) {
        if (mine && c == w->call && misbehave(g[s[c].group], w->deed, &s[c]))
            continue;
        if (run(g[s[c].group], &s[c], &h[c]) != MUSTER_OK)
            return muster_report(g[s[c].group]);
    }
    for (int c = CALLS - 1; c >= 0; c--)
        if (muster_wait(h[c], 0) != MUSTER_OK)
            return muster_report(g[s[c].group]);
    return MUSTER_OK;
}

static int body(struct muster *m, int rank, void *arg)
{
    const struct wrong *w = arg;
    uint64_t state = w->seed;
    struct muster *g[GROUPS] = { m };
    int rc = MUSTER_OK;

    RANK_OK(muster_split(m, rank / 3, 0, "row", &g[1]));
    RANK_OK(muster_split(m, rank % 3, 0, "column", &g[2]));
    for (int step = 0; step < STEPS && rc == MUSTER_OK; step++)
        rc = one_step(g, step, &state, w);
    for (int k = GROUPS - 1; k >= 0 && rc == MUSTER_OK; k--)
        if (muster_finalize(g[k]) != MUSTER_OK)
            rc = muster_report(NULL); /* g[k] is freed */
    return rc;
}

/* ---- What must come of it ---- */

static int faults; /* the other seeds go on */

static void wrong(const char *name, const char *what, const char *text)
{
    print_error("# %s: %s\n%s\n", name, what, text);
    faults++;
}

/* The sentence about the end of the job: no rank's own report or record, no warning. */
static const char *sentence(const char *text, int *n)
{
    const char *first = NULL;

    *n = 0;
    for (const char *at = text; (at = strstr(at, "muster: ")); at++) {
        int rank, end = 0;

        if ((sscanf(at, "muster: rank %d:%n", &rank, &end) == 1 && end > 0) ||
            strncmp(at, "muster: warning: ", 17) == 0)
            continue;
        if ((at == text || at[-1] == '\n') && at[8] != ' ') {
            *n += 1;
            first = first ? first : at;
        }
    }
    return first;
}

/* Is that rank named, before any other where it is the only one at fault? */
static bool names(const char *line, int rank, bool first)
{
    const char *end = strchr(line, '\n'), *at;
    bool group = strncmp(line, "muster: group '", 15) == 0;
    char who[40];

    /* Each of two ranks waits for the other one: which of them skipped is not known. */
    if (!first && (at = strstr(line, "; it waits for ")) && at < end)
        return true;
    snprintf(who, sizeof who, group ? "rank %d of the world" : "rank %d", rank);
    at = strstr(line, who);
    if (!at || at > end)
        return false;
    if (!first)
        return true;
    for (int r = 0; r < RANKS; r++) {
        const char *other;

        snprintf(who, sizeof who, group ? "rank %d of the world" : "rank %d", r);
        other = strstr(line, who);
        if (other && other < at)
            return false;
    }
    return true;
}

static void check(const char *name, const struct wrong *w,
                  const struct forked_result *r)
{
    const struct misdeed_rule *rule = &rules[w->deed];
    const char *line;
    int n;

    for (int k = 0; k < RANKS; k++) {
        bool right = rule->status < 0 ? r->status[k] == MUSTER_ECONTRACT ||
                                            r->status[k] == MUSTER_ETIMEOUT
                                      : r->status[k] == rule->status;

        if (k != w->rank && !right && r->status[k] != 128 + SIGKILL) {
            print_error("# rank %d ended with %d\n", k, r->status[k]);
            wrong(name, "a wrong status", r->text);
        }
    }
    line = sentence(r->text, &n);
    if (n != 1)
        wrong(name, "not one sentence", r->text);
    else if (!names(line, w->rank, rule->status >= 0))
        wrong(name, "the wrong name", r->text);
}

static bool waits_for_all(enum call call)
{
    return call != MESSAGE && call != RING;
}

/* A message that is never received, and calls that may pass each other, are no fault
 * that another rank could see: those become a wrong count.
 */
static enum misdeed what_shows(const struct wrong *w, const struct step *s,
                               const struct step *next)
{
    if (w->deed == SKIPS && s->call == MESSAGE)
        return OTHER_COUNT;
    if (w->deed == SWAPS &&
        (w->call == CALLS - 1 || s->group != next->group || s->call == next->call ||
         !waits_for_all(s->call) || !waits_for_all(next->call)))
        return OTHER_COUNT;
    return w->deed;
}

/* Only these need a short deadline, which a busy machine may exceed. */
static bool deadline_may_show(enum misdeed deed)
{
    return rules[deed].status == MUSTER_ETIMEOUT || rules[deed].status == -1;
}

/* What a seed draws: the world, the misdeed and the call that it is in. */
struct plan {
    struct forked_world world;
    struct wrong w;
    struct step s;
};

static struct plan draw_plan(unsigned long number)
{
    uint64_t state = number * UINT64_C(0x9e3779b97f4a7c15);
    struct plan p = { .world = { .size = RANKS } };
    struct step next;

    draw(&state, 2);
    p.world.nodes = 1 + (int)draw(&state, 2);
    p.world.force_tcp = draw(&state, 3) == 0;
    p.w.deed = (enum misdeed)draw(&state, MISDEEDS);
    p.w.rank = (int)draw(&state, RANKS);
    p.w.step = (int)draw(&state, STEPS);
    p.w.call = (int)draw(&state, CALLS);
    p.w.seed = state;
    for (int k = 0; k <= p.w.step * CALLS + p.w.call; k++)
        p.s = draw_step(&state);
    next = draw_step(&state);
    p.w.deed = what_shows(&p.w, &p.s, &next);
    if (deadline_may_show(p.w.deed))
        p.world.timeout = 1 + PATIENCE;
    return p;
}

static void do_wrong(unsigned long number)
{
    struct plan p = draw_plan(number);
    struct forked_result r;
    char name[160];

    snprintf(name, sizeof name,
             "seed %lu: nodes %d, tcp %d: rank %d %s, step %d, call %d: %s%s of %zu "
             "on group %d",
             number, p.world.nodes, p.world.force_tcp, p.w.rank, rules[p.w.deed].name,
             p.w.step, p.w.call, p.s.starts ? "started " : "", names_of[p.s.call],
             p.s.count, p.s.group);
    forked_run(&p.world, body, &p.w, 30 * PATIENCE, &r);
    for (int k = 0; k < RANKS; k++)
        if (r.seconds[k] > 12 * PATIENCE)
            wrong(name, "a rank ended late", r.text);
    check(name, &p.w, &r);
    forked_clear(&r);
}

static void a_death_in_each_call_is_named(void **state)
{
    unsigned long number = 0;

    for (int call = 0; call < NCALLS; call++) {
        struct plan p;

        do
            p = draw_plan(++number);
        while (p.w.deed != DIES_INSIDE || (int)p.s.call != call);
        do_wrong(number);
    }
    assert_int_equal(faults, 0);
}

static void a_misdeed_in_a_group_ends_the_job_with_the_right_name(void **state)
{
    const char *first = getenv("SEED"), *seeds = getenv("SEEDS");
    unsigned long from = first ? strtoul(first, NULL, 10) : 1;
    unsigned long n = seeds ? strtoul(seeds, NULL, 10) : 8;

    for (unsigned long s = from; s < from + n; s++)
        do_wrong(s);
    assert_int_equal(faults, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_death_in_each_call_is_named),
        cmocka_unit_test(a_misdeed_in_a_group_ends_the_job_with_the_right_name),
    };

    return cmocka_run_group_tests_name("group seeds", tests, NULL, NULL);
}
