/* SPDX-License-Identifier: BSD-3-Clause */
/* checkpoint_items.h - the items of a checkpoint, over all of its files */
#ifndef MU_CHECKPOINT_ITEMS_H
#define MU_CHECKPOINT_ITEMS_H

#include "runtime/checkpoint/ckset.h"

struct mu_ckitem {
    char name[MU_CKFILE_NAME];
    uint64_t bytes;
};

/* In the order of their first part; caller frees *out. Returns their number. -1: a file
 * is missing or damaged, or an item is not whole; the sentence names it.
 */
int mu_ckitems_list(struct mu_ckset *set, struct mu_ckitem **out, struct mu_err *err);

/* Read each byte of the checkpoint, in runs of one item: give `run` (may be NULL) the
 * item's name, the place of the run in the item, and the bytes, which are checked.
 */
int mu_ckitems_read(struct mu_ckset *set,
                    int (*run)(void *arg, const char *name, uint64_t at,
                               const void *data, uint64_t len, struct mu_err *err),
                    void *arg, struct mu_err *err);

#endif
