/* SPDX-License-Identifier: BSD-3-Clause */
/* test_failure.c - ranks that die, stop, stay away or do something else */
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

#include "runtime/base/clock.h"
#include "tests/unit/await_stop.h"
#include "tests/unit/forked.h"
#include "tests/unit/patience.h"

enum deed {
    KILL,
    STOP,
    EXIT_0,
    EXIT_3,
    SEGV,
    STAY_AWAY,
    ELSEWHERE,
    BARRIER,
    GIVE_UP,
    LEAVE,
    SLOW,
    EXTEND
};
enum phase {
    IN_BUCKET,
    BETWEEN_STEPS,
    IN_FINALIZE,
    ALL_IN_FINALIZE,
    WITH_THE_LAST_RESULT /* of finalize: it dies before all of its children have it */
};

struct fault {
    const char *name;
    struct forked_world world;
    enum phase phase;
    enum deed deed;
    int rank;           /* who does it */
    int status;         /* of the reporter; 0: all must survive */
    const char *expect; /* in what is printed */
    double within;      /* seconds from the deed to the end of all */
};

/* Shared. */
struct done {
    double at;
    pid_t pid; /* who did it */
};

struct run {
    const struct fault *fault;
    struct done *done;
    struct muster *m;
};

static void act(struct muster *m, const struct run *run)
{
    float x[3] = { 0 };

    *run->done = (struct done){ mu_clock_s(), getpid() };
    switch (run->fault->deed) {
    case KILL:
        kill(getpid(), SIGKILL);
        break;
    case STOP:
        raise(SIGSTOP); /* this thread at once, the others in a moment */
        break;
    case EXIT_0:
        _exit(0);
    case EXIT_3:
        _exit(3);
    case SEGV:
        signal(SIGSEGV, SIG_DFL);
        raise(SIGSEGV);
        break;
    case STAY_AWAY:
        muster_doing(m, "reading data");
        mu_pause(60);
        break;
    case ELSEWHERE:
        muster_allreduce(m, x, 3, MUSTER_F32, MUSTER_SUM, NULL);
        break;
    case BARRIER:
        muster_barrier(m);
        break;
    case GIVE_UP:
        muster_abort(m, 42, "the loss is not a number");
    case LEAVE:
        muster_extend(m, -1);
        exit(muster_report(m));
    case SLOW:
        mu_pause(1.0);
        break;
    case EXTEND:
        muster_extend(m, 6);
        mu_pause(3.0);
        break;
    }
}

static void act_in_close(void *arg)
{
    act(NULL, arg);
}

/* All ranks have entered finalize: the next result is the last one. */
static void act_with_last_result(void *arg)
{
    const struct run *run = arg;

    forked_with_result(run->m, act_in_close, arg);
}

/* The last rank lets a stopped one go on: all have left without it. */
static int finalize(struct muster *m, int rank, const struct run *run)
{
    int rc = muster_finalize(m);

    if (rank == run->fault->world.size - 1 && run->fault->deed == STOP)
        kill(run->done->pid, SIGCONT);
    return rc;
}

/* Five steps of two buckets; the guilty rank does its deed in step 2. */
static int body(struct muster *m, int rank, void *arg)
{
    struct run *run = arg;
    const struct fault *f = run->fault;
    struct muster_param p[2] = { { .name = "a", .count = 64, .dtype = MUSTER_F32 },
                                 { .name = "b", .count = 64, .dtype = MUSTER_F32 } };
    struct muster_ddp *ddp;

    if (!m)
        return 96;
    run->m = m;
    if (muster_ddp_create(m, p, 2, NULL, &ddp) != MUSTER_OK)
        return muster_report(m);
    for (int step = 0; step < 5; step++) {
        bool mine = rank == f->rank && step == 2;

        if (mine && f->phase == BETWEEN_STEPS)
            act(m, run);
        if (muster_ddp_grad_ready(ddp, 1, NULL) != MUSTER_OK)
            return muster_report(m);
        if (mine && f->phase == IN_BUCKET)
            act(m, run);
        if (muster_ddp_grad_ready(ddp, 0, NULL) != MUSTER_OK ||
            muster_ddp_sync(ddp, NULL) != MUSTER_OK)
            return muster_report(m);
    }
    if (rank == f->rank && f->phase == IN_FINALIZE)
        act(m, run);
    if (rank == f->rank && f->phase == ALL_IN_FINALIZE)
        forked_before_close(m, act_in_close, arg);
    if (rank == f->rank && f->phase == WITH_THE_LAST_RESULT)
        forked_before_close(m, act_with_last_result, arg);
    muster_ddp_destroy(ddp);
    return finalize(m, rank, run);
}

