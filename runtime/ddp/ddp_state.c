/* SPDX-License-Identifier: BSD-3-Clause */
/* ddp_state.c - what compression keeps from step to step, as items of a checkpoint */
#include "runtime/ddp/ddp.h"

#include <stdio.h>
#include <stdlib.h>

#include "runtime/core/item.h"

int mu_ddp_state(const struct muster_ddp *ddp, struct muster_item *items, int room)
{
    int n = 0;

    for (int i = 0; ddp->kept_name && i < ddp->nparams; i++) {
        struct muster_item kept[2];
        int nkept = ddp->hook->keeps(ddp, ddp->hook_state, i, kept);

        for (int k = 0; k < nkept; k++, n++) {
            kept[k].name = ddp->kept_name[2 * i + k];
            if (n < room)
                items[n] = kept[k];
        }
    }
    return n;
}

struct muster_item mu_ddp_own_item(const struct muster_ddp *ddp, void *data,
                                   size_t count)
{
    uint64_t bytes = count * sizeof(float);

    return (struct muster_item){ .data = data,
                                 .bytes = bytes,
                                 .offset = bytes * (uint64_t)ddp->comm->world->rank,
                                 .total = bytes * (uint64_t)ddp->comm->world->size };
}

int mu_ddp_state_open(struct muster_ddp *ddp, struct mu_err *err)
{
    static const char *const what[2] = { "left", "factor" };

    if (!ddp->hook->keeps)
        return 0;
    ddp->kept_name = calloc(2 * (size_t)ddp->nparams + 1, sizeof *ddp->kept_name);
    if (!ddp->kept_name)
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory for %d names",
                          ddp->nparams);
    for (int k = 0; k < 2 * ddp->nparams; k++)
        snprintf(ddp->kept_name[k], MU_DDP_KEPT_NAME, MU_DDP_KEPT "%llu.%d.%s",
                 (unsigned long long)ddp->id, ddp->param[k / 2].index, what[k % 2]);
    return 0;
}
