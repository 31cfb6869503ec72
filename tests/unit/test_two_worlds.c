/* SPDX-License-Identifier: BSD-3-Clause */
/* test_two_worlds.c - a process ends because of one of two worlds: both get one reason
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "runtime/base/clock.h"
#include "runtime/boot/control_impl.h"
#include "runtime/muster.h"
#include "tests/unit/forked.h"
#include "tests/unit/patience.h"

#define SIZE 3

enum { FIRST, SECOND, NONE };

enum deed {
    KILL,
    REPORT,           /* a call that fails on this rank alone, and its exit status */
    REPORT_AND_CLOSE, /* the same behind a good muster_finalize of that world */
    ANOTHER_CALL,     /* than the other ranks */
    GIVE_UP,
    CLOSE_AND_EXIT, /* a good muster_finalize of that world, then exit(0) */
};

struct row {
    const char *name;
    enum deed deed;
    int in;   /* the world of the deed; GIVE_UP: NONE too */
    int rank; /* that does it, in the first world */
    int status;
    const char *sentence;
    int elastic[2];
    bool returns[2];
    bool reversed; /* the second world numbers the ranks from the end */
    bool alone;    /* no launcher ends the others */
};

/* Shared among the ranks. */
struct shared {
    atomic_int held; /* ranks whose control thread is held */
};

struct run {
    const struct row *row;
    struct shared *shared;
    int late; /* the world whose control threads see nothing before the other fails */
};

/* ---- A world that sees the failure behind the other one ------------------------ */

static struct {
    void (*ended)(void *arg, const struct mu_ending *ending);
    atomic_bool has_ended;
    struct mu_control *late;
    struct shared *shared;
} gate;

static void ended_first(void *arg, const struct mu_ending *ending)
{
    atomic_store(&gate.has_ended, true);
    gate.ended(arg, ending);
}

static void *hold(void *arg)
{
    pthread_mutex_lock(&gate.late->lock);
    atomic_fetch_add(&gate.shared->held, 1);
    while (!atomic_load(&gate.has_ended))
        mu_pause(0.001);
    pthread_mutex_unlock(&gate.late->lock);
    return NULL;
}

static void hold_late(struct muster *late, struct muster *early, struct shared *shared)
{
    struct mu_control *c = early->comm.control;

    pthread_mutex_lock(&c->lock); /* its thread has it before it calls a hook */
    gate.late = late->comm.control;
    gate.shared = shared;
    gate.ended = early->comm.hooks.ended;
    early->comm.hooks.ended = ended_first;
    pthread_mutex_unlock(&c->lock);
    forked_thread(hold, NULL);
}

/* ---- The ranks ----------------------------------------------------------------- */

static int gather_reversed(void *m, const void *mine, void *all, size_t bytes)
{
    size_t size = (size_t)muster_size(m);
    char *order = malloc(size * bytes);
    int rc = muster_allgather(m, mine, order, bytes, MUSTER_BYTE, NULL);

    for (size_t r = 0; r < size; r++)
        memcpy((char *)all + r * bytes, order + (size - 1 - r) * bytes, bytes);
    free(order);
    return rc;
}

static int gather_same(void *m, const void *mine, void *all, size_t bytes)
{
    return muster_allgather(m, mine, all, bytes, MUSTER_BYTE, NULL);
}

/* A world of the ranks of m. */
static struct muster *open_by(struct muster *m, bool reversed, int elastic,
                              bool returns)
{
    int rank = muster_rank(m), size = muster_size(m);
    const struct muster_exchange exchange = {
        .rank = reversed ? size - 1 - rank : rank,
        .size = size,
        .allgather = reversed ? gather_reversed : gather_same,
        .arg = m,
        .first = 1,
    };
    const struct muster_options options = {
        .backend = "host",
        .init_timeout = 20 * PATIENCE,
        .timeout = 100 * PATIENCE,
        .elastic = elastic,
        .on_failure = returns ? "return" : "end",
        .exchange = &exchange,
    };
    struct muster *second;

    RANK_OK(muster_init(&second, &options));
    return second;
}

/* As the first sync does: from now on the ranks survive a death. */
static void arm(struct muster *m)
{
    atomic_store(&m->comm.armed, true);
    mu_control_report_immediately(m->comm.control, true);
}

/* In the place of a step on that world. */
static void *step(void *arg)
{
    struct muster *m = arg;
    int rc = muster_barrier(m);

    while (rc == MUSTER_ESHRUNK)
        rc = muster_barrier(m);
    sleep(60);
    return NULL;
}

static bool closes_one(const struct row *row)
{
    return row->deed == REPORT_AND_CLOSE || row->deed == CLOSE_AND_EXIT;
}

