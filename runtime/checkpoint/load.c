/* SPDX-License-Identifier: BSD-3-Clause */
/* load.c - load the newest checkpoint that is complete and of this program */
#include "runtime/checkpoint/checkpoint.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/checkpoint/ckfolder.h"
#include "runtime/checkpoint/ckset.h"

/* A file of another program or model: err->code differs from that of a damaged file. */
static int check_kind(const struct muster_checkpoint *c, const struct mu_ckset *set,
                      struct mu_err *err)
{
    const char *kind = mu_ckfile_meta(set->record)->kind;

    if (strcmp(kind, c->kind) == 0)
        return 0;
    return mu_err_set(err, MUSTER_ECONTRACT,
                      "%s was written by '%s', but this program is '%s'", set->path,
                      kind, c->kind);
}

/* Read bytes at .. at + len - 1 of part p into memory of the host or of a GPU. */
static int read_to(struct mu_comm *comm, struct mu_ckfile *file, int p, uint64_t at,
                   uint64_t len, uint8_t *to, struct mu_err *err)
{
    uint8_t *here;
    int rc;

    if (!mu_checkpoint_on_gpu(comm, to))
        return mu_ckfile_read(file, p, at, len, to, err);
    here = malloc(len);
    if (!here)
        return mu_err_set(err, ENOMEM, "checkpoint: no memory for %llu bytes",
                          (unsigned long long)len);
    rc = mu_ckfile_read(file, p, at, len, here, err);
    if (rc == 0)
        rc = mu_checkpoint_copy(comm, to, here, len, err);
    free(here);
    return rc;
}

