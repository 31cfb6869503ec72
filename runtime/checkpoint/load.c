/* SPDX-License-Identifier: BSD-3-Clause */
/* load.c - the newest checkpoint that is whole, and ours */
#include "runtime/checkpoint/checkpoint.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/checkpoint/ckfolder.h"

/* The files of one checkpoint: the one file, or a shard after the other. */
struct source {
    struct muster_checkpoint *c;
    uint64_t step;
    struct mu_ckfile *record; /* NAME-STEP.muster */
    struct mu_ckid *ids;      /* of the shards, NULL when the record holds the items */
    uint32_t nfiles;
};

static void source_close(struct source *src)
{
    mu_ckfile_close(src->record);
    free(src->ids);
}

/* A file of another program or model: err->code tells it from a damaged one. */
static int check_kind(const struct muster_checkpoint *c, const struct mu_ckfile *file,
                      const char *path, struct mu_err *err)
{
    const char *kind = mu_ckfile_meta(file)->kind;

    if (strcmp(kind, c->kind) == 0)
        return 0;
    return mu_err_set(err, MUSTER_ECONTRACT, "%s is of '%s', this is '%s'", path, kind,
                      c->kind);
}

/* A world of one may save a single shard, so their number does not tell. */
static bool is_record(const struct mu_ckfile *file)
{
    return mu_ckfile_nparts(file) == 1 &&
           strcmp(mu_ckfile_part(file, 0)->name, MU_CHECKPOINT_SHARDS) == 0;
}

static int read_ids(struct source *src, const char *path, struct mu_err *err)
{
    const struct mu_ckpart *part = mu_ckfile_part(src->record, 0);

    if (part->bytes != src->nfiles * sizeof *src->ids)
        return mu_err_set(err, EIO, "%s is damaged: it does not name its shards", path);
    src->ids = malloc(part->bytes);
    if (!src->ids)
        return mu_err_set(err, ENOMEM, "%s: no memory for %u shards", path,
                          src->nfiles);
    return mu_ckfile_read(src->record, 0, 0, part->bytes, src->ids, err);
}

static int source_open(struct source *src, struct muster_checkpoint *c, uint64_t step,
                       struct mu_err *err)
{
    const struct mu_ckmeta *meta;
    char path[PATH_MAX];

    *src = (struct source){ .c = c, .step = step };
    mu_ckfolder_path(c->folder, c->name, step, path, sizeof path);
    if (mu_ckfile_open(path, &src->record, err) < 0)
        return -1;
    meta = mu_ckfile_meta(src->record);
    if (check_kind(c, src->record, path, err) < 0)
        return -1;
    if (meta->step != step)
        return mu_err_set(err, EINVAL, "%s is the checkpoint of step %llu, renamed",
                          path, (unsigned long long)meta->step);
    src->nfiles = meta->nshards;
    return is_record(src->record) ? read_ids(src, path, err) : 0;
}

/* File i of the checkpoint, opened if need be; *close tells whether to close it. */
static struct mu_ckfile *source_file(struct source *src, uint32_t i, bool *close,
                                     struct mu_err *err)
{
    struct muster_checkpoint *c = src->c;
    struct mu_ckfile *file;
    struct mu_ckid id;
    char path[PATH_MAX];

    *close = src->ids != NULL;
    if (!src->ids)
        return src->record;
    mu_ckfolder_shard(c->folder, c->name, src->step, i, src->nfiles, path, sizeof path);
    if (mu_ckfile_open(path, &file, err) < 0)
        return NULL;
    id = mu_ckfile_id(file);
    if (memcmp(&id, &src->ids[i], sizeof id) != 0) {
        mu_ckfile_close(file);
        mu_err_set(err, EIO, "%s belongs to another save of step %llu", path,
                   (unsigned long long)src->step);
        return NULL;
    }
    return file;
}

/* Bytes at .. at + len - 1 of part p into memory of the host or of a GPU. */
static int read_to(struct muster *m, struct mu_ckfile *file, int p, uint64_t at,
                   uint64_t len, uint8_t *to, struct mu_err *err)
{
    uint8_t *here;
    int rc;

    if (!mu_checkpoint_away(m, to))
        return mu_ckfile_read(file, p, at, len, to, err);
    here = malloc(len);
    if (!here)
        return mu_err_set(err, ENOMEM, "checkpoint: no memory for %llu bytes",
                          (unsigned long long)len);
    rc = mu_ckfile_read(file, p, at, len, here, err);
    if (rc == 0)
        rc = mu_checkpoint_bring(m, to, here, len, err);
    free(here);
    return rc;
}

