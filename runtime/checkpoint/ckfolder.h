/* SPDX-License-Identifier: BSD-3-Clause */
/* ckfolder.h - the files of one name in a checkpoint folder
 *
 *   NAME-000000001200.muster              a checkpoint, or the record of its shards
 *   NAME-000000001200.0003-of-0008.shard  a shard
 *   *.tmp                                 being written, or left by a run that died
 *   NAME-latest.muster                    link to the newest, for users
 *   NAME-000000000000.muster.MARK.tmp     proves that ranks share the folder
 */
#ifndef MU_CKFOLDER_H
#define MU_CKFOLDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/err.h"
#include "runtime/base/log.h"

/* Create the folder, and those above it, if it is missing. */
int mu_ckfolder_make(const char *folder, struct mu_err *err);

/* A file that a rank creates and that the others look for. The mark is in its name and
 * is its content. _set returns false where the folder takes no new file.
 */
bool mu_ckfolder_mark_set(const char *folder, const char *name, uint64_t mark);
bool mu_ckfolder_mark_is_set(const char *folder, const char *name, uint64_t mark);
void mu_ckfolder_mark_clear(const char *folder, const char *name, uint64_t mark);

/* Write the path; false when buf is too short. */
int mu_ckfolder_path(const char *folder, const char *name, uint64_t step, char *buf,
                     size_t len);
int mu_ckfolder_shard(const char *folder, const char *name, uint64_t step,
                      uint32_t shard, uint32_t nshards, char *buf, size_t len);

/* Divide FOLDER/NAME-STEP.muster into its parts; false for another kind of path. */
bool mu_ckfolder_split(const char *path, char *folder, size_t folder_len, char *name,
                       size_t name_len, uint64_t *step);

/* List the steps that have a NAME-STEP.muster, newest first; caller frees *steps.
 * Returns their number, or -1.
 */
int mu_ckfolder_list(const char *folder, const char *name, uint64_t **steps,
                     struct mu_err *err);

/* Remove temporary files, and shards without a commit record. Log each. */
void mu_ckfolder_sweep(const char *folder, const char *name, const struct mu_log *log);

/* Keep the newest `keep` checkpoints up to step `last` (-1: all) and remove older ones,
 * the commit record before its shards.
 *
 * Checkpoints later than `last` stay: a run that resumed from an earlier step counts
 * only its own. Log what cannot be removed.
 */
void mu_ckfolder_prune(const char *folder, const char *name, uint64_t last, int keep,
                       const struct mu_log *log);

/* Point NAME-latest.muster at the checkpoint of step. Where links are impossible there
 * is none: libmuster does not read it.
 */
void mu_ckfolder_latest(const char *folder, const char *name, uint64_t step);

#endif
