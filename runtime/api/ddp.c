/* SPDX-License-Identifier: BSD-3-Clause */
/* ddp.c - register the parameters of a model, lay out its buckets, broadcast it */
#include "runtime/api/ddp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/core/dtype.h"

static int check_params(const struct muster_param *params, int n, struct mu_err *err)
{
    for (int i = 0; i < n; i++) {
        if (!params[i].name || !params[i].name[0])
            return mu_err_set(err, MUSTER_EUSAGE, "parameter %d has no name", i);
        if (params[i].dtype == MUSTER_I32 || params[i].dtype == MUSTER_I64)
            return mu_err_set(err, MUSTER_EUSAGE,
                              "parameter %d '%s': %s has no mean, use a float type", i,
                              params[i].name, mu_dtype_name(params[i].dtype));
    }
    return 0;
}

static int copy_params(struct muster_ddp *ddp, const struct muster_param *params,
                       struct mu_err *err)
{
    for (int i = 0; i < ddp->nparams; i++) {
        struct mu_ddp_param *p = &ddp->param[i];

        p->name = strdup(params[i].name);
        if (!p->name)
            return mu_err_set(err, MUSTER_EMEMORY, "out of memory for %d parameters",
                              ddp->nparams);
        p->count = params[i].count;
        p->dtype = params[i].dtype;
        p->data = params[i].data;
        p->own = params[i].grad;
        p->rows = ddp->hook_options.rows ? ddp->hook_options.rows[i] : 0;
    }
    return 0;
}

/* Every rank must reduce the same buckets. Parameters come first, so that the message
 * names the parameter and not the bucket that it shifts.
 */
static int agree_on_model(struct muster_ddp *ddp, struct mu_err *err)
{
    struct mu_contract c = { 0 };
    int rc = 0;

    for (int i = 0; rc == 0 && i < ddp->nparams; i++)
        rc = mu_contract_add(&c, err, "parameter %d '%s' %s x %zu", i,
                             ddp->param[i].name, mu_dtype_name(ddp->param[i].dtype),
                             ddp->param[i].count);
    for (int i = 0; rc == 0 && ddp->hook_options.rows && i < ddp->nparams; i++)
        rc = mu_contract_add(&c, err, "rows of parameter %d: %zu", i,
                             ddp->param[i].rows);
    for (int b = 0; rc == 0 && b < ddp->plan.nbuckets; b++)
        rc = mu_contract_add(&c, err, "bucket %d %s, %zu bytes", b,
                             mu_dtype_name(ddp->plan.bucket[b].dtype),
                             ddp->plan.bucket[b].bytes);
    if (rc == 0)
        rc = mu_contract_add(&c, err, "shard %d, screen %d, compression %d of rank %d",
                             ddp->shard, ddp->screen, (int)ddp->hook_options.compress,
                             ddp->hook_options.rank);
    if (rc == 0) {
        ddp->plan_hash = mu_contract_total(&c);
        rc = mu_agree(ddp->m, "muster_ddp_create", &c, err);
    }
    mu_contract_clear(&c);
    return rc;
}

int mu_ddp_need_host(const struct muster_ddp *ddp, const char *what, struct mu_err *err)
{
    if (strcmp(ddp->m->ops->name, "host") == 0)
        return 0;
    return mu_err_set(err, MUSTER_EUSAGE,
                      "%s works in host memory, not with the backend %s", what,
                      ddp->m->ops->name);
}

static int make(struct muster_ddp *ddp, const struct muster_param *params,
                const struct muster_ddp_options *options, struct mu_err *err)
{
    size_t n = (size_t)ddp->nparams + 1;

    if (check_params(params, ddp->nparams, err) < 0)
        return -1;
    ddp->factor = 1;
    ddp->screen = options->screen != 0;
    ddp->shard = options->shard != 0;
    if (options->hook)
        ddp->hook_options = *options->hook;
    if (ddp->shard && options->hook)
        return mu_err_set(err, MUSTER_EUSAGE,
                          "shard and a compression hook exclude each other");
    if (ddp->shard && ddp->m->config.elastic)
        return mu_err_set(err, MUSTER_EUSAGE,
                          "shard and MUSTER_ELASTIC exclude each other: a part of the "
                          "optimizer state would die with its rank");
    if (ddp->screen && mu_ddp_need_host(ddp, "screening", err) < 0)
        return -1;
    ddp->param = calloc(n, sizeof *ddp->param);
    ddp->used = calloc(n, sizeof *ddp->used);
    ddp->declined = calloc(n, sizeof *ddp->declined);
    ddp->absent = calloc(n, sizeof *ddp->absent);
    ddp->nobody = calloc(n, sizeof *ddp->nobody);
    if (!ddp->param || !ddp->used || !ddp->declined || !ddp->absent || !ddp->nobody)
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory for %d parameters",
                          ddp->nparams);
    ddp->rule = mu_ddp_rule(ddp, options);
    if (copy_params(ddp, params, err) < 0 ||
        mu_ddp_plan_make(ddp, NULL, &ddp->plan, err) < 0 ||
        agree_on_model(ddp, err) < 0 || mu_ready_init(&ddp->ready, &ddp->plan, err) < 0)
        return -1;
    if (mu_ddp_buckets_make(ddp, err) < 0 ||
        (ddp->shard && mu_ddp_shard_open(ddp, err) < 0))
        return -1;
    if (options->hook && mu_hook_choose(ddp, err) < 0)
        return -1;
    return options->fixed_order ? 0 : mu_ddp_order_begin(ddp, err);
}

