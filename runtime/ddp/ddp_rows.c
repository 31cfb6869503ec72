/* SPDX-License-Identifier: BSD-3-Clause */
/* ddp_rows.c - gradients of which a rank has some rows only, such as an embedding's
 *
 * muster_ddp_grad_rows adds rows to a list of this rank, over all micro-batches. In
 * sync ddp_rows_send.c exchanges the lists. With shard, and on GPUs, the rows are added
 * to the dense gradient before its bucket starts. It then starts in sync, because rows
 * may follow a dense part.
 */
#include "runtime/ddp/ddp.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/core/dtype.h"

int mu_ddp_rows_open(struct muster_ddp *ddp, int i, size_t rows, struct mu_err *err)
{
    struct mu_ddp_param *p = &ddp->param[i];

    p->by_row = calloc(1, sizeof *p->by_row);
    if (!p->by_row)
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory for '%s'", p->name);
    mu_rows_init(&p->by_row->list, p->dtype, rows, p->count / rows);
    ddp->nby_row++;
    return 0;
}

void mu_ddp_rows_free(struct mu_ddp_rows *rows)
{
    if (!rows)
        return;
    mu_rows_clear(&rows->list);
    free(rows->sent);
    free(rows->received);
    free(rows->parts);
    free(rows->from);
    free(rows);
}

void mu_ddp_rows_reset(struct muster_ddp *ddp)
{
    for (int i = 0; i < ddp->nparams; i++) {
        struct mu_ddp_rows *rows = ddp->param[i].by_row;

        if (!rows)
            continue;
        mu_rows_reset(&rows->list);
        rows->given = rows->complete = rows->held = rows->moves = false;
    }
}

bool mu_ddp_rows_dense(const struct muster_ddp *ddp)
{
    return ddp->shard || !ddp->comm->ops->host_memory;
}

int mu_ddp_rows_hold(struct muster_ddp *ddp, int i, struct mu_err *err)
{
    struct mu_ddp_rows *rows = ddp->param[i].by_row;

    if (rows->complete)
        return mu_err_set(err, MUSTER_EUSAGE,
                          "gradient of '%s' became ready after its rows in step %llu: "
                          "call muster_ddp_grad_ready before muster_ddp_grad_rows",
                          ddp->param[i].name, (unsigned long long)ddp->step);
    if (rows->held)
        return mu_err_set(err, MUSTER_EUSAGE,
                          "gradient of '%s' became ready twice in step %llu",
                          ddp->param[i].name, (unsigned long long)ddp->step);
    rows->held = mu_ddp_rows_dense(ddp);
    return 0;
}

bool mu_ddp_begun(const struct muster_ddp *ddp, int i)
{
    const struct mu_ddp_rows *rows = ddp->param[i].by_row;

    return ddp->ready.marked[i] || (rows && (rows->complete || rows->held));
}

static int check(const struct muster_ddp *ddp, int i, struct mu_err *err)
{
    const char *name = ddp->param[i].name;

    if (!ddp->param[i].by_row)
        return mu_err_set(err, MUSTER_EUSAGE,
                          "muster_ddp_grad_rows: '%s' was registered without rows: set "
                          "muster_param.rows, or call muster_ddp_grad_ready",
                          name);
    if (ddp->declined[i])
        return mu_err_set(err, MUSTER_EUSAGE,
                          "gradient of '%s' was already declared absent in this step",
                          name);
    if (ddp->weight.nothing)
        return mu_err_set(err, MUSTER_EUSAGE,
                          "rows of '%s' became ready in a micro-batch of weight 0",
                          name);
    if (ddp->param[i].by_row->complete)
        return mu_err_set(err, MUSTER_EUSAGE,
                          "rows of '%s' became ready twice in step %llu: pass them in "
                          "one call",
                          name, (unsigned long long)ddp->step);
    return 0;
}

static int add(const struct muster_ddp *ddp, int i, const int64_t *index, size_t n,
               const void *values, struct mu_err *err)
{
    struct mu_rows *list = &ddp->param[i].by_row->list;
    size_t k = mu_rows_outside(list, index, n);

    if (k < n)
        return mu_err_set(err, MUSTER_EUSAGE,
                          "muster_ddp_grad_rows: row %lld of '%s', number %zu of the "
                          "list, is not in 0..%lld",
                          (long long)index[k], ddp->param[i].name, k,
                          (long long)list->rows - 1);
    return mu_rows_add(list, index, n, values, err);
}

