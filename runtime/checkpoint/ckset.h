/* SPDX-License-Identifier: BSD-3-Clause */
/* ckset.h - the files of one checkpoint: one file with all items, or a commit record
 * and the shards that it names
 */
#ifndef MU_CKSET_H
#define MU_CKSET_H

#include <limits.h>

#include "runtime/checkpoint/ckfile.h"

struct mu_ckset {
    char folder[PATH_MAX], name[MU_CKFILE_NAME];
    char path[PATH_MAX]; /* NAME-STEP.muster */
    uint64_t step;
    uint32_t nfiles;          /* that hold items */
    struct mu_ckfile *record; /* NAME-STEP.muster */
    struct mu_ckid *ids;      /* of the shards; NULL when the record holds the items */
};

/* Errors are those of mu_ckfile_open, and EINVAL for a file of another step. Clear the
 * set also after a failure.
 */
int mu_ckset_open(struct mu_ckset *set, const char *folder, const char *name,
                  uint64_t step, struct mu_err *err);
void mu_ckset_clear(struct mu_ckset *set);

/* File i, 0 .. nfiles - 1, NULL on failure: EIO for a shard of another save of the same
 * step. Give it back with mu_ckset_release.
 */
struct mu_ckfile *mu_ckset_file(struct mu_ckset *set, uint32_t i, struct mu_err *err);
void mu_ckset_release(const struct mu_ckset *set, struct mu_ckfile *file);

#endif
