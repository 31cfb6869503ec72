/* SPDX-License-Identifier: BSD-3-Clause */
/* ready.c - which bucket may start: it is complete, and those before it have started */
#include "runtime/core/ready.h"

#include <stdlib.h>
#include <string.h>

int mu_ready_init(struct mu_ready *ready, const struct mu_bucket_plan *plan,
                  struct mu_err *err)
{
    struct mu_ready r = { .plan = plan };

    r.pending = calloc((size_t)plan->nbuckets + 1, sizeof *r.pending);
    r.marked = calloc((size_t)plan->nparams + 1, sizeof *r.marked);
    r.order = calloc((size_t)plan->nbuckets + 1, sizeof *r.order);
    if (!r.pending || !r.marked || !r.order) {
        mu_ready_clear(&r);
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory for %d buckets",
                          plan->nbuckets);
    }
    for (int b = 0; b < plan->nbuckets; b++)
        r.order[b] = b;
    mu_ready_reset(&r);
    *ready = r;
    return 0;
}

void mu_ready_clear(struct mu_ready *ready)
{
    free(ready->pending);
    free(ready->marked);
    free(ready->order);
    *ready = (struct mu_ready){ 0 };
}

void mu_ready_reset(struct mu_ready *ready)
{
    for (int b = 0; b < ready->plan->nbuckets; b++)
        ready->pending[b] = ready->plan->bucket[b].nparams;
    memset(ready->marked, 0, (size_t)ready->plan->nparams * sizeof *ready->marked);
    ready->next = 0;
}

bool mu_ready_mark(struct mu_ready *ready, int param)
{
    if (ready->marked[param])
        return false;
    ready->marked[param] = true;
    ready->pending[ready->plan->place[param].bucket]--;
    return true;
}

size_t mu_ready_between(const struct mu_ready *ready)
{
    size_t bytes = 0;

    for (int k = ready->next; k + 1 < ready->plan->nbuckets; k++)
        bytes += ready->plan->bucket[ready->order[k]].bytes;
    return bytes;
}

int mu_ready_take(struct mu_ready *ready)
{
    if (ready->next >= ready->plan->nbuckets ||
        ready->pending[ready->order[ready->next]] > 0)
        return -1;
    return ready->order[ready->next++];
}
