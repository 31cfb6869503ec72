/* SPDX-License-Identifier: BSD-3-Clause */
/* ddp_screen.c - NaN or Inf in a gradient of this rank, reported with rank and
 * parameter
 *
 * Host memory is screened before the bucket starts. On a GPU the screening is enqueued
 * in front of the bucket; sync, which then waits for the GPU, reads its marks.
 */
#include "runtime/ddp/ddp.h"

#include <stdio.h>
#include <stdlib.h>

#include "runtime/core/numeric.h"

int mu_ddp_screen_open(struct muster_ddp *ddp, struct mu_err *err)
{
    if (!ddp->comm->ops->find_nonfinite)
        return 0;
    /* Buckets may be cut anew, but there are never more of them than parameters. */
    ddp->screen_marks = ddp->comm->ops->alloc(
        ddp->comm->backend, ((size_t)ddp->nparams + 1) * sizeof *ddp->screen_marks,
        err);
    return ddp->screen_marks ? 0 : -1;
}

static int report(const struct muster_ddp *ddp, int b, int i, const char *what,
                  struct mu_err *err)
{
    const struct mu_world *w = ddp->comm->world;

    return mu_err_set(err, MUSTER_ENUMERIC,
                      "rank %d (node %s): the gradient of '%s' %s (bucket %d of step "
                      "%llu)",
                      w->rank, w->host_of[w->rank], ddp->param[i].name, what, b,
                      (unsigned long long)ddp->step);
}

static int screen_here(struct muster_ddp *ddp, int b, int i, struct mu_err *err)
{
    const struct mu_ddp_param *p = &ddp->param[i];
    size_t at = mu_first_nonfinite(p->grad, p->dtype, p->count);
    char what[64];

    if (at == p->count)
        return 0;
    snprintf(what, sizeof what, "is %g at element %zu",
             mu_element(p->grad, p->dtype, at), at);
    return report(ddp, b, i, what, err);
}

static bool has_gradient(const struct muster_ddp *ddp, int i)
{
    return ddp->used[i] && !ddp->absent[i] && ddp->param[i].count > 0;
}

int mu_ddp_screen_rows(struct muster_ddp *ddp, int i, struct mu_err *err)
{
    const struct mu_rows *list = &ddp->param[i].by_row->list;
    enum muster_dtype sums = mu_rows_sums(list->dtype);
    size_t n = list->n * list->width;
    size_t at = ddp->screen ? mu_first_nonfinite(list->sum, sums, n) : n;
    char what[64];

    if (at == n)
        return 0;
    snprintf(what, sizeof what, "is %g at element %zu", mu_element(list->sum, sums, at),
             (size_t)list->row[at / list->width] * list->width + at % list->width);
    return report(ddp, ddp->plan.place[i].bucket, i, what, err);
}

int mu_ddp_screen(struct muster_ddp *ddp, int b, struct mu_err *err)
{
    const struct mu_backend_ops *ops = ddp->comm->ops;
    const struct mu_bucket_info *info = &ddp->plan.bucket[b];
    struct mu_ddp_bucket *bucket = &ddp->bucket[b];
    int n = 0;

    for (int k = 0; k < info->nparams; k++) {
        int i = bucket->param[k];

        if (!has_gradient(ddp, i))
            continue;
        if (!ops->find_nonfinite && screen_here(ddp, b, i, err) < 0)
            return -1;
        bucket->piece[n++] =
            (struct mu_piece){ ddp->param[i].grad, 0, ddp->param[i].count };
    }
    return ops->find_nonfinite && n > 0
               ? ops->find_nonfinite(ddp->comm->backend, bucket->piece, n, info->dtype,
                                     ddp->screen_marks + b, bucket->stream, err)
               : 0;
}

/* The parameter that a mark names, counted from the end of the screened ones. */
static int marked_param(const struct muster_ddp *ddp, int b, uint32_t mark)
{
    for (int k = ddp->plan.bucket[b].nparams - 1; k >= 0; k--) {
        int i = ddp->bucket[b].param[k];

        if (has_gradient(ddp, i) && --mark == 0)
            return i;
    }
    return ddp->bucket[b].param[0];
}

int mu_ddp_screened(struct muster_ddp *ddp, void *stream, struct mu_err *err)
{
    const struct mu_backend_ops *ops = ddp->comm->ops;
    size_t bytes = (size_t)ddp->plan.nbuckets * sizeof *ddp->screen_marks;
    uint32_t *marks;
    int rc;

    if (bytes == 0)
        return 0;
    marks = malloc(bytes);
    if (!marks)
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory for screening");
    rc = ops->copy(ddp->comm->backend, marks, ddp->screen_marks, bytes, stream, err);
    if (rc == 0)
        rc = ops->zero(ddp->comm->backend, ddp->screen_marks, bytes, stream, err);
    if (rc == 0)
        rc = ops->drain(ddp->comm->backend, stream, err);
    for (int k = 0; rc == 0 && k < ddp->plan.nbuckets; k++) {
        int b = ddp->ready.order[k];

        if (marks[b] != 0)
            rc = report(ddp, b, marked_param(ddp, b, marks[b]), "has NaN or Inf", err);
    }
    free(marks);
    return rc < 0 ? mu_comm_fail(ddp->comm, err) : 0;
}