/* Read the bytes of `item` that this rank wants and part p of the file has. */
static int read_overlap(struct mu_comm *comm, struct mu_ckfile *file, int p,
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
    return read_to(comm, file, p, from - part->offset, to - from,
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

static int read_file(struct muster_checkpoint *c, const char *path,
                     struct mu_ckfile *file, const struct muster_item *items,
                     int nitems, uint64_t *got, struct mu_err *err)
{
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
            continue; /* saved in a world of another size */
        if (part->total != total)
            return mu_err_set(err, MUSTER_ECONTRACT,
                              "%s holds '%s' with %llu bytes, this program has %llu",
                              path, part->name, (unsigned long long)part->total,
                              (unsigned long long)total);
        if (read_overlap(c->comm, file, p, &items[i], &got[i], err) < 0)
            return -1;
    }
    return 0;
}

/* The run has another number of ranks, or its checkpoints had no compression. */
static void warn_of_missing(const struct muster_checkpoint *c, uint64_t step,
                            const struct muster_item *items, int nitems,
                            const uint64_t *got)
{
    for (int i = 0; i < nitems; i++)
        if (mu_checkpoint_may_miss(items[i].name) && got[i] != items[i].bytes) {
            mu_log(&c->comm->log, MU_LOG_WARN,
                   "checkpoint of step %llu has no compression state of %d rank%s: "
                   "compression starts without it",
                   (unsigned long long)step, c->comm->world->size,
                   mu_plural(c->comm->world->size));
            return;
        }
}

/* Read everything that this rank wants of the checkpoint of `step`. */
static int read_step(struct muster_checkpoint *c, uint64_t step,
                     const struct muster_item *items, int nitems, struct mu_err *err)
{
    struct mu_ckset set;
    uint64_t *got = calloc((size_t)nitems + 1, sizeof *got);
    int rc;

    if (!got)
        return mu_err_set(err, ENOMEM, "checkpoint: no memory for %d items", nitems);
    rc = mu_ckset_open(&set, c->folder, c->name, step, err);
    if (rc == 0)
        rc = check_kind(c, &set, err);
    for (uint32_t i = 0; rc == 0 && i < set.nfiles; i++) {
        struct mu_ckfile *file = mu_ckset_file(&set, i, err);

        rc = file ? read_file(c, set.path, file, items, nitems, got, err) : -1;
        mu_ckset_release(&set, file);
    }
    for (int i = 0; rc == 0 && i < nitems; i++)
        if (got[i] != items[i].bytes &&
            (got[i] > 0 || !mu_checkpoint_may_miss(items[i].name)))
            rc =
                mu_err_set(err, MUSTER_ECONTRACT, "%s holds %llu of %llu bytes of '%s'",
                           set.path, (unsigned long long)got[i],
                           (unsigned long long)items[i].bytes, items[i].name);
    if (rc == 0 && c->comm->world->rank == 0)
        warn_of_missing(c, step, items, nitems, got);
    mu_ckset_clear(&set);
    free(got);
    return rc;
}

static int clear_item(struct mu_comm *comm, const struct muster_item *item,
                      struct mu_err *err)
{
    if (item->bytes == 0)
        return 0;
    if (!mu_checkpoint_on_gpu(comm, item->data)) {
        memset(item->data, 0, item->bytes);
        return 0;
    }
    if (comm->ops->zero(comm->backend, item->data, item->bytes, NULL, err) < 0)
        return -1;
    return comm->ops->drain(comm->backend, NULL, err);
}

/* Clear what an incomplete checkpoint has already filled in: the next one may lack
 * these items.
 */
static int clear_kept_items(struct mu_comm *comm, const struct muster_item *items,
                            int nitems, struct mu_err *err)
{
    for (int i = 0; i < nitems; i++)
        if (mu_checkpoint_may_miss(items[i].name) &&
            clear_item(comm, &items[i], err) < 0)
            return -1;
    return 0;
}

/* With the option sharded every rank reads what it wants. Else rank 0 reads for all, so
 * only rank 0 needs the folder. Returns as mu_checkpoint_agree.
 */
static int try_step(struct muster_checkpoint *c, uint64_t step,
                    const struct muster_item *items, int nitems, struct mu_err *err)
{
    struct mu_err more = { 0 };
    int rc = 0;

    if (c->sharded || c->comm->world->rank == 0)
        rc = read_step(c, step, items, nitems, err);
    rc = mu_checkpoint_agree(c->comm, rc, err);
    if (rc != 0 && clear_kept_items(c->comm, items, nitems, &more) < 0 && rc > 0) {
        *err = more;
        return -1;
    }
    for (int i = 0; rc == 0 && !c->sharded && i < nitems; i++)
        rc = mu_checkpoint_broadcast(c->comm, items[i].data, items[i].bytes, 0, err);
    return rc;
}

/* True when an older checkpoint may be used instead. */
static bool is_of_file(int status)
{
    return status == MUSTER_EIO || status == MUSTER_ECONTRACT;
}

/* List the steps that have a checkpoint, newest first: *steps on rank 0, their number
 * on all ranks. Returns the number, or -1.
 */
static int64_t list_steps(struct muster_checkpoint *c, int rc, uint64_t **steps,
                          struct mu_err *err)
{
    int64_t n = 0;

    if (rc == 0 && c->comm->world->rank == 0) {
        n = mu_ckfolder_list(c->folder, c->name, steps, err);
        rc = n < 0 ? -1 : 0;
    }
    if (mu_checkpoint_agree(c->comm, rc, err) != 0 ||
        mu_checkpoint_broadcast(c->comm, &n, sizeof n, 0, err) < 0)
        return -1;
    return n;
}

/* Load the newest of n checkpoints that is usable. */
static int load_newest(struct muster_checkpoint *c, const uint64_t *steps, int64_t n,
                       const struct muster_item *items, int nitems, uint64_t *step,
                       struct mu_err *err)
{
    struct mu_err first = { 0 };

    for (int64_t i = 0; i < n; i++) {
        uint64_t at = steps ? steps[i] : 0;
        int rc = mu_checkpoint_broadcast(c->comm, &at, sizeof at, 0, err);

        if (rc == 0)
            rc = try_step(c, at, items, nitems, err);
        if (rc == 0) {
            mu_ckfolder_path(c->folder, c->name, at, c->path, sizeof c->path);
            *step = at;
            return 0;
        }
        if (rc < 0 || !is_of_file(err->code))
            return -1;
        if (first.code == 0)
            first = *err;
        if (c->comm->world->rank == 0)
            mu_log(&c->comm->log, MU_LOG_WARN, "checkpoint refused: %s", err->text);
    }
    return mu_err_set(err, first.code, "no checkpoint in %s is usable; the newest: %s",
                      c->folder, first.text);
}

int mu_checkpoint_load(struct muster_checkpoint *c, const struct muster_item *items,
                       int nitems, uint64_t *step, int *found, struct mu_err *err)
{
    uint64_t *steps = NULL;
    int64_t n;
    int rc;

    if (mu_checkpoint_wait(c, err) < 0)
        return -1;
    rc = mu_checkpoint_items(c, items, nitems, err);
    if (mu_checkpoint_same(c, "muster_checkpoint_load", NULL, items, nitems, rc, err) <
        0)
        return -1;
    n = list_steps(c, rc, &steps, err);
    if (n >= 0)
        *found = 0;
    if (n > 0)
        rc = load_newest(c, steps, n, items, nitems, step, err);
    if (n > 0 && rc == 0)
        *found = 1;
    free(steps);
    return n < 0 ? -1 : rc;
}
