/* SPDX-License-Identifier: BSD-3-Clause */
/* save.c - save: a thread writes while the training goes on */
#include "runtime/checkpoint/checkpoint.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/thread.h"
#include "runtime/checkpoint/ckfolder.h"

/* Ranks that wait for a slow writer run a collective this often. So a long write does
 * not time out, while a dead rank does.
 */
#define AGREE_EVERY 1 /* seconds */

/* Copy what is on a GPU now, in every mode: the thread that writes does not use the
 * GPU.
 */
static int copy_from_gpu(struct muster_checkpoint *c, struct mu_err *err)
{
    struct mu_cksave *s = &c->save;

    s->gpu_bytes = 0;
    for (int i = 0; i < s->nparts; i++) {
        struct mu_ckpart *part = &s->parts[i];
        uint8_t *to = s->stage + s->gpu_bytes;

        if (!mu_checkpoint_on_gpu(c->comm, part->data))
            continue;
        if (mu_checkpoint_copy(c->comm, to, part->data, part->bytes, err) < 0)
            return -1;
        part->data = to;
        s->gpu_bytes += part->bytes;
    }
    return 0;
}

static void copy_items(struct mu_cksave *s)
{
    const uint8_t *here = s->stage, *end = here + s->gpu_bytes;
    uint8_t *to = s->stage + s->gpu_bytes;

    for (int i = 0; i < s->nparts; i++) {
        const uint8_t *data = s->parts[i].data;

        if ((data >= here && data < end) || s->parts[i].bytes == 0)
            continue;
        memcpy(to, data, s->parts[i].bytes);
        s->parts[i].data = to;
        to += s->parts[i].bytes;
    }
}

