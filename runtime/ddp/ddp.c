/* SPDX-License-Identifier: BSD-3-Clause */
/* ddp.c - register the parameters of a model, lay out its buckets, broadcast it */
#include "runtime/ddp/ddp.h"

#include <stdlib.h>

#include "runtime/core/dtype.h"

int mu_ddp_need_host(const struct muster_ddp *ddp, const char *what, struct mu_err *err)
{
    if (ddp->m->ops->host_memory)
        return 0;
    return mu_err_set(err, MUSTER_EUSAGE,
                      "%s works in host memory, not with the backend %s", what,
                      ddp->m->ops->name);
}

static int make(struct muster_ddp *ddp, const struct muster_param *params, int nparams,
                const struct muster_ddp_options *options, struct mu_err *err)
{
    size_t n = (size_t)nparams + 1;

    if (options->hook)
        ddp->hook_options = *options->hook;
    if (mu_ddp_params_take(ddp, params, nparams, err) < 0)
        return -1;
    ddp->factor = 1;
    ddp->screen = options->screen != 0;
    ddp->shard = options->shard != 0;
    if (ddp->shard && ddp->m->config.elastic)
        return mu_err_set(err, MUSTER_EUSAGE,
                          "shard and MUSTER_ELASTIC exclude each other: a part of the "
                          "optimizer state would die with its rank");
    ddp->used = calloc(n, sizeof *ddp->used);
    ddp->declined = calloc(n, sizeof *ddp->declined);
    ddp->absent = calloc(n, sizeof *ddp->absent);
    ddp->nobody = calloc(n, sizeof *ddp->nobody);
    if (!ddp->used || !ddp->declined || !ddp->absent || !ddp->nobody)
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory for %d parameters",
                          ddp->nparams);
    ddp->rule = mu_ddp_rule(ddp, options);
    if (mu_ddp_plan_make(ddp, NULL, &ddp->plan, err) < 0 ||
        mu_ddp_params_agree(ddp, options, err) < 0)
        return -1;
    /* A call that fails on this rank alone is no step of the others. */
    ddp->id = (uint64_t)ddp->m->ddps++;
    if (mu_ready_init(&ddp->ready, &ddp->plan, err) < 0)
        return -1;
    if (mu_ddp_buckets_make(ddp, err) < 0 ||
        (ddp->shard && mu_ddp_shard_open(ddp, err) < 0))
        return -1;
    if ((options->hook && mu_hook_choose(ddp, err) < 0) ||
        (ddp->screen && mu_ddp_screen_open(ddp, err) < 0))
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
    if (make(ddp, params, nparams, options ? options : &none, &err) < 0) {
        muster_ddp_destroy(ddp);
        return mu_fail_err(m, &err);
    }
    ddp->next = m->first_ddp;
    m->first_ddp = ddp;
    *out = ddp;
    return MUSTER_OK;
}

/* Other ranks and threads of ours may be writing into what is about to go. */
static void await_started(struct muster_ddp *ddp)
{
    struct mu_err err = { 0 };

    for (int b = 0; ddp->bucket && b < ddp->plan.nbuckets; b++) {
        struct mu_ddp_bucket *bucket = &ddp->bucket[b];

        for (int s = 0; s < bucket->nstarted; s++)
            mu_coll_join(ddp->m, &bucket->started[s], bucket->what, bucket->stream,
                         &err);
        bucket->nstarted = 0;
    }
}

void muster_ddp_destroy(struct muster_ddp *ddp)
{
    if (!ddp)
        return;
    await_started(ddp);
    for (struct muster_ddp **at = &ddp->m->first_ddp; *at; at = &(*at)->next)
        if (*at == ddp) {
            *at = ddp->next;
            break;
        }
    if (ddp->hook)
        ddp->hook->close(ddp, ddp->hook_state);
    mu_ddp_buckets_free(ddp->bucket, ddp->plan.nbuckets);
    if (ddp->arena)
        ddp->m->ops->free(ddp->m->backend, ddp->arena);
    if (ddp->weights)
        ddp->m->ops->free(ddp->m->backend, ddp->weights);
    if (ddp->sums)
        ddp->m->ops->free(ddp->m->backend, ddp->sums);
    if (ddp->found)
        ddp->m->ops->free(ddp->m->backend, ddp->found);
    mu_ready_clear(&ddp->ready);
    mu_bucket_plan_clear(&ddp->plan);
    free(ddp->arrival);
    mu_ddp_params_clear(ddp);
    free(ddp->kept_name);
    free(ddp->used);
    free(ddp->declined);
    free(ddp->absent);
    free(ddp->nobody);
    free(ddp);
}

void *muster_ddp_grad(const struct muster_ddp *ddp, int i)
{
    const struct mu_ddp_param *p = mu_ddp_param(ddp, i);

    return p ? p->grad : NULL;
}

void *muster_ddp_data(const struct muster_ddp *ddp, int i)
{
    const struct mu_ddp_param *p = mu_ddp_param(ddp, i);

    return p ? p->data : NULL;
}

void muster_ddp_ledger(const struct muster_ddp *ddp, struct muster_ledger *out)
{
    *out = ddp->ledger;
}

int muster_ddp_absent(const struct muster_ddp *ddp, int i)
{
    const struct mu_ddp_param *p = mu_ddp_param(ddp, i);

    return p && (p->frozen || ddp->nobody[ddp->at[i]]);
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
    const struct mu_ddp_param *p = mu_ddp_param(ddp, i);

    return p && !p->frozen ? ddp->plan.place[ddp->at[i]].bucket : -1;
}

/* All parameters are on their way before the first is waited for. */
static int broadcast_all(struct muster_ddp *ddp, int root, struct mu_started *request,
                         struct mu_err *err)
{
    struct muster *m = ddp->m;
    struct mu_err more = { 0 };
    int started = 0, rc = 0;

    for (; started < ddp->nall; started++) {
        const struct mu_ddp_param *p = &ddp->param[started];
        struct mu_coll coll = { .kind = MU_COLL_BROADCAST,
                                .dtype = p->dtype,
                                .send = p->data,
                                .recv = p->data,
                                .count = p->count,
                                .root = root,
                                .scale = 1,
                                .what = p->name,
                                .owner = mu_ddp_owner(ddp, started) };

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
    for (int i = 0; i < ddp->nall; i++)
        if (ddp->param[i].count > 0 && !ddp->param[i].data)
            return mu_fail(
                m, MUSTER_EUSAGE,
                "muster_ddp_broadcast: parameter '%s' was registered without data",
                ddp->param[i].name);
    request = calloc((size_t)ddp->nall + 1, sizeof *request);
    if (!request)
        return mu_fail(m, MUSTER_EMEMORY, "out of memory");
    rc = broadcast_all(ddp, root, request, &err);
    if (rc == 0 && ddp->shard)
        rc = mu_ddp_shard_load(ddp, &err);
    free(request);
    return rc < 0 ? mu_fail_err(m, &err) : MUSTER_OK;
}