static int leave(const struct row *row, struct muster *worlds[])
{
    struct muster *m = worlds[row->in == NONE ? FIRST : row->in];
    float x = 1;
    int status = 0;

    switch (row->deed) {
    case KILL:
        raise(SIGKILL);
        break;
    case REPORT:
    case REPORT_AND_CLOSE:
        RANK_CHECK(muster_extend(m, -1) == MUSTER_EUSAGE);
        status = muster_report(m);
        break;
    case ANOTHER_CALL:
        muster_allreduce(m, &x, 1, MUSTER_F32, MUSTER_SUM, NULL);
        sleep(60);
        break;
    case GIVE_UP:
        muster_abort(row->in == NONE ? NULL : m, 42, "the loss is not a number");
    case CLOSE_AND_EXIT:
        break;
    }
    if (closes_one(row))
        RANK_OK(muster_finalize(m));
    exit(status);
}

static int body(struct muster *m, int rank, void *arg)
{
    const struct run *run = arg;
    const struct row *row = run->row;
    struct muster *worlds[] = { m, NULL };
    bool acts = rank == row->rank;

    if (row->alone)
        m->comm.world->abort = NULL;
    worlds[SECOND] =
        open_by(m, row->reversed, row->elastic[SECOND], row->returns[SECOND]);
    for (int w = FIRST; w <= SECOND; w++)
        if (row->elastic[w])
            arm(worlds[w]);
    RANK_OK(muster_barrier(m));
    if (run->late != NONE && !acts)
        hold_late(worlds[run->late], worlds[1 - run->late], run->shared);
    while (acts && run->late != NONE && atomic_load(&run->shared->held) < SIZE - 1)
        mu_pause(0.001);
    if (acts)
        return leave(row, worlds);
    if (closes_one(row))
        RANK_OK(muster_finalize(worlds[row->in]));
    else
        forked_thread(step, worlds[FIRST]);
    step(worlds[closes_one(row) ? 1 - row->in : SECOND]);
    return 97;
}

/* ---- Worlds of some ranks ------------------------------------------------------ */

/* A world that has it reports in the place of one without. */
static void cannot_abort(struct mu_world *w, int status, const char *why)
{
}

/* Ranks 0 and 1 have a world, and ranks 2 and 1 another one. In the first one, which
 * reports, rank 0 does the deed.
 */
static int chain_body(struct muster *m, int rank, void *arg)
{
    const struct row *row = arg;
    struct muster *of_0 = NULL, *of_2 = NULL, *worlds[] = { NULL, NULL };

    RANK_OK(muster_split(m, rank < 2 ? 0 : -1, rank, NULL, &of_0));
    RANK_OK(muster_split(m, rank > 0 ? 0 : -1, rank, NULL, &of_2));
    if (of_0) {
        worlds[FIRST] = open_by(of_0, false, 0, false);
        worlds[FIRST]->comm.world->abort = cannot_abort;
    }
    if (of_2)
        worlds[SECOND] = open_by(of_2, row->reversed, 0, row->returns[SECOND]);
    RANK_OK(muster_finalize(of_0));
    RANK_OK(muster_finalize(of_2));
    RANK_OK(muster_finalize(m));
    if (rank == 0)
        return leave(row, worlds);
    if (rank == 1)
        forked_thread(step, worlds[FIRST]);
    if (rank == 2 && row->returns[SECOND]) {
        while (muster_barrier(worlds[SECOND]) == MUSTER_OK)
            ;
        exit(strstr(muster_error(worlds[SECOND]), row->sentence) ? row->status : 97);
    }
    step(worlds[SECOND]);
    return 97;
}

/* ---- A second world that does not open ----------------------------------------- */

enum trouble { REFUSED, STAYS_AWAY, DIFFERS, DIES };

struct opening {
    const char *name;
    enum trouble trouble; /* on rank 1 */
    int status;
    const char *sentence;
};

static int gather_and_die(void *m, const void *mine, void *all, size_t bytes)
{
    gather_same(m, mine, all, bytes);
    return raise(SIGKILL);
}

static int open_body(struct muster *m, int rank, void *arg)
{
    const struct opening *opening = arg;
    const bool acts = rank == 1;
    const struct muster_exchange exchange = {
        .rank = rank,
        .size = SIZE,
        .allgather = acts && opening->trouble == DIES ? gather_and_die : gather_same,
        .arg = m,
        .first = 1,
    };
    const struct muster_options options = {
        .backend = acts && opening->trouble == REFUSED ? "hots" : "host",
        .elastic = acts && opening->trouble == DIFFERS,
        .init_timeout = opening->trouble == STAYS_AWAY ? 1 : 20 * PATIENCE,
        .exchange = &exchange,
    };
    struct muster *second;

    if (acts && opening->trouble == STAYS_AWAY)
        sleep(60);
    if (muster_init(&second, &options) != MUSTER_OK)
        exit(muster_report(NULL));
    sleep(60);
    return 97;
}

