/* SPDX-License-Identifier: BSD-3-Clause */
/* ddp.c - muster_ddp_*: check the arguments, call ddp/, end in mu_fail_err */
#include "runtime/ddp/ddp.h"

#include <math.h>

#include "runtime/api/impl.h"

static int check_create(struct muster *m, const struct muster_param *params,
                        int nparams, const struct muster_ddp_options *options)
{
    static const char call[] = "muster_ddp_create";
    int rc = MUSTER_OK;

    for (int i = 0; rc == MUSTER_OK && i < nparams; i++)
        rc = MU_CHECK_RESERVED(m, call, muster_param, &params[i]);
    if (rc == MUSTER_OK && options)
        rc = MU_CHECK_RESERVED(m, call, muster_ddp_options, options);
    if (rc == MUSTER_OK && options && options->hook)
        rc = MU_CHECK_RESERVED(m, call, muster_hook, options->hook);
    return rc;
}

int muster_ddp_create(struct muster *m, const struct muster_param *params, int nparams,
                      const struct muster_ddp_options *options, struct muster_ddp **out)
{
    static const struct muster_ddp_options none;
    struct mu_ddp_request request = { params, nparams, options ? options : &none };
    struct mu_err err = { 0 };

    if (nparams < 0 || (nparams > 0 && !params) || !out)
        return mu_fail(
            m, MUSTER_EUSAGE,
            "muster_ddp_create: params (%p) or out is NULL, or nparams (%d) is "
            "negative",
            (const void *)params, nparams);
    *out = NULL;
    if (check_create(m, params, nparams, options) != MUSTER_OK)
        return MUSTER_EUSAGE;
    if (mu_ddp_create(&m->comm, &m->recover, &request, m, &m->err, out, &err) < 0)
        return mu_fail_err(m, &err);
    return MUSTER_OK;
}

