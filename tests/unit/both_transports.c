/* SPDX-License-Identifier: BSD-3-Clause */
/* both_transports.c - a body on three ranks in shared memory and by TCP */
#include "tests/unit/both_transports.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "runtime/base/clock.h"

void in_both_transports(ranks_body *body)
{
    for (int tcp = 0; tcp < 2; tcp++) {
        struct ranks_world w = { .n = 3, .force_tcp = tcp };

        if (ranks_run(&w, body, NULL, NULL) != 0)
            fail_msg("%s", tcp ? "TCP" : "shared memory");
    }
}

int reduce(struct mu_backend *b, float *p, size_t count, struct mu_err *err)
{
    struct mu_coll c = {
        .kind = MU_COLL_ALLREDUCE, .send = p, .recv = p, .count = count, .scale = 1
    };
    struct mu_request *rq;

    if (host->start(b, &c, &rq, err) < 0)
        return -1;
    return host->join(b, rq, NULL, err);
}

void meet_at(struct ranks_self *self, int n)
{
    self->results[0]++;
    while (self->results[0] < n * self->size)
        mu_pause(0.001);
}