#define ONE_NODE                                                                       \
    {                                                                                  \
        .size = 4, .timeout = 1.5, .first_bucket = 256, .bucket_cap = 256              \
    }
#define TWO_NODES                                                                      \
    {                                                                                  \
        .size = 4, .nodes = 2, .timeout = 1.5, .first_bucket = 256, .bucket_cap = 256  \
    }
#define RETURNS                                                                        \
    {                                                                                  \
        .size = 4, .nodes = 2, .timeout = 1.5, .return_failure = true                  \
    }
#define SLOW_LIMIT                                                                     \
    {                                                                                  \
        .size = 4, .nodes = 2, .timeout = 2.5, .first_bucket = 256, .bucket_cap = 256  \
    }

static const struct fault faults[] = {
    { "kill -9 of a member", ONE_NODE, IN_BUCKET, KILL, 2, MUSTER_EPEER,
      "rank 2 (node a", 1.5 },
    { "kill -9 of rank 0", ONE_NODE, IN_BUCKET, KILL, 0, MUSTER_EPEER, "rank 0 (node a",
      2.5 },
    { "kill -9 of the first rank of another node", TWO_NODES, IN_BUCKET, KILL, 2,
      MUSTER_EPEER, "rank 2 (node b", 2.5 },
    { "kill -9 of the last rank of another node", TWO_NODES, BETWEEN_STEPS, KILL, 3,
      MUSTER_EPEER, "rank 3 (node b", 1.5 },
    { "exit(0) between steps", ONE_NODE, BETWEEN_STEPS, EXIT_0, 1, MUSTER_EPEER,
      "rank 1 (node a", 1.5 },
    { "exit(3) before finalize", TWO_NODES, IN_FINALIZE, EXIT_3, 3, MUSTER_EPEER,
      "rank 3 (node b", 1.5 },
    { "kill -9 when all ranks are in finalize", ONE_NODE, ALL_IN_FINALIZE, KILL, 2,
      MUSTER_EPEER, "rank 2 (node a", 1.5 },
    { "exit(0) of rank 0 when all ranks are in finalize", TWO_NODES, ALL_IN_FINALIZE,
      EXIT_0, 0, MUSTER_EPEER, "rank 0 (node a", 2.5 },
    { "kill -STOP when all ranks are in finalize", ONE_NODE, ALL_IN_FINALIZE, STOP, 2,
      MUSTER_ETIMEOUT, "rank 2 (node a) does not answer", 6 },
    { "kill -9 of a rank that has the last result of finalize", TWO_NODES,
      WITH_THE_LAST_RESULT, KILL, 2, 0, "", 1.5 },
    { "kill -9 of rank 0 when one rank has the last result of finalize", TWO_NODES,
      WITH_THE_LAST_RESULT, KILL, 0, 0, "", 1.5 },
    { "kill -STOP of a rank that has the last result of finalize", TWO_NODES,
      WITH_THE_LAST_RESULT, STOP, 2, 0, "", 8 },
    { "kill -STOP of rank 0 when one rank has the last result of finalize", TWO_NODES,
      WITH_THE_LAST_RESULT, STOP, 0, 0, "", 8 },
    { "the same, and the failure is returned: a rank", RETURNS, WITH_THE_LAST_RESULT,
      KILL, 2, 0, "", 1.5 },
    { "the same, and the failure is returned: rank 0", RETURNS, WITH_THE_LAST_RESULT,
      KILL, 0, 0, "", 1.5 },
    { "segmentation fault", ONE_NODE, IN_BUCKET, SEGV, 3, MUSTER_EPEER,
      "rank 3 (node a", 1.5 },
    { "kill -STOP of a member", ONE_NODE, IN_BUCKET, STOP, 2, MUSTER_ETIMEOUT,
      "rank 2 (node a) does not answer", 6 },
    { "kill -STOP of the first rank of another node", TWO_NODES, BETWEEN_STEPS, STOP, 2,
      MUSTER_ETIMEOUT, "rank 2 (node b) does not answer", 6 },
    { "kill -STOP of rank 0", ONE_NODE, IN_BUCKET, STOP, 0, MUSTER_ETIMEOUT,
      "rank 0 (node a", 10 },
    { "kill -STOP of rank 0 of two nodes", TWO_NODES, IN_BUCKET, STOP, 0,
      MUSTER_ETIMEOUT, "rank 0 (node a, pid ", 10 },
    { "case 057: a rank that stays away from a bucket", TWO_NODES, IN_BUCKET, STAY_AWAY,
      3, MUSTER_ETIMEOUT,
      "rank 3 (node b) has not entered bucket 1 of step 2; 3 others wait (rank 3 is "
      "reading data)",
      5 },
    { "a rank that stays away from finalize", ONE_NODE, IN_FINALIZE, STAY_AWAY, 1,
      MUSTER_ETIMEOUT, "rank 1 (node a) has not entered muster_finalize; 3 others wait",
      5 },
    { "case 057: a rank in another collective", TWO_NODES, IN_BUCKET, ELSEWHERE, 1, -1,
      "rank 1", 5 },
    { "a rank in a barrier, the others in a bucket", TWO_NODES, IN_BUCKET, BARRIER, 1,
      MUSTER_ECONTRACT,
      "rank 1 (node a) calls a barrier or an exchange of libmuster's own", 1.5 },
    { "muster_abort ends all with its status and reason", TWO_NODES, IN_BUCKET, GIVE_UP,
      3, 42, "rank 3 (node b) ended the job: the loss is not a number", 1.5 },
    { "muster_report names rank and node", TWO_NODES, BETWEEN_STEPS, LEAVE, 2,
      MUSTER_EUSAGE, "muster: rank 2 (node b): muster_extend: seconds is -1", 1.5 },
    { "exit behind a failed call ends all with its status and reason", TWO_NODES,
      BETWEEN_STEPS, LEAVE, 2, MUSTER_EUSAGE,
      "rank 2 (node b) ended the job: muster_extend: seconds is -1, use a number above "
      "0",
      1.5 },
    { "a slow rank below the deadline survives", SLOW_LIMIT, BETWEEN_STEPS, SLOW, 3, 0,
      "", 10 },
    { "row 15: a rank that extends the deadline survives", SLOW_LIMIT, BETWEEN_STEPS,
      EXTEND, 0, 0, "", 15 },
};

