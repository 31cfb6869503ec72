/* SPDX-License-Identifier: BSD-3-Clause */
/* ddp_weight.c - weights of micro-batches, ranks that are out of data */
#include "runtime/ddp/ddp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What each rank sends before the last micro-batch of a step. */
struct share {
    double sum;
    int32_t joined, pad;
};

/* Exchange the sums; *joined counts the ranks that are out of data. */
static int exchange(struct muster_ddp *ddp, bool join, int *joined, struct mu_err *err)
{
    struct share mine = { ddp->weight.sum, join, 0 };
    int size = ddp->comm->world->size;
    double *sum = calloc((size_t)size, sizeof *sum);
    struct mu_gathered all;
    char what[96];

    /* A gather is matched by its name: two objects must not exchange their weights. */
    snprintf(what, sizeof what, "the exchange of weights of ddp object %u in step %llu",
             mu_ddp_owner(ddp, 0).object, (unsigned long long)ddp->step);
    if (!sum || mu_gather(ddp->comm, what, &mine, sizeof mine, &all, err) < 0) {
        free(sum);
        return sum ? -1 : mu_err_set(err, MUSTER_EMEMORY, "out of memory");
    }
    *joined = 0;
    ddp->no_data = true;
    for (int r = 0; r < size; r++) {
        struct share theirs;

        memcpy(&theirs, all.at[r], sizeof theirs);
        sum[r] = theirs.sum;
        *joined += theirs.joined;
        ddp->no_data &= theirs.sum == 0;
    }
    mu_gathered_clear(&all);
    ddp->factor = mu_weight_factor(&ddp->weight, sum, size);
    free(sum);
    return 0;
}

/* Has i a gradient, or rows of it, in a micro-batch so far? */
static bool has_some(const struct muster_ddp *ddp, int i)
{
    return ddp->used[i] || (ddp->param[i].by_row && ddp->param[i].by_row->given);
}

int mu_ddp_weigh(struct muster_ddp *ddp, double weight, struct mu_err *err)
{
    double rescale;
    int joined;

    for (int i = 0; i < ddp->nparams; i++)
        if (mu_ddp_begun(ddp, i) || (has_some(ddp, i) && !ddp->weight.given))
            return mu_err_set(
                err, MUSTER_EUSAGE,
                "muster_ddp_weight after the gradient of '%s' became ready: call it "
                "before the backward pass of each micro-batch",
                ddp->param[i].name);
    rescale = mu_weight_begin(&ddp->weight, weight);
    for (int i = 0; i < ddp->nparams; i++)
        if ((ddp->used[i] && mu_ddp_scale(ddp, i, rescale, NULL, err) < 0) ||
            mu_ddp_rows_scale(ddp, i, rescale, err) < 0)
            return -1;
    return ddp->accumulating ? 0 : exchange(ddp, false, &joined, err);
}

/* Ranks join between two steps. */
static int check_between(const struct muster_ddp *ddp, struct mu_err *err)
{
    bool begun = ddp->weight.given && !ddp->accumulating;

    for (int i = 0; i < ddp->nparams; i++)
        begun |= mu_ddp_begun(ddp, i);
    return begun ? mu_err_set(
                       err, MUSTER_EUSAGE,
                       "muster_ddp_join in the middle of step %llu: call sync first",
                       (unsigned long long)ddp->step)
                 : 0;
}

int mu_ddp_join(struct muster_ddp *ddp, struct muster_finish *finish,
                int (*after)(void *arg), void *arg, int *rc, struct mu_err *err)
{
    int joined;

    *rc = 0;
    if (check_between(ddp, err) < 0)
        return -1;
    for (;;) {
        if (exchange(ddp, true, &joined, err) < 0)
            return -1;
        if (joined == ddp->comm->world->size)
            break;
        if (mu_ddp_sync(ddp, finish, NULL, err) < 0)
            return -1;
        *rc = after ? after(arg) : 0;
        if (*rc)
            return 0;
    }
    ddp->factor = 1;
    return 0;
}