/* ---- What they leave ----------------------------------------------------------- */

static int lines_of(const char *text)
{
    int n = 0;

    for (const char *line = text; (line = strstr(line, "muster: ")); line++)
        n++;
    return n;
}

struct expected {
    int status;
    const char *sentence;
    int victim;    /* the rank that may end otherwise, -1: none */
    bool reported; /* also by the rank that leaves */
    bool alone;
};

static void check(const char *what, const struct expected *e,
                  const struct forked_result *r)
{
    bool spoken = false;

    for (int k = 0; k < SIZE; k++) {
        spoken |= r->status[k] == e->status;
        if (k != e->victim && r->status[k] != e->status &&
            (e->alone || r->status[k] != 128 + SIGKILL))
            fail_msg("%s: rank %d ended with %d\n%s", what, k, r->status[k], r->text);
    }
    if (!spoken)
        fail_msg("%s: no rank ended with %d\n%s", what, e->status, r->text);
    if (!strstr(r->text, e->sentence) || lines_of(r->text) != 1 + e->reported)
        fail_msg("%s: %d lines\n%s", what, lines_of(r->text), r->text);
}

static void run_row(const struct row *row, int late)
{
    const struct forked_world w = { .size = SIZE,
                                    .timeout = 100 * PATIENCE,
                                    .elastic = row->elastic[FIRST],
                                    .return_failure = row->returns[FIRST] };
    static const char *const order[] = { ", first world late", ", second world late",
                                         "" };
    const bool falls = row->deed == KILL || row->deed == CLOSE_AND_EXIT;
    const bool reports = row->deed == REPORT || row->deed == REPORT_AND_CLOSE;
    const struct expected e = { row->status, row->sentence, falls ? row->rank : -1,
                                reports, row->alone };
    struct run run = { row, forked_shared(sizeof *run.shared), late };
    struct forked_result r;
    char what[128];

    snprintf(what, sizeof what, "%s%s", row->name, order[late]);
    forked_run(&w, body, &run, 30 * PATIENCE, &r);
    check(what, &e, &r);
    forked_clear(&r);
}

static const struct row deaths[] = {
    { "kill -9", KILL, NONE, 1, MUSTER_EPEER, .sentence = "rank 1 (node a, pid " },
    { "kill -9 of rank 0", KILL, NONE, 0, MUSTER_EPEER,
      .sentence = "rank 0 (node a, pid " },
    { "kill -9, numbered otherwise", KILL, NONE, 1, MUSTER_EPEER,
      .sentence = "rank 1 (node a, pid ", .reversed = true },
    { "kill -9, numbered otherwise, without a launcher", KILL, NONE, 1, MUSTER_EPEER,
      .sentence = "rank 1 (", .reversed = true, .alone = true },
    { "kill -9 in an elastic world and a plain one", KILL, NONE, 1, MUSTER_EPEER,
      .sentence = "rank 1 (", .elastic = { 1, 0 } },
    { "kill -9 in a plain world and an elastic one", KILL, NONE, 1, MUSTER_EPEER,
      .sentence = "rank 1 (node a, pid ", .elastic = { 0, 1 } },
};

static void a_death_in_two_worlds_has_one_sentence(void **state)
{
    for (size_t i = 0; i < sizeof deaths / sizeof deaths[0]; i++)
        for (int late = FIRST; late <= SECOND; late++)
            run_row(&deaths[i], late);
}

static const struct row chains[] = {
    { "kill -9, numbered otherwise", KILL, FIRST, 0, MUSTER_EPEER,
      .sentence = "rank 0 (", .reversed = true },
    { "report", REPORT, FIRST, 0, MUSTER_EUSAGE,
      .sentence = "ended the job: muster_ex" },
    { "another call", ANOTHER_CALL, FIRST, 0, MUSTER_ECONTRACT, .sentence = "rank 1 (",
      .reversed = true },
    { "a world that returns it", GIVE_UP, FIRST, 0, 42,
      .sentence = "ended the job: the loss", .returns = { false, true } },
};

static void a_rank_behind_one_that_ends_gets_the_reason(void **state)
{
    for (size_t i = 0; i < sizeof chains / sizeof chains[0]; i++) {
        const struct forked_world w = { .size = SIZE, .timeout = 100 * PATIENCE };
        const struct expected e = { chains[i].status, chains[i].sentence,
                                    chains[i].deed == KILL ? 0 : -1,
                                    chains[i].deed == REPORT, true };
        struct row row = chains[i];
        struct forked_result r;

        forked_run(&w, chain_body, &row, 30 * PATIENCE, &r);
        check(row.name, &e, &r);
        forked_clear(&r);
    }
}

