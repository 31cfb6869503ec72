/* SPDX-License-Identifier: BSD-3-Clause */
/* items.c - the items of a checkpoint: names, slices, the memory they are in */
#include "runtime/checkpoint/checkpoint.h"

#include <string.h>

bool mu_checkpoint_on_gpu(const struct mu_comm *comm, const void *p)
{
    return comm->ops->is_host && p && !comm->ops->is_host(comm->backend, p);
}

int mu_checkpoint_copy(struct mu_comm *comm, void *dst, const void *src, uint64_t bytes,
                       struct mu_err *err)
{
    if (bytes == 0)
        return 0;
    if (mu_checkpoint_on_gpu(comm, dst) || mu_checkpoint_on_gpu(comm, src))
        return comm->ops->copy_any(comm->backend, dst, src, bytes, err);
    memcpy(dst, src, bytes);
    return 0;
}

void mu_checkpoint_slice(uint64_t bytes, int rank, int size, uint64_t *offset,
                         uint64_t *length)
{
    uint64_t each = (bytes / (uint64_t)size + 63) / 64 * 64;
    uint64_t from = each * (uint64_t)rank;

    *offset = from < bytes ? from : bytes;
    *length = bytes - *offset < each || rank == size - 1 ? bytes - *offset : each;
}

int mu_checkpoint_items(const struct muster_checkpoint *c,
                        const struct muster_item *items, int nitems, struct mu_err *err)
{
    if (nitems < 0 || (nitems > 0 && !items))
        return mu_err_set(err, MUSTER_EUSAGE,
                          "checkpoint: items is NULL, or nitems (%d) is negative",
                          nitems);
    for (int i = 0; i < nitems; i++) {
        const struct muster_item *item = &items[i];

        if (!item->name || !*item->name || strlen(item->name) >= MU_CKFILE_NAME ||
            (strncmp(item->name, MU_ITEM_RESERVED, strlen(MU_ITEM_RESERVED)) == 0 &&
             !mu_checkpoint_may_miss(item->name)))
            return mu_err_set(err, MUSTER_EUSAGE,
                              "checkpoint: item %d needs a name of 1 to %d bytes that "
                              "does not start with " MU_ITEM_RESERVED,
                              i, MU_CKFILE_NAME - 1);
        for (int k = 0; k < i; k++)
            if (strcmp(items[k].name, item->name) == 0)
                return mu_err_set(err, MUSTER_EUSAGE,
                                  "checkpoint: two items have the name '%s'",
                                  item->name);
        if (item->bytes > 0 && !item->data)
            return mu_err_set(err, MUSTER_EUSAGE, "checkpoint: item '%s' has no data",
                              item->name);
        if (item->total &&
            (item->offset > item->total || item->bytes > item->total - item->offset))
            return mu_err_set(
                err, MUSTER_EUSAGE,
                "checkpoint: item '%s' of %llu bytes has no bytes %llu to "
                "%llu",
                item->name, (unsigned long long)item->total,
                (unsigned long long)item->offset,
                (unsigned long long)(item->offset + item->bytes));
        if (item->total && !c->sharded)
            return mu_err_set(err, MUSTER_EUSAGE,
                              "checkpoint: each rank has a part of item '%s': set the "
                              "option sharded",
                              item->name);
    }
    return 0;
}