/* The bytes of `item` that this rank wants and part p of the file has. */
static int read_overlap(struct muster *m, struct mu_ckfile *file, int p,
                        const struct muster_item *item, uint64_t *got,
                        struct mu_err *err)
{
    const struct mu_ckpart *part = mu_ckfile_part(file, p);
    uint64_t want = item->total ? item->offset : 0;
    uint64_t from = part->offset > want ? part->offset : want;
    uint64_t to = part->offset + part->bytes;

    if (to > want + item->bytes)
        to = want + item->bytes;
    if (from >= to)
        return 0;
    *got += to - from;
    return read_to(m, file, p, from - part->offset, to - from,
                   (uint8_t *)item->data + (from - want), err);
}

static int find_item(const struct muster_item *items, int nitems, const char *name,
                     int guess)
{
    if (guess < nitems && strcmp(items[guess].name, name) == 0)
        return guess; /* the usual case: same order */
    for (int i = 0; i < nitems; i++)
        if (strcmp(items[i].name, name) == 0)
            return i;
    return -1;
}

static int read_file(struct source *src, struct mu_ckfile *file,
                     const struct muster_item *items, int nitems, uint64_t *got,
                     struct mu_err *err)
{
    char path[PATH_MAX];

    mu_ckfolder_path(src->c->folder, src->c->name, src->step, path, sizeof path);
    for (int p = 0; p < mu_ckfile_nparts(file); p++) {
        const struct mu_ckpart *part = mu_ckfile_part(file, p);
        int i = find_item(items, nitems, part->name, p);
        uint64_t total;

        if (i < 0 && mu_checkpoint_may_miss(part->name))
            continue;
        if (i < 0)
            return mu_err_set(err, MUSTER_ECONTRACT,
                              "%s holds '%s', which this program does not have", path,
                              part->name);
        total = items[i].total ? items[i].total : items[i].bytes;
        if (part->total != total && mu_checkpoint_may_miss(part->name))
            continue; /* another world's */
        if (part->total != total)
            return mu_err_set(err, MUSTER_ECONTRACT,
                              "%s holds '%s' of %llu bytes, this program's has %llu",
                              path, part->name, (unsigned long long)part->total,
                              (unsigned long long)total);
        if (read_overlap(src->c->m, file, p, &items[i], &got[i], err) < 0)
            return -1;
    }
    return 0;
}

/* A run in another world, or whose checkpoints had no compression. */
static void tell_missed(const struct muster_checkpoint *c, uint64_t step,
                        const struct muster_item *items, int nitems,
                        const uint64_t *got)
{
    for (int i = 0; i < nitems; i++)
        if (mu_checkpoint_may_miss(items[i].name) && got[i] != items[i].bytes) {
            mu_log(&c->m->log, MU_LOG_WARN,
                   "checkpoint of step %llu: nothing of what compression left on %d "
                   "rank%s; it starts without",
                   (unsigned long long)step, muster_size(c->m),
                   mu_plural(muster_size(c->m)));
            return;
        }
}

/* Everything this rank wants of the checkpoint of `step`. */
static int read_step(struct muster_checkpoint *c, uint64_t step,
                     const struct muster_item *items, int nitems, struct mu_err *err)
{
    struct source src;
    uint64_t *got = calloc((size_t)nitems + 1, sizeof *got);
    int rc =
        got ? source_open(&src, c, step, err)
            : mu_err_set(err, ENOMEM, "checkpoint: no memory for %d items", nitems);

    if (!got)
        return rc;
    for (uint32_t i = 0; rc == 0 && i < src.nfiles; i++) {
        bool close;
        struct mu_ckfile *file = source_file(&src, i, &close, err);

        rc = file ? read_file(&src, file, items, nitems, got, err) : -1;
        if (file && close)
            mu_ckfile_close(file);
    }
    for (int i = 0; rc == 0 && i < nitems; i++)
        if (got[i] != items[i].bytes &&
            (got[i] > 0 || !mu_checkpoint_may_miss(items[i].name))) {
            char path[PATH_MAX];

            mu_ckfolder_path(c->folder, c->name, step, path, sizeof path);
            rc =
                mu_err_set(err, MUSTER_ECONTRACT, "%s holds %llu of %llu bytes of '%s'",
                           path, (unsigned long long)got[i],
                           (unsigned long long)items[i].bytes, items[i].name);
        }
    if (rc == 0 && muster_rank(c->m) == 0)
        tell_missed(c, step, items, nitems, got);
    source_close(&src);
    free(got);
    return rc;
}

