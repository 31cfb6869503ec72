/* SPDX-License-Identifier: BSD-3-Clause */
/* ddp_rows_send.c - the ranks exchange rows of gradients, and add them up
 *
 * In sync, when all buckets have started, the ranks exchange how many rows each has,
 * then the rows themselves, beside the buckets that are still in flight:
 *
 *   dense part -> its bucket, as ever -> the mean --.
 *   rows -> list -> message -> all ranks -> sum -----+-> the gradient -> norm, clipping
 *
 * A parameter with rows has a bucket of its own. Where no rank has a dense part of it,
 * the bucket is absent, and the gradient starts at zero. All ranks have the same
 * numbers of rows, so all decide alike when an all-reduce is cheaper.
 */
#include "runtime/ddp/ddp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/core/dtype.h"

#define NONE (-1) /* in place of a count: this rank has no rows, not even zero */

/* Each rank sends its message to all others; count has how many rows each rank has. */
static int start_rows(struct muster_ddp *ddp, int i, const int64_t *count,
                      struct mu_err *err)
{
    struct mu_ddp_rows *rows = ddp->param[i].by_row;
    int size = ddp->comm->world->size, me = ddp->comm->world->rank;
    size_t mine = mu_rows_bytes(&rows->list, rows->list.n), at = 0;
    struct mu_coll coll = { .kind = MU_COLL_EXCHANGE,
                            .pattern = MU_ALLTOALLV,
                            .dtype = MUSTER_BYTE,
                            .send = rows->sent,
                            .sends = rows->parts,
                            .recvs = rows->parts + size,
                            .scale = 1 };

    for (int r = 0; r < size; r++) {
        size_t n = count[r * ddp->nby_row] > 0 ? (size_t)count[r * ddp->nby_row] : 0;
        size_t bytes = r == me ? 0 : mu_rows_bytes(&rows->list, n);

        rows->parts[r] = (struct mu_part){ 0, r == me ? 0 : mine };
        rows->parts[size + r] = (struct mu_part){ at, bytes };
        rows->from[r].n = n;
        at += bytes;
    }
    if (mu_ddp_rows_room(&rows->received, &rows->received_room, at, err) < 0)
        return mu_comm_fail(ddp->comm, err);
    for (int r = 0; r < size; r++)
        rows->from[r].bytes =
            r == me ? rows->sent : rows->received + rows->parts[size + r].at;
    rows->nfrom = size;
    rows->scale = 1.0 / size;
    coll.recv = rows->received;
    return mu_ddp_coll_start(ddp, ddp->plan.place[i].bucket, &coll, mine, err);
}

/* An all-reduce instead: every row, in a message of its own. */
static int start_all(struct muster_ddp *ddp, int i, struct mu_err *err)
{
    const struct mu_ddp_param *p = &ddp->param[i];
    struct mu_ddp_rows *rows = p->by_row;
    size_t n = rows->list.rows, bytes = mu_rows_bytes(&rows->list, n);
    struct mu_rows_message mine = { rows->sent, rows->list.n };
    struct mu_coll coll = { .kind = MU_COLL_ALLREDUCE,
                            .dtype = p->dtype,
                            .op = MUSTER_SUM,
                            .count = p->count,
                            .scale = 1.0 / ddp->comm->world->size };
    char *values;

    if (mu_ddp_rows_room(&rows->received, &rows->received_room, bytes, err) < 0)
        return mu_comm_fail(ddp->comm, err);
    values = rows->received + mu_rows_values_at(n);
    for (size_t k = 0; k < n; k++)
        ((int64_t *)rows->received)[k] = (int64_t)k;
    memset(values, 0, bytes - mu_rows_values_at(n));
    if (mu_rows_merge(&rows->list, &mine, 1, 1, values, err) < 0)
        return mu_comm_fail(ddp->comm, err);
    rows->from[0] = (struct mu_rows_message){ rows->received, n };
    rows->nfrom = 1;
    rows->scale = 1;
    coll.send = coll.recv = values;
    return mu_ddp_coll_start(ddp, ddp->plan.place[i].bucket, &coll,
                             p->count * mu_dtype_size(p->dtype), err);
}

/* Rows are sent where those of all ranks have at most this share of the gradient's
 * bytes. Between nodes bytes count: an all-reduce moves each of them twice. In shared
 * memory the work of a CPU counts, about six times as much for an element of a row as
 * for one of an all-reduce (2 ranks, rows of 768 f32).
 */
#define SHARE_IN_NODE 8
#define SHARE_BETWEEN_NODES 1

