/* SPDX-License-Identifier: BSD-3-Clause */
/* test_host_idle.c - what the host backend takes of its machine: processor
 * time, calls of the kernel and memory
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <cmocka.h>

#include "runtime/base/clock.h"
#include "tests/unit/both_transports.h"
#include "tests/unit/own_syscall.h"
#include "tests/unit/ranks.h"

/* ---- idle ---- */

static double cpu_seconds(void)
{
    struct rusage u;

    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

/* A sanitizer's own threads and shadow memory would be measured too. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MEASURED false
#else
#define MEASURED true
#endif

#define MOST 0.001 /* of a processor */
#define ROUNDS 3   /* the kernel may account somebody else's time to a rank once */

/* Shares of a processor, in 2 s each: *waiting while rank 0 comes late. */
static int measure(struct ranks_self *self, struct mu_backend *b, double *idle,
                   double *waiting)
{
    struct mu_err err = { 0 };
    double before = cpu_seconds();
    float x = 1;

    mu_pause(2);
    *idle = (cpu_seconds() - before) / 2;
    before = cpu_seconds();
    if (self->rank == 0)
        mu_pause(2);
    RANKS_CHECK(self, reduce(b, &x, 1, &err) == 0, "%s", err.text);
    *waiting = (cpu_seconds() - before) / 2;
    return 0;
}

static int idles(struct ranks_self *self, void *arg)
{
    struct mu_err err = { 0 };
    struct mu_backend *b;
    double idle = 1, waiting = 1;
    bool late = true;
    float x = 1;

    RANKS_CHECK(self, host->open(&self->env, &b, &err) == 0, "%s", err.text);
    RANKS_CHECK(self, reduce(b, &x, 1, &err) == 0, "%s", err.text);
    mu_pause(0.1);
    for (int round = 0; round < ROUNDS && late; round++) {
        if (measure(self, b, &idle, &waiting) != 0)
            return 1;
        self->results[1 + round] += idle >= MOST || waiting >= MOST;
        meet_at(self, round + 1);
        late = self->results[1 + round] > 0;
    }
    RANKS_CHECK(self, idle < MOST, "%.3f %% of a processor while idle", 100 * idle);
    RANKS_CHECK(self, waiting < MOST, "%.3f %% of a processor in a wait",
                100 * waiting);
    if (self->rank == 1)
        printf("# %s: %.4f %% of a processor idle, %.4f %% waiting\n",
               host->transport(b), 100 * idle, 100 * waiting);
    host->close(b);
    return 0;
}

static void idle_and_waiting_ranks_sleep(void **state)
{
    if (!MEASURED)
        skip();
    in_both_transports(idles);
}

/* ---- calls of the kernel ---- */

static _Atomic int syscalls;

/* The backend wakes a caller in join so. */
static bool syscall_answered(long number, const long *argument, long *result)
{
    syscalls++;
    return false;
}

/* The other ranks have entered before rank 0 joins, so it finds all there and no rank
 * sleeps.
 */
static int wakes_nobody(struct ranks_self *self, void *arg)
{
    struct mu_err err = { 0 };
    struct mu_backend *b;
    struct mu_request *rq;
    float x = 1;
    struct mu_coll c = { .kind = MU_COLL_ALLREDUCE,
                         .send = &x,
                         .recv = &x,
                         .count = 1,
                         .scale = 1,
                         .joined = true };
    int before, calls = 0;

    RANKS_CHECK(self, host->open(&self->env, &b, &err) == 0, "%s", err.text);
    for (int round = 0; round < 10; round++) {
        RANKS_CHECK(self, host->start(b, &c, &rq, &err) == 0, "%s", err.text);
        if (self->rank > 0)
            RANKS_CHECK(self, host->join(b, rq, NULL, &err) == 0, "%s", err.text);
        meet_at(self, round + 1);
        before = syscalls;
        if (self->rank == 0)
            RANKS_CHECK(self, host->join(b, rq, NULL, &err) == 0, "%s", err.text);
        calls += syscalls - before;
    }
    RANKS_CHECK(self, calls == 0, "%d calls in 10 joins", calls);
    host->close(b);
    return 0;
}

static void a_caller_that_is_awake_is_not_woken(void **state)
{
    in_both_transports(wakes_nobody);
}

/* ---- memory ---- */

static long pages_of(const char *field)
{
    FILE *f = fopen("/proc/self/status", "r");
    char line[256];
    long kib = -1;

    while (fgets(line, sizeof line, f))
        if (strncmp(line, field, strlen(field)) == 0)
            kib = atol(line + strlen(field));
    fclose(f);
    return kib;
}

/* What this rank holds beside the arena: its own private pages, and its share of the
 * segment (all ranks' slots are mapped, each rank's are its own).
 */
static int memory(struct ranks_self *self, void *arg)
{
    struct mu_err err = { 0 };
    struct mu_backend *b;
    size_t count = 4u << 20;
    long private, shared;
    float *p = malloc(count * 4);

    for (size_t i = 0; i < count; i++)
        p[i] = 1;
    private = pages_of("RssAnon:");
    shared = pages_of("RssShmem:");
    RANKS_CHECK(self, host->open(&self->env, &b, &err) == 0, "%s", err.text);
    RANKS_CHECK(self, reduce(b, p, count, &err) == 0, "%s", err.text);
    private = pages_of("RssAnon:") - private;
    shared = (pages_of("RssShmem:") - shared) / self->size;
    RANKS_CHECK(self, private + shared <= 8192, "%ld KiB private, %ld KiB shared",
                private, shared);
    RANKS_CHECK(self, private + shared > 500, "%ld KiB private, %ld KiB shared?",
                private, shared);
    host->close(b);
    free(p);
    return 0;
}

static void at_most_8_mib_beside_the_arena(void **state)
{
    if (!MEASURED)
        skip();
    in_both_transports(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(idle_and_waiting_ranks_sleep),
        cmocka_unit_test(a_caller_that_is_awake_is_not_woken),
        cmocka_unit_test(at_most_8_mib_beside_the_arena),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
