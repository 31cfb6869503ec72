/* SPDX-License-Identifier: BSD-3-Clause */
/* host_told.c - a rank of the host backend that notes what it is told of failures */
#include "tests/unit/host_told.h"

#include <stdio.h>

#include "runtime/base/clock.h"

void sleep_ms(int ms)
{
    mu_pause(ms / 1e3);
}

struct told told;

static void on_failed(void *arg, int rank, int status, const char *why)
{
    told.at = mu_clock_ns();
    told.rank = rank;
    told.status = status;
    snprintf(told.why, sizeof told.why, "%s", why);
    told.calls++;
}

/* The thread that finds a failure tells it after it has woken the waiters. */
bool was_told(int rank, int status)
{
    for (int i = 0; i < 200 && !told.calls; i++)
        sleep_ms(10);
    return told.calls == 1 && told.rank == rank && told.status == status;
}

int open_world(struct ranks_self *self, struct mu_backend **b)
{
    struct mu_err err = { 0 };

    self->env.failed = on_failed;
    RANKS_CHECK(self, host->open(&self->env, b, &err) == 0, "%s", err.text);
    return 0;
}

struct mu_coll sum_of(void *p, size_t count)
{
    return (struct mu_coll){ .kind = MU_COLL_ALLREDUCE,
                             .send = p,
                             .recv = p,
                             .count = count,
                             .scale = 1,
                             .what = "bucket 7 of step 1204" };
}

int reduce(struct mu_backend *b, void *p, size_t count, struct mu_err *err)
{
    struct mu_coll c = sum_of(p, count);
    struct mu_request *rq;

    if (host->start(b, &c, &rq, err) < 0)
        return -1;
    return host->join(b, rq, NULL, err);
}
