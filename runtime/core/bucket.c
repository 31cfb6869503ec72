/* SPDX-License-Identifier: BSD-3-Clause */
/* bucket.c - cut a list of gradients into buckets; no CUDA, no NCCL */
#include "runtime/core/bucket.h"

#include <stdint.h>
#include <stdlib.h>

#include "runtime/core/dtype.h"

#define NDTYPES (MUSTER_I64 + 1)

static size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

static int check_item(const struct mu_bucket_item *item, int i, struct mu_err *err)
{
    size_t size = mu_dtype_size(item->dtype);

    if (size == 0)
        return mu_err_set(err, MUSTER_EUSAGE, "parameter %d has the unknown dtype %d",
                          i, (int)item->dtype);
    if (item->count > SIZE_MAX / 16 / size)
        return mu_err_set(err, MUSTER_EUSAGE, "parameter %d has %zu elements", i,
                          item->count);
    return 0;
}

/* Walk from the last gradient to the first with one open bucket for each dtype. */
static void fill(const struct mu_bucket_item *items, size_t first_bytes,
                 size_t cap_bytes, struct mu_bucket_plan *plan)
{
    int open[NDTYPES];
    size_t cap[NDTYPES];

    for (int t = 0; t < NDTYPES; t++) {
        open[t] = -1;
        cap[t] = first_bytes;
    }
    for (int i = plan->nparams - 1; i >= 0; i--) {
        enum muster_dtype t = items[i].dtype;
        size_t bytes = round_up(items[i].count * mu_dtype_size(t), MU_BUCKET_ALIGN);
        struct mu_bucket_info *b = open[t] < 0 ? NULL : &plan->bucket[open[t]];

        if (!b || (b->bytes > 0 && b->bytes + bytes > cap[t])) {
            if (b)
                cap[t] = cap_bytes;
            open[t] = plan->nbuckets++;
            b = &plan->bucket[open[t]];
            b->dtype = t;
        }
        plan->place[i].bucket = open[t];
        plan->place[i].offset = b->bytes;
        b->bytes += bytes;
        b->nparams++;
        b->last_param = i;
    }
}

/* Insertion sort by completion; `was` tells the old number of each bucket. */
static void order_by_completion(struct mu_bucket_plan *plan, int *was)
{
    for (int b = 0; b < plan->nbuckets; b++) {
        struct mu_bucket_info info = plan->bucket[b];
        int at = b;

        for (; at > 0 && plan->bucket[at - 1].last_param < info.last_param; at--) {
            plan->bucket[at] = plan->bucket[at - 1];
            was[at] = was[at - 1];
        }
        plan->bucket[at] = info;
        was[at] = b;
    }
}

static int renumber(struct mu_bucket_plan *plan, struct mu_err *err)
{
    size_t n = (size_t)plan->nbuckets + 1;
    int *was = calloc(n, sizeof *was), *now = calloc(n, sizeof *now);

    if (!was || !now) {
        free(was);
        free(now);
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory for %d buckets",
                          plan->nbuckets);
    }
    order_by_completion(plan, was);
    for (int b = 0; b < plan->nbuckets; b++)
        now[was[b]] = b;
    for (int i = 0; i < plan->nparams; i++)
        plan->place[i].bucket = now[plan->place[i].bucket];
    free(was);
    free(now);
    return 0;
}

int mu_bucket_plan_make(const struct mu_bucket_item *items, int n, size_t first_bytes,
                        size_t cap_bytes, int granule, struct mu_bucket_plan *out,
                        struct mu_err *err)
{
    struct mu_bucket_plan plan = { .nparams = n };

    for (int i = 0; i < n; i++)
        if (check_item(&items[i], i, err) < 0)
            return -1;
    plan.place = calloc((size_t)n + 1, sizeof *plan.place);
    plan.bucket = calloc((size_t)n + 1, sizeof *plan.bucket);
    if (!plan.place || !plan.bucket) {
        mu_err_set(err, MUSTER_EMEMORY, "out of memory for the plan of %d parameters",
                   n);
        goto fail;
    }
    fill(items, first_bytes, cap_bytes, &plan);
    if (renumber(&plan, err) < 0)
        goto fail;
    for (int b = 0; b < plan.nbuckets; b++)
        plan.bucket[b].bytes =
            round_up(plan.bucket[b].bytes, MU_BUCKET_ALIGN * (size_t)granule);
    *out = plan;
    return 0;
fail:
    mu_bucket_plan_clear(&plan);
    return -1;
}

void mu_bucket_plan_clear(struct mu_bucket_plan *plan)
{
    free(plan->place);
    free(plan->bucket);
    *plan = (struct mu_bucket_plan){ 0 };
}