/* Where a rank waits: what ends the job at once does so far below any deadline. */
static bool needs_deadline(const struct fault *f)
{
    return f->status == MUSTER_ETIMEOUT || (f->status <= 0 && f->deed != KILL);
}

/* The statuses of those that ended by themselves; -1: any above 0. */
static bool status_is_right(const struct fault *f, int status)
{
    if (f->status == -1)
        return status > 0;
    return status == f->status || (f->status > 0 && status == 128 + SIGKILL);
}

/* Is there a line about that rank which does not name the guilty one? Where two ranks
 * call different things, one line names both.
 */
static bool accuses(const char *text, int rank, int guilty)
{
    const char *line = forked_sentence(text, rank), *named;
    char name[32];

    snprintf(name, sizeof name, "rank %d (", guilty);
    named = line ? strstr(line, name) : NULL;
    return line && (!named || named > line + strcspn(line, "\n"));
}

/* False: all is right, but late. */
static bool check(const struct fault *f, const struct forked_result *r, double deed_at,
                  double start)
{
    double last = 0;
    bool spoken = f->status == 0;

    for (int k = 0; k < f->world.size; k++) {
        if (r->seconds[k] > last)
            last = r->seconds[k];
        if (k == f->rank && (f->status != 0 || f->deed == KILL))
            continue;
        spoken |= f->status == -1 || r->status[k] == f->status;
        if (!status_is_right(f, r->status[k]))
            fail_msg("%s: rank %d ended with %d\n%s", f->name, k, r->status[k],
                     r->text);
    }
    if (!spoken)
        fail_msg("%s: nobody ended with %d\n%s", f->name, f->status, r->text);
    if (!strstr(r->text, f->expect))
        fail_msg("%s: '%s' is not in\n%s", f->name, f->expect, r->text);
    if (f->status == 0 && r->text[0])
        fail_msg("%s: printed\n%s", f->name, r->text);
    for (int k = 0; f->status > 0 && k < f->world.size; k++)
        if (k != f->rank && accuses(r->text, k, f->rank))
            fail_msg("%s: an innocent rank is named\n%s", f->name, r->text);
    last -= deed_at - start;
    print_message("# %.2f s: %s: %.*s\n", last, f->name, (int)strcspn(r->text, "\n"),
                  r->text);
    for (int k = 0; last > f->within * PATIENCE && k < f->world.size; k++)
        print_message("# rank %d: status %d at %.2f s\n", k, r->status[k],
                      r->seconds[k] - (deed_at - start));
    return last <= f->within * PATIENCE;
}

