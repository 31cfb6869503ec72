/* SPDX-License-Identifier: BSD-3-Clause */
#include "runtime/checkpoint/ckset.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/parse.h"
#include "runtime/checkpoint/ckfolder.h"
#include "runtime/core/item.h"

/* Do not decide by the number of shards: a world of one may save a single shard. */
static bool is_record(const struct mu_ckfile *file)
{
    return mu_ckfile_nparts(file) == 1 &&
           strcmp(mu_ckfile_part(file, 0)->name, MU_CHECKPOINT_SHARDS) == 0;
}

static int read_ids(struct mu_ckset *set, struct mu_err *err)
{
    const struct mu_ckpart *part = mu_ckfile_part(set->record, 0);

    if (part->bytes != set->nfiles * sizeof *set->ids)
        return mu_err_set(err, EIO, "%s is damaged: it does not list its shards",
                          set->path);
    set->ids = malloc(part->bytes);
    if (!set->ids)
        return mu_err_set(err, ENOMEM, "%s: no memory for %u shards", set->path,
                          set->nfiles);
    return mu_ckfile_read(set->record, 0, 0, part->bytes, set->ids, err);
}

int mu_ckset_open(struct mu_ckset *set, const char *folder, const char *name,
                  uint64_t step, struct mu_err *err)
{
    const struct mu_ckmeta *meta;

    *set = (struct mu_ckset){ .step = step };
    if (!mu_copy(set->folder, sizeof set->folder, folder) ||
        !mu_copy(set->name, sizeof set->name, name) ||
        !mu_ckfolder_path(folder, name, step, set->path, sizeof set->path))
        return mu_err_set(err, ENAMETOOLONG,
                          "checkpoint '%s' in %s: the path is too "
                          "long",
                          name, folder);
    if (mu_ckfile_open(set->path, &set->record, err) < 0)
        return -1;
    meta = mu_ckfile_meta(set->record);
    if (meta->step != step)
        return mu_err_set(err, EINVAL,
                          "%s holds the checkpoint of step %llu: the file was renamed",
                          set->path, (unsigned long long)meta->step);
    set->nfiles = meta->nshards;
    return is_record(set->record) ? read_ids(set, err) : 0;
}

void mu_ckset_clear(struct mu_ckset *set)
{
    if (set->record)
        mu_ckfile_close(set->record);
    free(set->ids);
}

struct mu_ckfile *mu_ckset_file(struct mu_ckset *set, uint32_t i, struct mu_err *err)
{
    struct mu_ckfile *file;
    struct mu_ckid id;
    char path[PATH_MAX];

    if (!set->ids)
        return set->record;
    mu_ckfolder_shard(set->folder, set->name, set->step, i, set->nfiles, path,
                      sizeof path);
    if (mu_ckfile_open(path, &file, err) < 0)
        return NULL;
    id = mu_ckfile_id(file);
    if (memcmp(&id, &set->ids[i], sizeof id) != 0) {
        mu_ckfile_close(file);
        mu_err_set(err, EIO, "%s belongs to another save of step %llu", path,
                   (unsigned long long)set->step);
        return NULL;
    }
    return file;
}

void mu_ckset_release(const struct mu_ckset *set, struct mu_ckfile *file)
{
    if (set->ids && file)
        mu_ckfile_close(file);
}