#define LEFT "rank 1 (node a) ended the job: muster_extend: seconds is -1"
#define LEFT_SECOND "ended the job: muster_extend: seconds is -1"

static const struct row failures[] = {
    { "report of the first", REPORT, FIRST, 1, MUSTER_EUSAGE, .sentence = LEFT },
    { "report of the second", REPORT, SECOND, 1, MUSTER_EUSAGE,
      .sentence = LEFT_SECOND },
    { "report of rank 0", REPORT, SECOND, 0, MUSTER_EUSAGE, .sentence = LEFT_SECOND },
    { "report, numbered otherwise", REPORT, SECOND, 0, MUSTER_EUSAGE,
      .sentence = LEFT_SECOND, .reversed = true },
    { "report without a launcher", REPORT, SECOND, 1, MUSTER_EUSAGE,
      .sentence = LEFT_SECOND, .alone = true },
    { "report of an elastic world beside a plain one", REPORT, SECOND, 1, MUSTER_EUSAGE,
      .sentence = LEFT_SECOND, .elastic = { 0, 1 } },
    { "report of a plain world beside an elastic one", REPORT, SECOND, 1, MUSTER_EUSAGE,
      .sentence = LEFT_SECOND, .elastic = { 1, 0 } },
    { "report of a world that is then closed", REPORT_AND_CLOSE, SECOND, 1,
      MUSTER_EUSAGE, .sentence = LEFT_SECOND },
    { "another call in the first", ANOTHER_CALL, FIRST, 1, MUSTER_ECONTRACT,
      .sentence = "rank 1" },
    { "another call in the second", ANOTHER_CALL, SECOND, 1, MUSTER_ECONTRACT,
      .sentence = "rank 1" },
    { "another call in the second, numbered otherwise", ANOTHER_CALL, SECOND, 0,
      MUSTER_ECONTRACT, .sentence = "rank 2", .reversed = true },
    { "abort of the first", GIVE_UP, FIRST, 1, 42,
      .sentence = "ended the job: the loss is" },
    { "abort of the second", GIVE_UP, SECOND, 1, 42,
      .sentence = "ended the job: the loss is" },
    { "abort of none", GIVE_UP, NONE, 1, 42, .sentence = "ended the job: the loss is" },
    { "abort of a plain world beside an elastic one", GIVE_UP, SECOND, 1, 42,
      .sentence = "ended the job: the loss is", .elastic = { 1, 0 } },
    { "abort of an elastic world beside a plain one", GIVE_UP, SECOND, 1, 42,
      .sentence = "ended the job: the loss is", .elastic = { 0, 1 } },
    { "exit with the second open", CLOSE_AND_EXIT, FIRST, 1, MUSTER_EPEER,
      .sentence = "rank 1 (" },
    { "exit with the first open", CLOSE_AND_EXIT, SECOND, 1, MUSTER_EPEER,
      .sentence = "rank 1 (node a, pid " },
};

static void a_failure_of_one_world_is_the_reason_in_both(void **state)
{
    for (size_t i = 0; i < sizeof failures / sizeof failures[0]; i++)
        run_row(&failures[i], NONE);
}

static const struct opening openings[] = {
    { "an option is refused on one rank", REFUSED, MUSTER_EUSAGE,
      "rank 1 (node a) ended the job: " },
    { "a rank stays away", STAYS_AWAY, MUSTER_ERENDEZVOUS,
      "the all-gather of muster_options.exchange did not return within 1 s" },
    { "the ranks differ", DIFFERS, MUSTER_ECONTRACT, "elastic 1 on rank 1" },
    { "a rank dies", DIES, MUSTER_EPEER, "rank 1 (node " },
};

static void a_second_world_that_does_not_open_ends_the_first(void **state)
{
    for (size_t i = 0; i < sizeof openings / sizeof openings[0]; i++) {
        const struct forked_world w = { .size = SIZE, .timeout = 100 * PATIENCE };
        const struct expected e = { openings[i].status, openings[i].sentence,
                                    openings[i].trouble == DIES ? 1 : -1,
                                    openings[i].trouble == REFUSED, false };
        struct opening opening = openings[i];
        struct forked_result r;

        forked_run(&w, open_body, &opening, 30 * PATIENCE, &r);
        check(opening.name, &e, &r);
        forked_clear(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_death_in_two_worlds_has_one_sentence),
        cmocka_unit_test(a_failure_of_one_world_is_the_reason_in_both),
        cmocka_unit_test(a_rank_behind_one_that_ends_gets_the_reason),
        cmocka_unit_test(a_second_world_that_does_not_open_ends_the_first),
    };

    return cmocka_run_group_tests_name("two worlds", tests, NULL, NULL);
}