static void announce(struct mu_cksave *s, bool done)
{
    pthread_mutex_lock(&s->lock);
    s->copied = true;
    s->done = done;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

/* The new checkpoint is on disk: point the link at it and remove older ones. Removing a
 * large file may take long, so the thread does it where possible.
 */
static void tidy(struct muster_checkpoint *c)
{
    mu_ckfolder_latest(c->folder, c->name, c->save.meta.step);
    mu_ckfolder_prune(c->folder, c->name, c->save.meta.step, c->keep, &c->comm->log);
}

static void *write_thread(void *arg)
{
    struct muster_checkpoint *c = arg;
    struct mu_cksave *s = &c->save;

    if (s->lazy)
        copy_items(s);
    if (s->stage)
        announce(s, false);
    s->rc = mu_ckfile_write(s->path, &s->meta, s->parts, s->nparts, &s->id, &s->err);
    if (s->rc == 0 && !c->sharded)
        tidy(c);
    announce(s, true);
    return NULL;
}

/* List what the file of this rank holds: whole items, or its part of each. Returns how
 * many bytes of them are copied before the write.
 */
static uint64_t divide(struct muster_checkpoint *c, const struct muster_item *items,
                       int nitems)
{
    int rank = c->comm->world->rank, size = c->comm->world->size;
    uint64_t bytes = 0;

    c->save.nparts = nitems;
    for (int i = 0; i < nitems; i++) {
        struct mu_ckpart *part = &c->save.parts[i];
        uint64_t offset = items[i].offset, length = items[i].bytes;

        memset(part, 0, sizeof *part);
        strcpy(part->name, items[i].name);
        part->total = items[i].total ? items[i].total : items[i].bytes;
        part->data = items[i].data;
        if (items[i].total == 0) {
            offset = 0;
            if (c->sharded)
                mu_checkpoint_slice(items[i].bytes, rank, size, &offset, &length);
            part->data = (const uint8_t *)items[i].data + offset;
        }
        part->offset = offset;
        part->bytes = length;
        if (c->mode != MUSTER_CHECKPOINT_WAIT ||
            mu_checkpoint_on_gpu(c->comm, part->data))
            bytes += length;
    }
    return bytes;
}

static int make_room(struct muster_checkpoint *c, const struct muster_item *items,
                     int nitems, struct mu_err *err)
{
    struct mu_cksave *s = &c->save;
    struct mu_ckpart *parts = realloc(s->parts, ((size_t)nitems + 1) * sizeof *parts);
    uint64_t bytes;

    if (!parts)
        return mu_err_set(err, ENOMEM, "checkpoint: no memory for %d items", nitems);
    s->parts = parts;
    bytes = divide(c, items, nitems);
    if ((c->mode != MUSTER_CHECKPOINT_WAIT || bytes > 0) &&
        (!s->stage || bytes > s->stage_bytes)) {
        free(s->stage);
        s->stage = malloc(bytes + 1);
        s->stage_bytes = s->stage ? bytes : 0;
        if (!s->stage)
            return mu_err_set(err, ENOMEM, "checkpoint: no memory to copy %llu bytes",
                              (unsigned long long)bytes);
    }
    return 0;
}

static int start(struct muster_checkpoint *c, uint64_t step,
                 const struct muster_item *items, int nitems, struct mu_err *err)
{
    struct mu_cksave *s = &c->save;
    uint32_t shard = c->sharded ? (uint32_t)c->comm->world->rank : 0;
    uint32_t nshards = c->sharded ? (uint32_t)c->comm->world->size : 1;
    int rc;

    if (make_room(c, items, nitems, err) < 0 || copy_from_gpu(c, err) < 0)
        return -1;
    s->meta = (struct mu_ckmeta){ .step = step,
                                  .shard = shard,
                                  .nshards = nshards,
                                  .world = (uint32_t)c->comm->world->size };
    strcpy(s->meta.kind, c->kind);
    if (c->sharded)
        mu_ckfolder_shard(c->folder, c->name, step, shard, nshards, s->path,
                          sizeof s->path);
    else
        mu_ckfolder_path(c->folder, c->name, step, s->path, sizeof s->path);
    s->copied = s->done = false;
    s->lazy = c->mode == MUSTER_CHECKPOINT_LAZY;
    if (c->mode == MUSTER_CHECKPOINT_COPY)
        copy_items(s);
    rc = mu_thread_start(&s->thread, "muster-save", write_thread, c);
    if (rc != 0)
        return mu_err_set(err, rc, "checkpoint: no thread to write it: %s",
                          strerror(rc));
    return 0;
}

int mu_checkpoint_save(struct muster_checkpoint *c, uint64_t step,
                       const struct muster_item *items, int nitems, struct mu_err *err)
{
    struct mu_cksave *s = &c->save;
    int rc;

    if (mu_checkpoint_wait(c, err) < 0)
        return -1;
    rc = mu_checkpoint_items(c, items, nitems, &s->err);
    /* Else the items of rank 0 count alone. */
    if (mu_checkpoint_same(c, "muster_checkpoint_save", &step, items,
                           c->sharded ? nitems : 0, rc, err) < 0)
        return -1;
    s->running = true;
    s->meta.step = step;
    s->writes = c->sharded || c->comm->world->rank == 0;
    s->rc = rc;
    s->failed = rc < 0;
    if (rc == 0 && s->writes && start(c, step, items, nitems, &s->err) < 0) {
        s->rc = -1;
        s->failed = true;
    }
    return c->mode == MUSTER_CHECKPOINT_WAIT ? mu_checkpoint_wait(c, err) : 0;
}

void mu_checkpoint_copied(struct muster_checkpoint *c)
{
    struct mu_cksave *s = &c->save;

    if (!s->running || !s->writes || s->failed)
        return;
    pthread_mutex_lock(&s->lock);
    while (!s->copied)
        pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

/* True when this rank has nothing more to write; waits at most AGREE_EVERY. */
static bool done_soon(struct mu_cksave *s)
{
    double until = mu_clock_s() + AGREE_EVERY;
    bool done;

    if (!s->writes || s->failed)
        return true;
    pthread_mutex_lock(&s->lock);
    while (!s->done && mu_cond_wait(&s->changed, &s->lock, until) == 0)
        ;
    done = s->done;
    pthread_mutex_unlock(&s->lock);
    return done;
}

/* All shards are on disk: a commit record that lists them makes them a checkpoint.
 * Returns as mu_checkpoint_agree.
 */
static int commit(struct muster_checkpoint *c, struct mu_err *err)
{
    struct mu_cksave *s = &c->save;
    size_t n = (size_t)c->comm->world->size;
    struct mu_ckid *ids = calloc(n, sizeof *ids);
    struct mu_ckpart part = { .name = MU_CHECKPOINT_SHARDS,
                              .data = ids,
                              .bytes = n * sizeof *ids,
                              .total = n * sizeof *ids };
    char path[PATH_MAX];
    int rc =
        ids ? 0 : mu_err_set(err, ENOMEM, "checkpoint: no memory for %zu shards", n);

    _Static_assert(sizeof s->id == 2 * sizeof(int64_t), "sent as two values");
    rc = mu_checkpoint_agree(c->comm, rc, err);
    if (rc == 0)
        rc = mu_checkpoint_gather(c->comm, (const int64_t *)&s->id, (int64_t *)ids, 2,
                                  err);
    if (rc == 0) {
        mu_ckfolder_path(c->folder, c->name, s->meta.step, path, sizeof path);
        s->meta.shard = 0;
        if (c->comm->world->rank == 0)
            rc = mu_ckfile_write(path, &s->meta, &part, 1, NULL, err);
        rc = mu_checkpoint_agree(c->comm, rc, err);
    }
    free(ids);
    return rc;
}

/* Drop the save during which ranks died: not all survivors may know of it, and not all
 * of its parts may be there. It is complete on disk, or does not count.
 */
static void drop_save(struct muster_checkpoint *c)
{
    struct mu_cksave *s = &c->save;

    if (s->running && s->writes && !s->failed)
        pthread_join(s->thread, NULL);
    s->running = false;
    c->generation = c->comm->generation;
}

int mu_checkpoint_wait(struct muster_checkpoint *c, struct mu_err *err)
{
    struct mu_cksave *s = &c->save;
    int64_t all = 0;

    if (c->generation != c->comm->generation)
        drop_save(c);
    if (!s->running)
        return 0;
    while (!all) {
        all = done_soon(s);
        if (mu_checkpoint_min(c->comm, &all, 1, err) < 0)
            return -1;
    }
    if (s->writes && !s->failed)
        pthread_join(s->thread, NULL);
    s->running = false;
    if (s->rc < 0)
        *err = s->err;
    if (mu_checkpoint_agree(c->comm, s->rc, err) != 0 ||
        (c->sharded && commit(c, err) != 0))
        return -1;
    mu_ckfolder_path(c->folder, c->name, s->meta.step, c->path, sizeof c->path);
    if (c->sharded && c->comm->world->rank == 0)
        tidy(c);
    return 0;
}