int muster_ddp_create(struct muster *m, const struct muster_param *params, int nparams,
                      const struct muster_ddp_options *options, struct muster_ddp **out)
{
    static const struct muster_ddp_options none;
    struct mu_err err = { 0 };
    struct muster_ddp *ddp;

    if (nparams < 0 || (nparams > 0 && !params) || !out)
        return mu_fail(m, MUSTER_EUSAGE,
                       "muster_ddp_create: %d parameters in a list at %p", nparams,
                       (const void *)params);
    *out = NULL;
    ddp = calloc(1, sizeof *ddp);
    if (!ddp)
        return mu_fail(m, MUSTER_EMEMORY, "out of memory");
    ddp->m = m;
    ddp->id = (uint64_t)m->ddps++;
    ddp->nparams = nparams;
    if (make(ddp, params, options ? options : &none, &err) < 0) {
        muster_ddp_destroy(ddp);
        return mu_fail_err(m, &err);
    }
    ddp->next = m->first_ddp;
    m->first_ddp = ddp;
    *out = ddp;
    return MUSTER_OK;
}

void muster_ddp_destroy(struct muster_ddp *ddp)
{
    if (!ddp)
        return;
    for (struct muster_ddp **at = &ddp->m->first_ddp; *at; at = &(*at)->next)
        if (*at == ddp) {
            *at = ddp->next;
            break;
        }
    if (ddp->hook)
        ddp->hook->close(ddp, ddp->hook_state);
    mu_ddp_buckets_free(ddp->bucket, ddp->plan.nbuckets);
    for (int i = 0; ddp->param && i < ddp->nparams; i++)
        free(ddp->param[i].name);
    if (ddp->arena)
        ddp->m->ops->free(ddp->m->backend, ddp->arena);
    if (ddp->weights)
        ddp->m->ops->free(ddp->m->backend, ddp->weights);
    mu_ready_clear(&ddp->ready);
    mu_bucket_plan_clear(&ddp->plan);
    free(ddp->arrival);
    free(ddp->param);
    free(ddp->used);
    free(ddp->declined);
    free(ddp->absent);
    free(ddp->nobody);
    free(ddp);
}

void *muster_ddp_grad(const struct muster_ddp *ddp, int i)
{
    return i >= 0 && i < ddp->nparams ? ddp->param[i].grad : NULL;
}

void *muster_ddp_data(const struct muster_ddp *ddp, int i)
{
    return i >= 0 && i < ddp->nparams ? ddp->param[i].data : NULL;
}

void muster_ddp_ledger(const struct muster_ddp *ddp, struct muster_ledger *out)
{
    *out = ddp->ledger;
}

int muster_ddp_absent(const struct muster_ddp *ddp, int i)
{
    return i >= 0 && i < ddp->nparams && ddp->nobody[i];
}

uint64_t muster_ddp_wire_bytes(const struct muster_ddp *ddp)
{
    return ddp->wire_bytes;
}

int muster_ddp_buckets(const struct muster_ddp *ddp)
{
    return ddp->plan.nbuckets;
}

int muster_ddp_bucket_of(const struct muster_ddp *ddp, int i)
{
    return i >= 0 && i < ddp->nparams ? ddp->plan.place[i].bucket : -1;
}

/* All parameters are on their way before the first is waited for. */
static int broadcast_all(struct muster_ddp *ddp, int root, struct mu_started *request,
                         struct mu_err *err)
{
    struct muster *m = ddp->m;
    struct mu_err more = { 0 };
    int started = 0, rc = 0;

    for (; started < ddp->nparams; started++) {
        const struct mu_ddp_param *p = &ddp->param[started];
        struct mu_coll coll = { .kind = MU_COLL_BROADCAST,
                                .dtype = p->dtype,
                                .send = p->data,
                                .recv = p->data,
                                .count = p->count,
                                .root = root,
                                .scale = 1,
                                .what = p->name };

        if (mu_coll_start(m, &coll, &request[started], err) < 0) {
            rc = -1;
            break;
        }
    }
    for (int i = 0; i < started; i++)
        if (mu_coll_join(m, &request[i], ddp->param[i].name, NULL, rc ? &more : err) <
            0)
            rc = -1;
    return rc ? rc : m->ops->drain(m->backend, NULL, err);
}

int muster_ddp_broadcast(struct muster_ddp *ddp, int root)
{
    struct muster *m = ddp->m;
    struct mu_started *request;
    struct mu_err err = { 0 };
    int rc;

    if (root < 0 || root >= m->world->size)
        return mu_fail(m, MUSTER_EUSAGE,
                       "muster_ddp_broadcast: root %d is not in 0..%d", root,
                       m->world->size - 1);
    for (int i = 0; i < ddp->nparams; i++)
        if (ddp->param[i].count > 0 && !ddp->param[i].data)
            return mu_fail(
                m, MUSTER_EUSAGE,
                "muster_ddp_broadcast: parameter '%s' was registered without data",
                ddp->param[i].name);
    request = calloc((size_t)ddp->nparams + 1, sizeof *request);
    if (!request)
        return mu_fail(m, MUSTER_EMEMORY, "out of memory");
    rc = broadcast_all(ddp, root, request, &err);
    if (rc == 0 && ddp->shard)
        rc = mu_ddp_shard_load(ddp, &err);
    free(request);
    return rc < 0 ? mu_fail_err(m, &err) : MUSTER_OK;
}
