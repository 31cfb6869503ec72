/* SPDX-License-Identifier: BSD-3-Clause */
/* bucket.c - cut a list of gradients into buckets */
#include "runtime/core/bucket.h"

#include <stdint.h>
#include <stdlib.h>

#include "runtime/core/bucket_cut.h"
#include "runtime/core/dtype.h"

#define NDTYPES (MUSTER_BYTE + 1)
/* What one more bucket costs the host: it must save a longer wait than this. */
#define SLACK_US 1.0

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
        return mu_err_set(err, MUSTER_EUSAGE,
                          "parameter %d has %zu elements, which is too many", i,
                          item->count);
    return 0;
}

static int nth_arrival(const struct mu_bucket_rule *rule, int n, int k)
{
    return rule->order ? rule->order[k] : n - 1 - k;
}

static size_t padded(const struct mu_bucket_item *item)
{
    return round_up(item->count * mu_dtype_size(item->dtype), MU_BUCKET_ALIGN);
}

/* Without a curve: close[k] is true where the next gradient of the same dtype would
 * exceed the cap.
 */
static void close_by_size(const struct mu_bucket_item *items, int n,
                          const struct mu_bucket_rule *rule, bool *close)
{
    size_t filled[NDTYPES] = { 0 }, cap[NDTYPES];
    int before[NDTYPES];

    for (int t = 0; t < NDTYPES; t++) {
        before[t] = -1;
        cap[t] = rule->first_bytes;
    }
    for (int k = 0; k < n; k++) {
        const struct mu_bucket_item *item = &items[nth_arrival(rule, n, k)];
        enum muster_dtype t = item->dtype;

        if (filled[t] > 0 && filled[t] + padded(item) > cap[t]) {
            close[before[t]] = true;
            filled[t] = 0;
            cap[t] = rule->cap_bytes;
        }
        filled[t] += padded(item);
        before[t] = k;
    }
}

/* The gradients of one dtype, in the order of arrival. */
struct arrivals {
    size_t *bytes;
    double *ready;
    int *at; /* index among the gradients of all dtypes */
    bool *last;
};

static int cut_dtype(const struct mu_bucket_item *items, int n, enum muster_dtype dtype,
                     const struct mu_bucket_rule *rule, double us_per_byte,
                     struct arrivals *arrivals, bool *close, struct mu_err *err)
{
    struct mu_bucket_load load = { 0,           arrivals->bytes, arrivals->ready,
                                   rule->curve, rule->cap_bytes, SLACK_US };
    double arrived = 0;

    for (int k = 0; k < n; k++) {
        const struct mu_bucket_item *item = &items[nth_arrival(rule, n, k)];

        arrived += (double)padded(item);
        if (item->dtype != dtype)
            continue;
        arrivals->bytes[load.n] = padded(item);
        arrivals->ready[load.n] = arrived * us_per_byte;
        arrivals->at[load.n++] = k;
    }
    if (mu_bucket_cut(&load, arrivals->last, NULL, err) < 0)
        return -1;
    for (int i = 0; i < load.n; i++)
        close[arrivals->at[i]] = arrivals->last[i];
    return 0;
}

static int close_by_curve(const struct mu_bucket_item *items, int n,
                          const struct mu_bucket_rule *rule, bool *close,
                          struct mu_err *err)
{
    double us = mu_curve_time(rule->curve, (double)rule->cap_bytes);
    double us_per_byte =
        rule->us_per_byte > 0 ? rule->us_per_byte : 2 * us / (double)rule->cap_bytes;
    size_t room = (size_t)n + 1;
    struct arrivals arrivals = { calloc(room, sizeof *arrivals.bytes),
                                 calloc(room, sizeof *arrivals.ready),
                                 calloc(room, sizeof *arrivals.at),
                                 calloc(room, sizeof *arrivals.last) };
    int rc = -1;

    if (!arrivals.bytes || !arrivals.ready || !arrivals.at || !arrivals.last) {
        mu_err_set(err, MUSTER_EMEMORY, "out of memory for %d gradients", n);
        goto out;
    }
    for (int t = 0; t < NDTYPES; t++)
        if (cut_dtype(items, n, (enum muster_dtype)t, rule, us_per_byte, &arrivals,
                      close, err) < 0)
            goto out;
    rc = 0;
out:
    free(arrivals.bytes);
    free(arrivals.ready);
    free(arrivals.at);
    free(arrivals.last);
    return rc;
}

/* There is one open bucket for each dtype. */
static void fill(const struct mu_bucket_item *items, const struct mu_bucket_rule *rule,
                 const bool *close, struct mu_bucket_plan *plan)
{
    int open[NDTYPES];

    for (int t = 0; t < NDTYPES; t++)
        open[t] = -1;
    for (int k = 0; k < plan->nparams; k++) {
        int i = nth_arrival(rule, plan->nparams, k);
        enum muster_dtype t = items[i].dtype;
        struct mu_bucket_info *b;

        if (open[t] < 0)
            open[t] = plan->nbuckets++;
        b = &plan->bucket[open[t]];
        b->dtype = t;
        plan->place[i].bucket = open[t];
        plan->place[i].offset = b->bytes;
        b->bytes += padded(&items[i]);
        b->nparams++;
        b->last_at = k;
        if (close[k])
            open[t] = -1;
    }
}

