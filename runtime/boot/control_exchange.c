/* SPDX-License-Identifier: BSD-3-Clause */
/* control_exchange.c - an exchange over control connections that are open */
#include "runtime/boot/control_exchange.h"

#include <string.h>

#include "runtime/muster.h"

/* The deadline of control is that of the call. */
static int gather(void *arg, const void *mine, size_t len, void *all, double timeout,
                  struct mu_err *err)
{
    struct mu_control_exchange *x = arg;
    struct mu_err ignored = { 0 };
    struct mu_gathered got;
    int rc = 0;

    (void)timeout;
    err = err ? err : &ignored;
    if (mu_control_gather(x->control, x->what, mine, len, &got, err) < 0)
        return -1;
    for (int r = 0; rc == 0 && r < x->published.size; r++) {
        if (got.len[r] == len)
            memcpy((char *)all + (size_t)r * len, got.at[r], len);
        else
            rc = mu_err_set(err, MUSTER_ECONTRACT,
                            "%s: rank %d (node %s) sent %zu bytes, not %zu", x->what, r,
                            x->published.host_of[r], got.len[r], len);
    }
    mu_gathered_clear(&got);
    return rc;
}

struct mu_exchange mu_control_exchange(struct mu_control_exchange *x,
                                       struct mu_control *control, const char *what,
                                       const struct mu_world *world)
{
    *x = (struct mu_control_exchange){ .control = control,
                                       .what = what,
                                       .published = { .rank = world->rank,
                                                      .size = world->size,
                                                      .gather = gather,
                                                      .arg = x,
                                                      .host_of = world->host_of } };
    return mu_published_exchange(&x->published);
}
