/* SPDX-License-Identifier: BSD-3-Clause */
/* ddp_screen.c - NaN or Inf in a gradient of this rank, named with rank and parameter
 *
 * In host memory it is found before the bucket starts. On a GPU the look is enqueued in
 * front of the bucket, and sync, which waits for the GPU then, reads what it found.
 */
#include "runtime/ddp/ddp.h"

#include <stdio.h>
#include <stdlib.h>

#include "runtime/core/numeric.h"

int mu_ddp_screen_open(struct muster_ddp *ddp, struct mu_err *err)
{
    if (!ddp->comm->ops->look)
        return 0;
    /* Buckets may become others, but not more than parameters. */
    ddp->found = ddp->comm->ops->alloc(
        ddp->comm->backend, ((size_t)ddp->nparams + 1) * sizeof *ddp->found, err);
    return ddp->found ? 0 : -1;
}

static int say(const struct muster_ddp *ddp, int b, int i, const char *what,
               struct mu_err *err)
{
    return mu_err_set(err, MUSTER_ENUMERIC,
                      "rank %d: the gradient of '%s' %s (bucket %d of step %llu)",
                      ddp->comm->world->rank, ddp->param[i].name, what, b,
                      (unsigned long long)ddp->step);
}

static int look_here(struct muster_ddp *ddp, int b, int i, struct mu_err *err)
{
    const struct mu_ddp_param *p = &ddp->param[i];
    size_t at = mu_first_nonfinite(p->grad, p->dtype, p->count);
    char what[64];

    if (at == p->count)
        return 0;
    snprintf(what, sizeof what, "is %g at element %zu",
             mu_element(p->grad, p->dtype, at), at);
    return say(ddp, b, i, what, err);
}

static bool there(const struct muster_ddp *ddp, int i)
{
    return ddp->used[i] && !ddp->absent[i] && ddp->param[i].count > 0;
}

int mu_ddp_screen(struct muster_ddp *ddp, int b, struct mu_err *err)
{
    const struct mu_backend_ops *ops = ddp->comm->ops;
    const struct mu_bucket_info *info = &ddp->plan.bucket[b];
    struct mu_ddp_bucket *bucket = &ddp->bucket[b];
    int n = 0;

    if (!ddp->screen)
        return 0;
    for (int k = 0; k < info->nparams; k++) {
        int i = bucket->param[k];

        if (!there(ddp, i))
            continue;
        if (!ops->look && look_here(ddp, b, i, err) < 0)
            return -1;
        bucket->piece[n++] =
            (struct mu_piece){ ddp->param[i].grad, 0, ddp->param[i].count };
    }
    return ops->look && n > 0
               ? ops->look(ddp->comm->backend, bucket->piece, n, info->dtype,
                           ddp->found + b, bucket->stream, err)
               : 0;
}

/* The mark counts from the end of what the bucket looked at. */
static int marked(const struct muster_ddp *ddp, int b, uint32_t mark)
{
    for (int k = ddp->plan.bucket[b].nparams - 1; k >= 0; k--) {
        int i = ddp->bucket[b].param[k];

        if (there(ddp, i) && --mark == 0)
            return i;
    }
    return ddp->bucket[b].param[0];
}

int mu_ddp_screened(struct muster_ddp *ddp, void *stream, struct mu_err *err)
{
    const struct mu_backend_ops *ops = ddp->comm->ops;
    size_t bytes = (size_t)ddp->plan.nbuckets * sizeof *ddp->found;
    uint32_t *found;
    int rc;

    if (!ddp->found || bytes == 0)
        return 0;
    found = malloc(bytes);
    if (!found)
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory for screening");
    rc = ops->copy(ddp->comm->backend, found, ddp->found, bytes, stream, err);
    if (rc == 0)
        rc = ops->zero(ddp->comm->backend, ddp->found, bytes, stream, err);
    if (rc == 0)
        rc = ops->drain(ddp->comm->backend, stream, err);
    for (int k = 0; rc == 0 && k < ddp->plan.nbuckets; k++) {
        int b = ddp->ready.order[k];

        if (found[b] != 0)
            rc = say(ddp, b, marked(ddp, b, found[b]), "has NaN or Inf", err);
    }
    free(found);
    return rc < 0 ? mu_comm_fail(ddp->comm, err) : 0;
}