/* Insertion sort by completion. */
static void order_by_completion(struct mu_bucket_plan *plan, int *old_number)
{
    for (int b = 0; b < plan->nbuckets; b++) {
        struct mu_bucket_info info = plan->bucket[b];
        int at = b;

        for (; at > 0 && plan->bucket[at - 1].last_at > info.last_at; at--) {
            plan->bucket[at] = plan->bucket[at - 1];
            old_number[at] = old_number[at - 1];
        }
        plan->bucket[at] = info;
        old_number[at] = b;
    }
}

static int renumber(struct mu_bucket_plan *plan, struct mu_err *err)
{
    size_t n = (size_t)plan->nbuckets + 1;
    int *old_number = calloc(n, sizeof *old_number),
        *new_number = calloc(n, sizeof *new_number);

    if (!old_number || !new_number) {
        free(old_number);
        free(new_number);
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory for %d buckets",
                          plan->nbuckets);
    }
    order_by_completion(plan, old_number);
    for (int b = 0; b < plan->nbuckets; b++)
        new_number[old_number[b]] = b;
    for (int i = 0; i < plan->nparams; i++)
        plan->place[i].bucket = new_number[plan->place[i].bucket];
    free(old_number);
    free(new_number);
    return 0;
}

/* Close the buckets before and behind a gradient that is alone. */
static void set_apart(const struct mu_bucket_item *items, int n,
                      const struct mu_bucket_rule *rule, bool *close)
{
    int before[NDTYPES];

    for (int t = 0; t < NDTYPES; t++)
        before[t] = -1;
    for (int k = 0; rule->alone && k < n; k++) {
        int i = nth_arrival(rule, n, k), *last = &before[items[i].dtype];

        if (rule->alone[i] && *last >= 0)
            close[*last] = true;
        close[k] |= rule->alone[i];
        *last = k;
    }
}

static int cut(const struct mu_bucket_item *items, int n,
               const struct mu_bucket_rule *rule, bool *close, struct mu_err *err)
{
    if (rule->curve && rule->curve->n > 0)
        return close_by_curve(items, n, rule, close, err);
    close_by_size(items, n, rule, close);
    return 0;
}

int mu_bucket_plan_make(const struct mu_bucket_item *items, int n,
                        const struct mu_bucket_rule *rule, struct mu_bucket_plan *out,
                        struct mu_err *err)
{
    struct mu_bucket_plan plan = { .nparams = n };
    bool *close = calloc((size_t)n + 1, sizeof *close);

    plan.place = calloc((size_t)n + 1, sizeof *plan.place);
    plan.bucket = calloc((size_t)n + 1, sizeof *plan.bucket);
    if (!close || !plan.place || !plan.bucket) {
        mu_err_set(err, MUSTER_EMEMORY, "out of memory for the plan of %d parameters",
                   n);
        goto fail;
    }
    for (int i = 0; i < n; i++)
        if (check_item(&items[i], i, err) < 0)
            goto fail;
    if (cut(items, n, rule, close, err) < 0)
        goto fail;
    set_apart(items, n, rule, close);
    fill(items, rule, close, &plan);
    if (renumber(&plan, err) < 0)
        goto fail;
    for (int b = 0; b < plan.nbuckets; b++)
        plan.bucket[b].bytes =
            round_up(plan.bucket[b].bytes, MU_BUCKET_ALIGN * (size_t)rule->granule);
    free(close);
    *out = plan;
    return 0;
fail:
    free(close);
    mu_bucket_plan_clear(&plan);
    return -1;
}

bool mu_bucket_is_order(const int *order, int n)
{
    bool *seen = calloc((size_t)n + 1, sizeof *seen);
    int k = 0;

    while (seen && k < n && order[k] >= 0 && order[k] < n && !seen[order[k]])
        seen[order[k++]] = true;
    free(seen);
    return k == n;
}

void mu_bucket_starts(const struct mu_bucket_plan *plan, const int *arrival,
                      int *started)
{
    /* From the end: a bucket is complete with the last of its gradients. */
    int left = plan->nbuckets;

    for (int k = plan->nparams - 1; k >= 0; k--) {
        int b = plan->place[arrival[k]].bucket, s = left;

        while (s < plan->nbuckets && started[s] != b)
            s++;
        if (s == plan->nbuckets)
            started[--left] = b;
    }
}

void mu_bucket_plan_clear(struct mu_bucket_plan *plan)
{
    free(plan->place);
    free(plan->bucket);
    *plan = (struct mu_bucket_plan){ 0 };
}