void muster_ddp_destroy(struct muster_ddp *ddp)
{
    if (ddp)
        mu_ddp_destroy(ddp);
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

    return p && (p->frozen || ddp->missing_everywhere[ddp->at[i]]);
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

int muster_ddp_state(const struct muster_ddp *ddp, struct muster_item *items, int room)
{
    return mu_ddp_state(ddp, items, room);
}

/* Newcomers have no ddp object that belongs to this one. */
static int check_current(struct muster_ddp *ddp, const char *call)
{
    if (ddp->grown == ddp->comm->grown)
        return MUSTER_OK;
    return mu_fail(ddp->m, MUSTER_EUSAGE,
                   "%s: ranks have joined since this ddp object was made: destroy it, "
                   "and create it anew on all ranks",
                   call);
}

int muster_ddp_broadcast(struct muster_ddp *ddp, int root)
{
    struct muster *m = ddp->m;
    struct mu_err err = { 0 };

    if (check_current(ddp, "muster_ddp_broadcast") != MUSTER_OK)
        return MUSTER_EUSAGE;
    if (root < 0 || root >= m->comm.world->size)
        return mu_fail(m, MUSTER_EUSAGE,
                       "muster_ddp_broadcast: root %d is not in 0..%d", root,
                       m->comm.world->size - 1);
    for (int i = 0; i < ddp->nall; i++)
        if (ddp->param[i].count > 0 && !ddp->param[i].data)
            return mu_fail(
                m, MUSTER_EUSAGE,
                "muster_ddp_broadcast: parameter '%s' was registered without data",
                ddp->param[i].name);
    return mu_ddp_broadcast(ddp, root, &err) < 0 ? mu_fail_err(m, &err) : MUSTER_OK;
}

static int check_index(struct muster_ddp *ddp, const char *call, int i)
{
    if (i >= 0 && i < ddp->nall)
        return check_current(ddp, call);
    return mu_fail(ddp->m, MUSTER_EUSAGE, "%s: parameter %d is not in 0..%d", call, i,
                   ddp->nall - 1);
}

/* The caller has a gradient of parameter i. */
static int check_gradient(struct muster_ddp *ddp, const char *call, int i)
{
    int rc = check_index(ddp, call, i);

    if (rc == MUSTER_OK && mu_ddp_param(ddp, i)->frozen)
        rc = mu_fail(ddp->m, MUSTER_EUSAGE, "%s: '%s' was registered as frozen", call,
                     mu_ddp_param(ddp, i)->name);
    return rc;
}

int muster_ddp_grad_ready(struct muster_ddp *ddp, int i, void *stream)
{
    int rc = check_gradient(ddp, "muster_ddp_grad_ready", i);
    struct mu_err err;

    if (rc)
        return rc;
    if (mu_ddp_grad_ready(ddp, i, stream, &err) < 0)
        return mu_fail_err(ddp->m, &err);
    return MUSTER_OK;
}

int muster_ddp_grad_rows(struct muster_ddp *ddp, int i, const int64_t *index, size_t n,
                         const void *values, void *stream)
{
    int rc = check_gradient(ddp, "muster_ddp_grad_rows", i);
    struct mu_err err = { 0 };

    (void)stream; /* rows on a GPU are copied after the work of all streams */
    if (rc)
        return rc;
    if (n > 0 && (!index || !values))
        return mu_fail(ddp->m, MUSTER_EUSAGE,
                       "muster_ddp_grad_rows: index (%p) or values (%p) of %zu rows is "
                       "NULL",
                       (const void *)index, values, n);
    if (mu_ddp_grad_rows(ddp, i, index, n, values, &err) < 0)
        return mu_fail_err(ddp->m, &err);
    return MUSTER_OK;
}

int muster_ddp_grad_absent(struct muster_ddp *ddp, int i)
{
    int rc = check_index(ddp, "muster_ddp_grad_absent", i);
    struct mu_err err = { 0 };

    if (rc || mu_ddp_param(ddp, i)->frozen)
        return rc;
    if (mu_ddp_grad_absent(ddp, i, &err) < 0)
        return mu_fail_err(ddp->m, &err);
    return MUSTER_OK;
}

int muster_ddp_no_sync(struct muster_ddp *ddp, int on)
{
    struct mu_err err = { 0 };

    return mu_ddp_no_sync(ddp, on != 0, &err) < 0 ? mu_fail_err(ddp->m, &err)
                                                  : MUSTER_OK;
}

int muster_ddp_weight(struct muster_ddp *ddp, double weight)
{
    struct mu_err err = { 0 };

    if (check_current(ddp, "muster_ddp_weight") != MUSTER_OK)
        return MUSTER_EUSAGE;
    if (!(weight >= 0) || isinf(weight))
        return mu_fail(ddp->m, MUSTER_EUSAGE,
                       "muster_ddp_weight: the weight is %g, use 0 or more", weight);
    return mu_ddp_weigh(ddp, weight, &err) < 0 ? mu_fail_err(ddp->m, &err) : MUSTER_OK;
}

int muster_ddp_sync(struct muster_ddp *ddp, void *stream)
{
    struct mu_err err = { 0 };

    if (check_current(ddp, "muster_ddp_sync") != MUSTER_OK)
        return MUSTER_EUSAGE;
    if (ddp->accumulating)
        return mu_fail(
            ddp->m, MUSTER_EUSAGE,
            "muster_ddp_sync while no_sync is on: switch it off before the last "
            "micro-batch");
    if (mu_ddp_sync(ddp, NULL, stream, &err) < 0)
        return mu_fail_err(ddp->m, &err);
    return MUSTER_OK;
}

static int check_finish(struct muster_ddp *ddp, const char *call,
                        const struct muster_finish *f)
{
    struct mu_err err = { 0 };
    int rc;

    if (mu_ddp_finish_check(f, call, &err) < 0)
        return mu_fail_err(ddp->m, &err);
    rc = MU_CHECK_RESERVED(ddp->m, call, muster_finish, f);
    if (rc == MUSTER_OK && f->scaler)
        rc = MU_CHECK_RESERVED(ddp->m, call, muster_scaler, f->scaler);
    return rc;
}

int muster_ddp_sync_with(struct muster_ddp *ddp, struct muster_finish *f, void *stream)
{
    struct mu_err err = { 0 };
    int rc = check_current(ddp, "muster_ddp_sync_with");

    if (rc != MUSTER_OK)
        return rc;
    if (ddp->accumulating)
        return mu_fail(ddp->m, MUSTER_EUSAGE,
                       "muster_ddp_sync_with while no_sync is on: switch it off before "
                       "the last micro-batch");
    rc = check_finish(ddp, "muster_ddp_sync_with", f);
    if (rc == MUSTER_OK && mu_ddp_sync(ddp, f, stream, &err) < 0)
        rc = mu_fail_err(ddp->m, &err);
    return rc;
}

int muster_ddp_join_with(struct muster_ddp *ddp, struct muster_finish *finish,
                         int (*after)(void *arg), void *arg)
{
    struct mu_err err = { 0 };
    int rc = check_current(ddp, "muster_ddp_join");

    if (rc == MUSTER_OK && finish)
        rc = check_finish(ddp, "muster_ddp_join_with", finish);
    if (rc == MUSTER_OK && mu_ddp_join(ddp, finish, after, arg, &rc, &err) < 0)
        return mu_fail_err(ddp->m, &err);
    return rc;
}

int muster_ddp_join(struct muster_ddp *ddp, int (*after)(void *arg), void *arg)
{
    return muster_ddp_join_with(ddp, NULL, after, arg);
}

int muster_ddp_shard(const struct muster_ddp *ddp, int k, struct muster_shard *out)
{
    if (!ddp->shard || k < 0 || k >= ddp->plan.nbuckets)
        return mu_fail(ddp->m, MUSTER_EUSAGE,
                       "muster_ddp_shard: part %d does not exist%s", k,
                       ddp->shard ? "" : ": options.shard was not set");
    *out = mu_ddp_shard_part(ddp, k);
    return MUSTER_OK;
}

int muster_ddp_gather(struct muster_ddp *ddp)
{
    struct mu_err err = { 0 };

    if (!ddp->shard)
        return mu_fail(ddp->m, MUSTER_EUSAGE,
                       "muster_ddp_gather: options.shard was not set");
    return mu_ddp_shard_gather(ddp, &err) < 0 ? mu_fail_err(ddp->m, &err) : MUSTER_OK;
}