#define TIMES 3 /* a busy machine may be late once */

static void try_fault(const struct fault *f)
{
    struct done *done = forked_shared(sizeof *done);
    struct forked_world w = f->world;
    struct run run = { f, done, NULL };
    bool in_time = false;

    if (!needs_deadline(f))
        w.timeout = 300;
    for (int i = 0; i < TIMES && !in_time; i++) {
        struct forked_result r;
        double start = mu_clock_s();

        forked_run(&w, body, &run, 30, &r);
        in_time = check(f, &r, done->at, start);
        forked_clear(&r);
    }
    if (!in_time)
        fail_msg("%s: took longer than %.2f s, %d times", f->name, f->within, TIMES);
}

static void every_fault_ends_with_the_name_of_the_guilty_rank(void **state)
{
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++)
        try_fault(&faults[i]);
}

/* ---- A failure that a death may explain -------------------------------------------
 */

/* Shared. */
struct moments {
    _Atomic bool death_begins;
    _Atomic double failed_at; /* 0: not yet */
};

struct device {
    bool death;
    struct moments *at;
};

/* As the kernel ends a process that maps a GPU: the threads first, and the connections
 * a moment behind the failure of the neighbour's device.
 */
static void die_slowly(const struct device *device)
{
    pid_t victim = getpid();

    if (fork() == 0) {
        await_stop(victim);
        device->at->death_begins = true;
        while (device->at->failed_at == 0)
            mu_pause(0.001);
        mu_pause(0.3);
        kill(victim, SIGKILL);
        _exit(0);
    }
    raise(SIGSTOP);
}

static int device_body(struct muster *m, int rank, void *arg)
{
    const struct device *device = arg;
    float x = 1;
    int rc = MUSTER_OK;

    for (int i = 0; i < 3 && rc == MUSTER_OK; i++)
        rc = muster_allreduce(m, &x, 1, MUSTER_F32, MUSTER_SUM, NULL);
    if (rank == 1) {
        mu_pause(0.2);
        while (device->death && !device->at->death_begins)
            mu_pause(0.001);
        device->at->failed_at = mu_clock_s();
        mu_control_fail(m->comm.control, MUSTER_EDEVICE, -1, "a device has failed");
    }
    if (rank == 2 && device->death)
        die_slowly(device);
    if (rank == 2)
        mu_pause(20);
    if (rc == MUSTER_OK)
        rc = muster_barrier(m);
    return rc;
}

/* Seconds until all have ended. */
static double fail_device(bool death)
{
    struct forked_world w = { .size = 3, .timeout = 60 };
    struct device device = { death, forked_shared(sizeof *device.at) };
    double start = mu_clock_s(), took;
    struct forked_result r;
    const char *expect = death ? "rank 2 (node a, pid " : "a device has failed";

    forked_run(&w, device_body, &device, 30, &r);
    if (r.status[0] != (death ? MUSTER_EPEER : MUSTER_EDEVICE) ||
        !strstr(r.text, expect) || (death && strstr(r.text, "a device")))
        fail_msg("death %d: %d\n%s", death, r.status[0], r.text);
    took = r.seconds[0] - (device.at->failed_at - start);
    print_message("# %s: %.2f s\n", expect, took);
    forked_clear(&r);
    return took;
}

/* As NCCL on the neighbours of a rank that has died. */
static void a_failed_device_waits_for_the_death_behind_it(void **state)
{
    for (int death = 0; death < 2; death++) {
        double most = (death ? 3 : 0.9) * PATIENCE, took = most;

        for (int i = 0; i < TIMES && took >= most; i++)
            took = fail_device(death);
        assert_true(took < most);
    }
}