static bool rows_are_cheaper(const struct muster_ddp *ddp, int i, size_t n)
{
    const struct mu_ddp_param *p = &ddp->param[i];
    size_t share = ddp->comm->world->nnodes > 1 ? SHARE_BETWEEN_NODES : SHARE_IN_NODE;

    return mu_rows_bytes(&p->by_row->list, n) <=
           p->count * mu_dtype_size(p->dtype) / share;
}

/* count: by rank, from this parameter's on. */
static int start(struct muster_ddp *ddp, int i, const int64_t *count,
                 struct mu_err *err)
{
    struct mu_ddp_rows *rows = ddp->param[i].by_row;
    size_t n = 0;

    rows->moves = false;
    for (int r = 0; r < ddp->comm->world->size; r++) {
        int64_t theirs = count[r * ddp->nby_row];

        rows->moves |= theirs != NONE;
        n += theirs > 0 ? (size_t)theirs : 0;
    }
    if (n == 0)
        rows->nfrom = 0;
    if (n == 0)
        return 0;
    return rows_are_cheaper(ddp, i, n) ? start_rows(ddp, i, count, err)
                                       : start_all(ddp, i, err);
}

/* Screen and pack this rank's rows; mine gets their number by parameter. */
static int prepare(struct muster_ddp *ddp, int64_t *mine, struct mu_err *err)
{
    size_t size = (size_t)ddp->comm->world->size;
    struct mu_rows_message message;

    for (int i = 0; i < ddp->nparams; i++) {
        struct mu_ddp_rows *rows = ddp->param[i].by_row;

        if (!rows)
            continue;
        *mine++ = rows->given ? (int64_t)rows->list.n : NONE;
        free(rows->parts);
        free(rows->from);
        rows->parts = calloc(2 * size, sizeof *rows->parts);
        rows->from = calloc(size, sizeof *rows->from);
        if (!rows->parts || !rows->from)
            return mu_err_set(err, MUSTER_EMEMORY, "out of memory for %zu ranks", size);
        if (mu_ddp_screen_rows(ddp, i, err) < 0 ||
            mu_ddp_rows_pack(rows, ddp->factor, &message, err) < 0)
            return -1;
    }
    return 0;
}

static int exchange_counts(struct muster_ddp *ddp, const int64_t *mine, int64_t *all,
                           struct mu_err *err)
{
    char what[64];
    struct mu_coll coll = { .kind = MU_COLL_ALLGATHER,
                            .dtype = MUSTER_I64,
                            .send = mine,
                            .recv = all,
                            .count = (size_t)ddp->nby_row,
                            .scale = 1,
                            .what = what,
                            .owner = mu_ddp_owner(ddp, ddp->plan.nbuckets) };

    snprintf(what, sizeof what, "the numbers of rows of step %llu",
             (unsigned long long)ddp->step);
    return mu_coll_run(ddp->comm, &coll, err);
}

int mu_ddp_rows_start(struct muster_ddp *ddp, struct mu_err *err)
{
    size_t n = (size_t)ddp->nby_row, size = (size_t)ddp->comm->world->size;
    int64_t *mine, *all;
    int rc = 0, k = 0;

    if (mu_ddp_rows_dense(ddp))
        return 0;
    mine = calloc(n, sizeof *mine);
    all = calloc(n * size, sizeof *all);
    if (!mine || !all)
        rc = mu_err_set(err, MUSTER_EMEMORY, "out of memory for %zu numbers", n);
    if (rc < 0 || prepare(ddp, mine, err) < 0)
        rc = mu_comm_fail(ddp->comm, err);
    if (rc == 0)
        rc = exchange_counts(ddp, mine, all, err);
    for (int i = 0; rc == 0 && i < ddp->nparams; i++)
        if (ddp->param[i].by_row)
            rc = start(ddp, i, all + k++, err);
    free(mine);
    free(all);
    return rc;
}

int mu_ddp_rows_finish(struct muster_ddp *ddp, int b, struct mu_err *err)
{
    int i = ddp->bucket[b].param[0];
    const struct mu_ddp_param *p = &ddp->param[i];
    char *mean = ddp->bucket[b].mem + ddp->plan.place[i].offset;

    if (!p->by_row || !p->by_row->moves || p->count == 0)
        return 0;
    if (ddp->absent[i])
        memset(mean, 0, p->count * mu_dtype_size(p->dtype));
    ddp->absent[i] = ddp->missing_everywhere[i] = false;
    return mu_rows_merge(&p->by_row->list, p->by_row->from, p->by_row->nfrom,
                         p->by_row->scale, mean, err) < 0
               ? mu_comm_fail(ddp->comm, err)
               : 0;
}