static int forget(struct muster *m, const struct muster_item *item, struct mu_err *err)
{
    if (item->bytes == 0)
        return 0;
    if (!mu_checkpoint_away(m, item->data)) {
        memset(item->data, 0, item->bytes);
        return 0;
    }
    if (m->ops->zero(m->backend, item->data, item->bytes, NULL, err) < 0)
        return -1;
    return m->ops->drain(m->backend, NULL, err);
}

/* With the option sharded every rank reads what it wants; else rank 0 reads for all, so
 * the others need not see the folder.
 */
static int try_step(struct muster_checkpoint *c, uint64_t step,
                    const struct muster_item *items, int nitems)
{
    struct mu_err err = { 0 };
    int rc = 0, status;

    if (c->sharded || muster_rank(c->m) == 0)
        rc = read_step(c, step, items, nitems, &err);
    status = mu_checkpoint_agree(c->m, rc, &err);
    /* The next one may not have them, and half of this one must not stay. */
    for (int i = 0; status != MUSTER_OK && i < nitems; i++)
        if (mu_checkpoint_may_miss(items[i].name) && forget(c->m, &items[i], &err) < 0)
            return mu_fail_err(c->m, &err);
    for (int i = 0; status == MUSTER_OK && !c->sharded && i < nitems; i++)
        status = mu_checkpoint_broadcast(c->m, items[i].data, items[i].bytes, 0);
    return status;
}

/* Is this a failure of one checkpoint (so that an older one may do), or of the world?
 */
static bool of_file(int status)
{
    return status == MUSTER_EIO || status == MUSTER_ECONTRACT;
}

int muster_checkpoint_load(struct muster_checkpoint *c, const struct muster_item *items,
                           int nitems, uint64_t *step, int *found)
{
    struct mu_err err = { 0 }, first = { 0 };
    uint64_t *steps = NULL;
    int64_t n = 0;
    int rc, status = muster_checkpoint_wait(c);

    if (status != MUSTER_OK)
        return status;
    rc = mu_checkpoint_items(c, items, nitems, &err);
    if (rc == 0 && muster_rank(c->m) == 0) {
        n = mu_ckfolder_list(c->folder, c->name, &steps, &err);
        rc = n < 0 ? -1 : 0;
    }
    status = mu_checkpoint_agree(c->m, rc, &err);
    if (status == MUSTER_OK)
        status = mu_checkpoint_broadcast(c->m, &n, sizeof n, 0);
    if (status == MUSTER_OK)
        *found = 0;
    for (int64_t i = 0; status == MUSTER_OK && i < n; i++) {
        uint64_t at = steps ? steps[i] : 0;

        status = mu_checkpoint_broadcast(c->m, &at, sizeof at, 0);
        if (status != MUSTER_OK)
            break;
        status = try_step(c, at, items, nitems);
        if (status == MUSTER_OK) {
            mu_ckfolder_path(c->folder, c->name, at, c->path, sizeof c->path);
            *step = at;
            *found = 1;
            break;
        }
        if (!of_file(status))
            break;
        if (first.code == 0)
            mu_err_set(&first, status, "%s", muster_error(c->m));
        if (muster_rank(c->m) == 0)
            mu_log(&c->m->log, MU_LOG_WARN, "checkpoint refused: %s",
                   muster_error(c->m));
        status = i + 1 < n ? MUSTER_OK
                           : mu_fail(c->m, first.code,
                                     "no checkpoint in %s can be used; the newest: %s",
                                     c->folder, first.text);
    }
    free(steps);
    return status;
}
