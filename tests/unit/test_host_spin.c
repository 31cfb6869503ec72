/* SPDX-License-Identifier: BSD-3-Clause */
/* test_host_spin.c - how long a rank looks for the others before it sleeps, on a clock
 * of the test: each look at it takes a microsecond, and nothing else takes time
 */
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <linux/futex.h>
#include <cmocka.h>

#include "runtime/backend/host/cores.h"
#include "runtime/base/clock.h"
#include "tests/unit/host_told.h"
#include "tests/unit/own_syscall.h"

#define ROUNDS 5
#define PATIENT 20 /* s until a rank that does not sleep is no longer waited for */

/* Of the thread that waits; others have the clock of the machine. */
static _Thread_local struct {
    int64_t now; /* ns, 0: the machine's */
    int looks;   /* at the clock since it began or slept */
    int most;    /* looks before a sleep */
    int sleeps;
    _Atomic int64_t *asleep; /* of all rounds, for the rank that is waited for */
} waits;

int clock_gettime(clockid_t clock, struct timespec *t)
{
    if (!waits.now || clock != CLOCK_MONOTONIC)
        return ((__typeof__(&clock_gettime))dlsym(RTLD_NEXT, "clock_gettime"))(clock,
                                                                               t);
    waits.looks++;
    waits.now += 1000;
    *t = (struct timespec){ waits.now / 1000000000, waits.now % 1000000000 };
    return 0;
}

static void falls_asleep(void)
{
    if (!waits.now)
        return;
    if (waits.looks > waits.most)
        waits.most = waits.looks;
    waits.looks = 0;
    waits.sleeps++;
    if (waits.sleeps == 1)
        ++*waits.asleep;
}

/* Where a rank sleeps in a collective. */
static bool syscall_answered(long number, const long *argument, long *result)
{
    if (number == SYS_futex && argument[1] == FUTEX_WAIT)
        falls_asleep();
    return false;
}

/* Where it sleeps for a message. */
int poll(struct pollfd *fds, nfds_t n, int timeout)
{
    if (timeout != 0)
        falls_asleep();
    return ((__typeof__(&poll))dlsym(RTLD_NEXT, "poll"))(fds, n, timeout);
}

struct waiting {
    bool share;   /* a core */
    bool message; /* wait for one, not for a sum */
};

static int pinned(const struct ranks_self *self, bool share)
{
    struct mu_cpuset cores;
    cpu_set_t set;
    int cpu;

    mu_cores_own(&cores);
    cpu = mu_cpuset_next(&cores, -1);
    if (self->rank == 1 && !share)
        cpu = mu_cpuset_next(&cores, cpu);
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    return sched_setaffinity(0, sizeof set, &set);
}

static struct mu_coll call(int rank, bool message, void *p)
{
    struct mu_coll pair = { .kind = MU_COLL_PAIR,
                            .dtype = MUSTER_BYTE,
                            .count = 1,
                            .recv_count = 1,
                            .to = -1,
                            .from = -1,
                            .scale = 1,
                            .what = "a message" };

    if (!message)
        return sum_of(p, 1);
    if (rank == 0) {
        pair.send = p;
        pair.to = 1;
    } else {
        pair.recv = p;
        pair.from = 0;
    }
    return pair;
}

static int move(struct ranks_self *self, struct mu_backend *b, bool message)
{
    struct mu_err err = { 0 };
    struct mu_request *rq;
    float x = 1;
    struct mu_coll c = call(self->rank, message, &x);

    c.joined = true;
    RANKS_CHECK(self, host->start(b, &c, &rq, &err) == 0, "%s", err.text);
    if (self->rank == 1) {
        waits.looks = waits.sleeps = 0;
        waits.now = mu_clock_ns();
    }
    RANKS_CHECK(self, host->join(b, rq, NULL, &err) == 0, "%s", err.text);
    waits.now = 0;
    return 0;
}

/* Rank 0 enters when rank 1 sleeps. */
static int rank_0_is_late(struct ranks_self *self, void *arg)
{
    const struct waiting *w = arg;
    struct mu_err err = { 0 };
    struct mu_backend *b;
    float x = 1;

    RANKS_CHECK(self, pinned(self, w->share) == 0, "no affinity");
    if (open_world(self, &b) != 0)
        return 1;
    RANKS_CHECK(self, reduce(b, &x, 1, &err) == 0, "%s", err.text);
    waits.asleep = self->results;
    for (int round = 0; round < ROUNDS; round++) {
        double until = mu_clock_s() + PATIENT;

        while (self->rank == 0 && self->results[0] <= round && mu_clock_s() < until)
            mu_pause(0.001);
        if (move(self, b, w->message) != 0)
            return 1;
        RANKS_CHECK(self, self->rank == 0 || waits.sleeps > 0, "round %d: no sleep",
                    round);
    }
    if (self->rank == 1 && w->share)
        RANKS_CHECK(self, waits.most < 5, "%d looks where cores are shared",
                    waits.most);
    if (self->rank == 1 && !w->share)
        RANKS_CHECK(self, waits.most >= 20 && waits.most <= 50,
                    "%d us of looking before the sleep", waits.most);
    host->close(b);
    return 0;
}

static void wait_for_rank_0(bool share, bool message)
{
    struct waiting waiting = { share, message };
    struct ranks_world w = { .n = 2 };
    struct mu_cpuset cores;

    mu_cores_own(&cores);
    if (!share && mu_cpuset_count(&cores) < 2) {
        printf("# SKIP one core\n");
        skip();
    }
    assert_int_equal(ranks_run(&w, rank_0_is_late, &waiting, NULL), 0);
}

static void a_rank_with_its_core_looks_20_to_50_us_and_sleeps(void **state)
{
    wait_for_rank_0(false, false);
}

static void a_receiver_with_its_core_looks_20_to_50_us_and_sleeps(void **state)
{
    wait_for_rank_0(false, true);
}

static void ranks_that_share_a_core_sleep_at_once(void **state)
{
    wait_for_rank_0(true, false);
}

static void a_receiver_that_shares_its_core_sleeps_at_once(void **state)
{
    wait_for_rank_0(true, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_with_its_core_looks_20_to_50_us_and_sleeps),
        cmocka_unit_test(a_receiver_with_its_core_looks_20_to_50_us_and_sleeps),
        cmocka_unit_test(ranks_that_share_a_core_sleep_at_once),
        cmocka_unit_test(a_receiver_that_shares_its_core_sleeps_at_once),
    };

    return cmocka_run_group_tests_name("host_spin", tests, NULL, NULL);
}
