/* SPDX-License-Identifier: BSD-3-Clause */
/* ddp_plan.c - how large buckets are, and their places in the arena */
#include "runtime/ddp/ddp.h"

#include <stdlib.h>

#include "runtime/core/dtype.h"

/* A bucket is large enough when it reaches this share of the rate of MOST bytes. */
#define KNEE 0.9
#define MOST ((size_t)64 << 20)

static size_t first_of(size_t option, size_t variable, size_t otherwise)
{
    return option ? option : variable ? variable : otherwise;
}

struct mu_ddp_rule mu_ddp_rule(const struct muster_ddp *ddp,
                               const struct muster_ddp_options *options)
{
    const struct mu_config *c = &ddp->comm->config;
    const struct mu_backend_ops *ops = ddp->comm->ops;
    struct mu_ddp_rule r = { 0 };
    bool asked = options->first_bucket || options->bucket_cap || c->first_bucket ||
                 c->bucket_cap;

    if (!asked && ops->curve)
        ops->curve(ddp->comm->backend, &r.curve);
    r.cap = first_of(options->bucket_cap, c->bucket_cap,
                     r.curve.n ? mu_curve_knee(&r.curve, KNEE, MOST) : MU_BUCKET_CAP);
    r.first = first_of(options->first_bucket, c->first_bucket, MU_BUCKET_FIRST);
    if (r.first > r.cap)
        r.first = r.cap;
    r.backward_us = options->backward * 1e6;
    return r;
}

int mu_ddp_plan_make(const struct muster_ddp *ddp, const int *order,
                     struct mu_bucket_plan *out, struct mu_err *err)
{
    struct mu_bucket_item *items = calloc((size_t)ddp->nparams + 1, sizeof *items);
    bool *alone = calloc((size_t)ddp->nparams + 1, sizeof *alone);
    struct mu_bucket_rule rule = { .first_bytes = ddp->rule.first,
                                   .cap_bytes = ddp->rule.cap,
                                   .granule = ddp->shard ? ddp->comm->world->size : 1,
                                   .order = order,
                                   .curve = &ddp->rule.curve,
                                   .alone = alone };
    double total = 0;
    int rc = 0;

    if (!items || !alone)
        rc = mu_err_set(err, MUSTER_EMEMORY, "out of memory for %d parameters",
                        ddp->nparams);
    for (int i = 0; rc == 0 && i < ddp->nparams; i++) {
        items[i].count = ddp->param[i].count;
        items[i].dtype = ddp->param[i].dtype;
        alone[i] = ddp->param[i].by_row != NULL;
        total += (double)items[i].count * (double)mu_dtype_size(items[i].dtype);
    }
    rule.us_per_byte = total > 0 ? ddp->rule.backward_us / total : 0;
    if (rc == 0)
        rc = mu_bucket_plan_make(items, ddp->nparams, &rule, out, err);
    free(items);
    free(alone);
    return rc;
}

void mu_ddp_buckets_free(struct mu_ddp_bucket *bucket, int n)
{
    for (int b = 0; bucket && b < n; b++) {
        free(bucket[b].param);
        free(bucket[b].piece);
        free(bucket[b].started);
    }
    free(bucket);
}

/* Allocate what a bucket keeps of each of its parameters. */
static struct mu_ddp_bucket *make_list(const struct mu_bucket_plan *plan,
                                       struct mu_err *err)
{
    struct mu_ddp_bucket *list = calloc((size_t)plan->nbuckets + 1, sizeof *list);

    for (int b = 0; list && b < plan->nbuckets; b++) {
        size_t n = (size_t)plan->bucket[b].nparams;

        list[b].param = calloc(n, sizeof *list[b].param);
        list[b].piece = calloc(n, sizeof *list[b].piece);
        list[b].started = calloc(n + 2, sizeof *list[b].started);
        if (!list[b].param || !list[b].piece || !list[b].started) {
            mu_ddp_buckets_free(list, plan->nbuckets);
            list = NULL;
        }
    }
    if (!list)
        mu_err_set(err, MUSTER_EMEMORY, "out of memory for %d buckets", plan->nbuckets);
    return list;
}

/* Parameters enter their bucket in the order of arrival, which is the order of offsets.
 */
static int lay_out(const struct muster_ddp *ddp, const struct mu_bucket_plan *plan,
                   const int *order, struct mu_ddp_bucket *list, struct mu_err *err)
{
    int *filled = calloc((size_t)plan->nbuckets + 1, sizeof *filled);
    char *mem = ddp->arena;

    if (!filled)
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory for %d buckets",
                          plan->nbuckets);
    for (int b = 0; b < plan->nbuckets; b++) {
        list[b].mem = mem;
        mem += plan->bucket[b].bytes;
    }
    for (int k = 0; k < ddp->nparams; k++) {
        int i = order ? order[k] : ddp->nparams - 1 - k;
        int b = plan->place[i].bucket;

        list[b].param[filled[b]++] = i;
        list[b].has_user_grads |= ddp->param[i].user_grad != NULL;
    }
    free(filled);
    return 0;
}

static size_t total_bytes(const struct mu_bucket_plan *plan)
{
    size_t total = 0;

    for (int b = 0; b < plan->nbuckets; b++)
        total += plan->bucket[b].bytes;
    return total;
}

int mu_ddp_buckets_make(struct muster_ddp *ddp, struct mu_err *err)
{
    size_t total = total_bytes(&ddp->plan);

    ddp->arena_bytes = total;
    ddp->bucket = make_list(&ddp->plan, err);
    if (!ddp->bucket)
        return -1;
    ddp->arena = ddp->comm->ops->alloc(ddp->comm->backend, total ? total : 1, err);
    if (!ddp->arena || lay_out(ddp, &ddp->plan, NULL, ddp->bucket, err) < 0)
        return -1;
    for (int i = 0; i < ddp->nparams; i++) {
        const struct mu_bucket_place *at = &ddp->plan.place[i];
        struct mu_ddp_param *p = &ddp->param[i];

        p->grad =
            p->user_grad ? p->user_grad : ddp->bucket[at->bucket].mem + at->offset;
    }
    return 0;
}

int mu_ddp_buckets_remake(struct muster_ddp *ddp, const int *order, void *stream,
                          struct mu_err *err)
{
    struct mu_bucket_plan plan;
    struct mu_ddp_bucket *list = NULL;
    size_t total = ddp->arena_bytes;

    if (mu_ddp_plan_make(ddp, order, &plan, err) < 0)
        return -1;
    list = make_list(&plan, err);
    /* Every gradient is padded separately, so the total stays the same. */
    if (!list || lay_out(ddp, &plan, order, list, err) < 0)
        goto fail;
    /* Clear the gaps between the new places: they hold old gradients. */
    if (total > 0 &&
        ddp->comm->ops->zero(ddp->comm->backend, ddp->arena, total, stream, err) < 0)
        goto fail;
    mu_ddp_buckets_free(ddp->bucket, ddp->plan.nbuckets);
    mu_ready_clear(&ddp->ready);
    mu_bucket_plan_clear(&ddp->plan);
    ddp->plan = plan;
    ddp->bucket = list;
    return mu_ready_init(&ddp->ready, &ddp->plan, err);
fail:
    mu_ddp_buckets_free(list, plan.nbuckets);
    mu_bucket_plan_clear(&plan);
    return -1;
}