static void a_report_without_a_failure_is_a_defect(void **state)
{
    assert_int_equal(muster_report(NULL), MUSTER_EINTERNAL);
}

/* ---- on_failure=return -------------------------------------------------------------
 */

static int return_body(struct muster *m, int rank, void *arg)
{
    double *done_at = arg;
    float x = 1;
    int rc = MUSTER_OK;

    for (int i = 0; i < 100 && rc == MUSTER_OK; i++) {
        if (i == 3 && rank == 2) {
            *done_at = mu_clock_s();
            kill(getpid(), SIGKILL);
        }
        rc = muster_allreduce(m, &x, 1, MUSTER_F32, MUSTER_SUM, NULL);
    }
    RANK_CHECK(rc == MUSTER_EPEER);
    RANK_CHECK(strstr(muster_error(m), "rank 2"));
    RANK_CHECK(mu_clock_s() - *done_at < 0.5);
    RANK_CHECK(muster_barrier(m) == MUSTER_EPEER);
    RANK_CHECK(muster_finalize(m) == MUSTER_EPEER);
    return 0;
}

static void a_failure_can_be_returned_instead(void **state)
{
    double *done_at = forked_shared(sizeof *done_at);

    for (int nodes = 1; nodes <= 2; nodes++) {
        struct forked_world w = { .size = 4, .nodes = nodes, .return_failure = true };
        struct forked_result r;

        forked_run(&w, return_body, done_at, 30, &r);
        for (int k = 0; k < w.size; k++)
            if (r.status[k] != (k == 2 ? 128 + SIGKILL : 0))
                fail_msg("%d nodes: rank %d: %d\n%s", nodes, k, r.status[k], r.text);
        forked_clear(&r);
    }
}

/* ---- Ranks that never come
 * ----------------------------------------------------------- */

static int come_body(struct muster *m, int rank, void *arg)
{
    return m ? muster_finalize(m) : 96;
}

static void a_rank_that_never_starts_ends_the_job_at_the_init_deadline(void **state)
{
    struct forked_world w = { .size = 3, .init_timeout = 1, .skip = 1u << 1 };
    struct forked_result r;

    forked_run(&w, come_body, NULL, 30, &r);
    assert_int_equal(r.status[0], MUSTER_ERENDEZVOUS);
    assert_true(r.seconds[0] < 3);
    assert_non_null(strstr(r.text, "rank 1 did not arrive within 1 s"));
    forked_clear(&r);
}

/* ---- Two worlds ---- */

/* Rank 1 leaves the first of two worlds, in which the others compute. */
static int leaves_the_first(struct muster *m, int rank, void *arg)
{
    const bool *alone = arg; /* the second has been finalized */
    struct muster *second;

    RANK_OK(forked_second(m, &second));
    if (*alone)
        RANK_OK(muster_finalize(second));
    if (rank == 1) {
        RANK_CHECK(muster_extend(m, -1) == MUSTER_EUSAGE);
        exit(muster_report(m));
    }
    sleep(60);
    return 97;
}

static void the_first_of_two_worlds_gets_the_reason_of_a_rank_that_leaves(void **state)
{
    const struct forked_world w = { .size = 3 };
    struct forked_result r;

    for (int alone = 0; alone <= 1; alone++) {
        bool arg = alone;

        forked_run(&w, leaves_the_first, &arg, 30, &r);
        if (!strstr(r.text, "rank 1 (node a) ended the job: muster_extend: seconds"))
            fail_msg("%s: %s", alone ? "alone" : "beside another", r.text);
        forked_clear(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_fault_ends_with_the_name_of_the_guilty_rank),
        cmocka_unit_test(a_failed_device_waits_for_the_death_behind_it),
        cmocka_unit_test(a_report_without_a_failure_is_a_defect),
        cmocka_unit_test(a_failure_can_be_returned_instead),
        cmocka_unit_test(a_rank_that_never_starts_ends_the_job_at_the_init_deadline),
        cmocka_unit_test(the_first_of_two_worlds_gets_the_reason_of_a_rank_that_leaves),
    };

    return cmocka_run_group_tests_name("failure", tests, NULL, NULL);
}
