/* SPDX-License-Identifier: BSD-3-Clause */
/* test_host_link.c - a link between two nodes that goes dead is found in time */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <sched.h>

#include "runtime/base/clock.h"
#include "tests/unit/host_told.h"

#define LINK_TIMEOUT 2.0

/* %d in the command is the process id of rank 1: names that nobody else uses. */
static bool run(const struct ranks_self *self, const char *fmt)
{
    char command[256];
    int pid = (int)self->pids[1];

    snprintf(command, sizeof command, fmt, pid, pid, pid);
    return system(command) == 0;
}

/* Rank 1 in a network namespace of its own, a virtual cable between the two.
 * results[0]: how far they are, [1]: when the cable was cut, [2]: no privilege.
 */
static int lay_cable(struct ranks_self *self)
{
    if (self->rank == 1) {
        if (unshare(CLONE_NEWNET) < 0)
            self->results[2] = 1;
        self->results[0] = 1;
        while (self->results[0] < 2 && !self->results[2])
            sleep_ms(1);
        return self->results[2] || !run(self, "ip addr add 198.18.77.2/24 dev mub%d") ||
               !run(self, "ip link set mub%d up");
    }
    while (self->results[0] < 1)
        sleep_ms(1);
    if (self->results[2] ||
        !run(self,
             "ip link add mua%d type veth peer name mub%d netns %d 2>/dev/null")) {
        self->results[2] = 1;
        return 1;
    }
    if (!run(self, "ip addr add 198.18.77.1/24 dev mua%d") ||
        !run(self, "ip link set mua%d up"))
        return 1;
    self->results[0] = 2;
    return 0;
}

static int cut_cable(struct ranks_self *self, void *arg)
{
    bool idle = *(bool *)arg;
    size_t count = 8u << 20;
    struct mu_backend *b;
    struct mu_err err = { 0 };
    struct mu_request *rq;
    float *p = calloc(count, 4);
    double took;

    if (lay_cable(self) != 0)
        return self->results[2] ? 0 : 1;
    RANKS_CHECK(self,
                ranks_meet(self, self->rank == 0 ? "198.18.77.1" : "198.18.77.2") == 0,
                "meet");
    if (open_world(self, &b) != 0)
        return 1;
    RANKS_CHECK(self, reduce(b, p, 1000, &err) == 0, "%s", err.text);
    if (!idle) {
        struct mu_coll c = sum_of(p, count);

        RANKS_CHECK(self, host->start(b, &c, &rq, &err) == 0, "%s", err.text);
    }
    if (self->rank == 1) {
        self->results[1] = mu_clock_ns();
        RANKS_CHECK(self, run(self, "ip link set mub%d down"), "ip link set down");
    }
    if (!idle)
        RANKS_CHECK(self, host->join(b, rq, NULL, &err) < 0, "it got through");
    for (int i = 0; i < 800 && !told.calls; i++)
        sleep_ms(10);
    took = (double)(told.at - self->results[1]) / 1e9;
    RANKS_CHECK(self, told.calls == 1 && told.rank == 1 - self->rank,
                "told %d times: %s", told.calls, told.why);
    /* Both ends look on their own; the one that is later may hear of it from nobody. */
    RANKS_CHECK(self, took < LINK_TIMEOUT + 0.5, "found after %.2f s: %s", took,
                told.why);
    printf("# rank %d, %s: %s after %.2f s\n", self->rank, idle ? "idle" : "in flight",
           told.why, took);
    host->close(b);
    free(p);
    if (self->rank == 0)
        run(self, "ip link del mua%d 2>/dev/null");
    return 0;
}

static void a_dead_link_is_found_within_the_link_timeout(void **state)
{
    for (int i = 0; i < 2; i++) {
        struct ranks_world w = { .n = 2, .timeout = 30, .link_timeout = LINK_TIMEOUT };
        int64_t results[MU_FORK_RESULTS] = { 0 };
        bool idle = i == 1;
        int bad = 1;

        w.results = results;
        /* Other programs may hold the processors: one of a few tries is in time. */
        for (int try = 0; try < 4 && bad; try++) {
            memset(results, 0, sizeof results);
            bad = ranks_run(&w, cut_cable, &idle, NULL);
        }
        if (results[2]) {
            printf("# no privilege to make a network namespace\n");
            skip();
        }
        if (bad)
            fail_msg("%s", idle ? "idle" : "in flight");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_dead_link_is_found_within_the_link_timeout),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
