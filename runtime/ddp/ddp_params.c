/* SPDX-License-Identifier: BSD-3-Clause */
/* ddp_params.c - the list of parameters: check it, copy it, agree on it with all ranks
 */
#include "runtime/ddp/ddp.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/core/dtype.h"

static int check(const struct muster_param *p, int i, struct mu_err *err)
{
    if (!p->name || !p->name[0])
        return mu_err_set(err, MUSTER_EUSAGE, "parameter %d has no name", i);
    if (p->frozen && p->count > 0 && !p->data)
        return mu_err_set(err, MUSTER_EUSAGE,
                          "parameter %d '%s' is frozen and has no data: a frozen "
                          "parameter needs data",
                          i, p->name);
    if (mu_dtype_size(p->dtype) == 0)
        return mu_err_set(err, MUSTER_EUSAGE,
                          "parameter %d '%s' has the unknown dtype %d", i, p->name,
                          (int)p->dtype);
    if (!p->frozen && p->rows > 0 && p->count % p->rows != 0)
        return mu_err_set(err, MUSTER_EUSAGE,
                          "parameter %d '%s' has %zu elements, which are not %zu rows "
                          "of equal length",
                          i, p->name, p->count, p->rows);
    if (!p->frozen && p->dtype >= MUSTER_I32)
        return mu_err_set(err, MUSTER_EUSAGE,
                          "parameter %d '%s': %s has no mean, use a float type", i,
                          p->name, mu_dtype_name(p->dtype));
    return 0;
}

static int copy(struct muster_ddp *ddp, const struct muster_param *from, int i, int at,
                struct mu_err *err)
{
    struct mu_ddp_param *p = &ddp->param[at];

    *p = (struct mu_ddp_param){
        .name = strdup(from->name),
        .index = i,
        .frozen = from->frozen != 0,
        .count = from->count,
        .dtype = from->dtype,
        .data = from->data,
        .user_grad = from->frozen ? NULL : from->grad,
        .rows = ddp->hook_options.rows ? ddp->hook_options.rows[i] : 0,
    };
    ddp->at[i] = at;
    if (!p->name)
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory for '%s'", from->name);
    return from->rows > 0 && !from->frozen ? mu_ddp_rows_open(ddp, at, from->rows, err)
                                           : 0;
}

int mu_ddp_params_take(struct muster_ddp *ddp, const struct muster_param *params, int n,
                       struct mu_err *err)
{
    int trained = 0, frozen = 0;

    for (int i = 0; i < n; i++) {
        if (check(&params[i], i, err) < 0)
            return -1;
        trained += !params[i].frozen;
    }
    ddp->param = calloc((size_t)n + 1, sizeof *ddp->param);
    ddp->at = calloc((size_t)n + 1, sizeof *ddp->at);
    if (!ddp->param || !ddp->at)
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory for %d parameters", n);
    ddp->nparams = trained;
    ddp->nall = n;
    for (int i = 0; i < n; i++) {
        int at = params[i].frozen ? trained + frozen++ : i - frozen;

        if (copy(ddp, &params[i], i, at, err) < 0)
            return -1;
    }
    return 0;
}

void mu_ddp_params_clear(struct muster_ddp *ddp)
{
    for (int i = 0; ddp->param && i < ddp->nall; i++) {
        free(ddp->param[i].name);
        mu_ddp_rows_free(ddp->param[i].by_row);
    }
    free(ddp->param);
    free(ddp->at);
}

static int add_param(struct mu_contract *c, const struct mu_ddp_param *p, bool rows,
                     struct mu_err *err)
{
    const char *frozen = p->frozen ? ", frozen" : "";

    if (p->by_row && mu_contract_add(c, err, "parameter %d '%s' is ready in %zu rows",
                                     p->index, p->name, p->by_row->list.rows) < 0)
        return -1;
    if (rows)
        return mu_contract_add(c, err, "parameter %d '%s' %s x %zu in %zu rows%s",
                               p->index, p->name, mu_dtype_name(p->dtype), p->count,
                               p->rows, frozen);
    return mu_contract_add(c, err, "parameter %d '%s' %s x %zu%s", p->index, p->name,
                           mu_dtype_name(p->dtype), p->count, frozen);
}

/* Every rank must reduce the same buckets. The lines of parameters are first, so that
 * the message names the parameter and not the bucket that it shifts.
 */
int mu_ddp_params_agree(struct muster_ddp *ddp,
                        const struct muster_ddp_options *options, struct mu_err *err)
{
    struct mu_contract c = { 0 };
    int rc = 0;

    for (int i = 0; rc == 0 && i < ddp->nall; i++)
        rc = add_param(&c, mu_ddp_param(ddp, i), ddp->hook_options.rows, err);
    for (int b = 0; rc == 0 && b < ddp->plan.nbuckets; b++)
        rc = mu_contract_add(&c, err, "bucket %d %s, %zu bytes", b,
                             mu_dtype_name(ddp->plan.bucket[b].dtype),
                             ddp->plan.bucket[b].bytes);
    if (rc == 0)
        rc = mu_contract_add(
            &c, err, "shard %d, screen %d, fixed order %d, require all %d", ddp->shard,
            ddp->screen, options->fixed_order != 0, ddp->require_all);
    if (rc == 0)
        rc = mu_contract_add(&c, err, "compression %d of rank %d",
                             options->hook ? (int)options->hook->compress : -1,
                             ddp->hook_options.rank);
    if (rc == 0) {
        ddp->plan_hash = mu_contract_total(&c);
        rc = mu_agree(ddp->comm, "muster_ddp_create", &c, err);
    }
    mu_contract_clear(&c);
    return rc;
}