/* The same from memory of a GPU: copied to the host first. */
static int add_from_gpu(const struct muster_ddp *ddp, int i, const int64_t *index,
                        size_t n, const void *values, struct mu_err *err)
{
    const struct mu_backend_ops *ops = ddp->comm->ops;
    struct mu_backend *backend = ddp->comm->backend;
    const struct mu_rows *list = &ddp->param[i].by_row->list;
    size_t bytes = n * list->width * mu_dtype_size(list->dtype);
    int64_t *numbers = malloc(n * sizeof *numbers + 1);
    char *rows = malloc(bytes + 1);
    int rc = -1;

    if (!numbers || !rows)
        mu_err_set(err, MUSTER_EMEMORY, "out of memory for %zu rows", n);
    else if (n == 0 ||
             (ops->copy_any(backend, numbers, index, n * sizeof *numbers, err) == 0 &&
              ops->copy_any(backend, rows, values, bytes, err) == 0))
        rc = add(ddp, i, numbers, n, rows, err);
    free(numbers);
    free(rows);
    return rc;
}

int mu_ddp_grad_rows(struct muster_ddp *ddp, int i, const int64_t *index, size_t n,
                     const void *values, struct mu_err *err)
{
    struct mu_ddp_rows *rows;

    i = ddp->at[i];
    rows = ddp->param[i].by_row;
    if (check(ddp, i, err) < 0 ||
        (ddp->comm->ops->copy_any ? add_from_gpu(ddp, i, index, n, values, err)
                                  : add(ddp, i, index, n, values, err)) < 0)
        return -1;
    rows->given = true;
    rows->complete = !ddp->accumulating;
    return 0;
}

int mu_ddp_rows_scale(struct muster_ddp *ddp, int i, double factor, struct mu_err *err)
{
    struct mu_ddp_rows *rows = ddp->param[i].by_row;

    return rows ? mu_rows_scale(&rows->list, factor, err) : 0;
}

int mu_ddp_rows_room(char **buffer, size_t *room, size_t bytes, struct mu_err *err)
{
    char *larger = bytes > *room ? realloc(*buffer, bytes) : *buffer;

    if (bytes > *room && !larger)
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory for %zu bytes of rows",
                          bytes);
    *buffer = larger;
    *room = bytes > *room ? bytes : *room;
    return 0;
}

int mu_ddp_rows_pack(struct mu_ddp_rows *rows, double factor,
                     struct mu_rows_message *out, struct mu_err *err)
{
    size_t bytes = mu_rows_bytes(&rows->list, rows->list.n);

    if (mu_ddp_rows_room(&rows->sent, &rows->sent_room, bytes, err) < 0 ||
        mu_rows_pack(&rows->list, factor, rows->sent, err) < 0)
        return -1;
    *out = (struct mu_rows_message){ rows->sent, rows->list.n };
    return 0;
}

/* Add the list to the gradient, in a copy on the host where it is on a GPU. */
static int spread(struct muster_ddp *ddp, int i, struct mu_err *err)
{
    struct mu_ddp_param *p = &ddp->param[i];
    struct mu_ddp_rows *rows = p->by_row;
    const struct mu_backend_ops *ops = ddp->comm->ops;
    struct mu_backend *backend = ddp->comm->backend;
    size_t bytes = p->count * mu_dtype_size(p->dtype);
    struct mu_rows_message mine;
    char *dense = p->grad;
    int rc = mu_ddp_rows_pack(rows, 1, &mine, err);

    if (rc == 0 && ops->copy_any)
        rc = mu_ddp_rows_room(&rows->received, &rows->received_room, bytes, err);
    if (rc < 0)
        return -1;
    if (ops->copy_any)
        dense = rows->received;
    if (!ddp->used[i])
        memset(dense, 0, bytes);
    else if (ops->copy_any)
        rc = ops->copy_any(backend, dense, p->grad, bytes, err);
    if (rc == 0)
        rc = mu_rows_merge(&rows->list, &mine, 1, 1, dense, err);
    if (rc == 0 && ops->copy_any)
        rc = ops->copy_any(backend, p->grad, dense, bytes, err);
    ddp->used[i] = true;
    return rc;
}

int mu_ddp_rows_spread(struct muster_ddp *ddp, struct mu_err *err)
{
    for (int i = 0; mu_ddp_rows_dense(ddp) && i < ddp->nparams; i++) {
        const struct mu_ddp_param *p = &ddp->param[i];

        if (p->by_row && p->by_row->given && p->count > 0 && spread(ddp, i, err) < 0)
            return mu_comm_fail(ddp->comm, err);
    }
    return 0;
}
