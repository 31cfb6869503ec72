/* SPDX-License-Identifier: BSD-3-Clause */
/* checkpoint.c - open and close, and what the ranks must agree on */
#include "runtime/checkpoint/checkpoint.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "runtime/checkpoint/ckfolder.h"
#include "runtime/base/parse.h"

#define RESERVED "muster." /* names of the library's own items start so */

int mu_checkpoint_least(struct muster *m, int64_t *words, size_t n)
{
    int status = muster_allreduce(m, words, n, MUSTER_I64, MUSTER_MIN, NULL);

    /* On a GPU the all-reduce is only enqueued: the barrier makes the words readable.
     */
    return status == MUSTER_OK ? muster_barrier(m) : status;
}

bool mu_checkpoint_away(const struct muster *m, const void *p)
{
    return m->ops->is_host && p && !m->ops->is_host(m->backend, p);
}

int mu_checkpoint_bring(struct muster *m, void *dst, const void *src, uint64_t bytes,
                        struct mu_err *err)
{
    if (bytes == 0)
        return 0;
    if (mu_checkpoint_away(m, dst) || mu_checkpoint_away(m, src))
        return m->ops->bring(m->backend, dst, src, bytes, err);
    memcpy(dst, src, bytes);
    return 0;
}

int mu_checkpoint_broadcast(struct muster *m, void *data, uint64_t bytes, int root)
{
    uint64_t words = bytes / sizeof(int32_t), rest = bytes % sizeof(int32_t);
    uint8_t *end = (uint8_t *)data + bytes - rest;
    struct mu_err err = { 0 };
    int32_t tail = 0;
    int status = MUSTER_OK;

    if (words > 0)
        status = muster_broadcast(m, data, words, MUSTER_I32, root, NULL);
    if (status == MUSTER_OK && rest > 0) {
        if (mu_checkpoint_bring(m, &tail, end, rest, &err) < 0)
            return mu_fail_err(m, &err);
        status = muster_broadcast(m, &tail, 1, MUSTER_I32, root, NULL);
    }
    if (status == MUSTER_OK)
        status = muster_barrier(m);
    if (status == MUSTER_OK && mu_checkpoint_bring(m, end, &tail, rest, &err) < 0)
        return mu_fail_err(m, &err);
    return status;
}

/* An errno of the file layer as a status; statuses pass. */
static int status_of(int code)
{
    if (mu_status_known(code))
        return code;
    return code == ENOMEM ? MUSTER_EMEMORY : MUSTER_EIO;
}

int mu_checkpoint_agree(struct muster *m, int rc, const struct mu_err *err)
{
    int rank = muster_rank(m), size = muster_size(m), status;
    int64_t first = rc < 0 ? rank : size;
    struct mu_err told = { 0 };

    if (rc < 0) {
        mu_err_set(&told, status_of(err->code), "%s", err->text);
        if (size > 1)
            mu_err_context(&told, "rank %d (%s)", rank, muster_host(m, rank));
    }
    status = mu_checkpoint_least(m, &first, 1);
    if (status == MUSTER_OK && first < size)
        status = mu_checkpoint_broadcast(m, &told, sizeof told, (int)first);
    if (status != MUSTER_OK || first == size)
        return status;
    return mu_fail(m, told.code, "%s", told.text);
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
        return mu_err_set(err, MUSTER_EUSAGE, "checkpoint: %d items given", nitems);
    for (int i = 0; i < nitems; i++) {
        const struct muster_item *item = &items[i];

        if (!item->name || !*item->name || strlen(item->name) >= MU_CKFILE_NAME ||
            (strncmp(item->name, RESERVED, strlen(RESERVED)) == 0 &&
             !mu_checkpoint_may_miss(item->name)))
            return mu_err_set(err, MUSTER_EUSAGE,
                              "checkpoint: item %d needs a name of 1 to %d bytes that "
                              "does not start with " RESERVED,
                              i, MU_CKFILE_NAME - 1);
        for (int k = 0; k < i; k++)
            if (strcmp(items[k].name, item->name) == 0)
                return mu_err_set(err, MUSTER_EUSAGE, "checkpoint: two items are '%s'",
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
            return mu_err_set(
                err, MUSTER_EUSAGE,
                "checkpoint: each rank has a part of item '%s': that takes "
                "the option sharded",
                item->name);
    }
    return 0;
}

static int take_options(struct muster_checkpoint *c, const char *folder,
                        const struct muster_checkpoint_options *o, struct mu_err *err)
{
    const char *name = o->name ? o->name : "checkpoint";

    c->keep = o->keep ? o->keep : 3;
    c->sharded = o->sharded != 0;
    c->mode = o->mode;
    if ((unsigned)o->mode > MUSTER_CHECKPOINT_LAZY || c->keep < -1)
        return mu_err_set(err, MUSTER_EUSAGE, "checkpoint: mode %d, keep %d: unknown",
                          (int)o->mode, o->keep);
    if (!*name || strchr(name, '/') || !mu_copy(c->name, sizeof c->name, name))
        return mu_err_set(err, MUSTER_EUSAGE,
                          "checkpoint: the name '%s' must be 1 to %zu bytes without /",
                          name, sizeof c->name - 1);
    if (!mu_copy(c->kind, sizeof c->kind, o->kind ? o->kind : ""))
        return mu_err_set(err, MUSTER_EUSAGE,
                          "checkpoint: the kind '%s' is longer than %zu bytes", o->kind,
                          sizeof c->kind - 1);
    /* Room for the longest file name must be left. */
    if (!folder || strlen(folder) + sizeof c->name + 64 > sizeof c->folder)
        return mu_err_set(err, MUSTER_EUSAGE,
                          "checkpoint: the folder's path is missing "
                          "or too long");
    mu_copy(c->folder, sizeof c->folder, folder);
    return 0;
}

/* Waits are by a clock that nobody sets. */
static void init_condition(pthread_cond_t *condition)
{
    pthread_condattr_t attr;

    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &attr);
    pthread_condattr_destroy(&attr);
}

int muster_checkpoint_open(struct muster *m, const char *folder,
                           const struct muster_checkpoint_options *options,
                           struct muster_checkpoint **out)
{
    static const struct muster_checkpoint_options defaults;
    struct muster_checkpoint *c = calloc(1, sizeof *c);
    struct mu_err err = { 0 };
    int rc = c ? 0 : mu_err_set(&err, MUSTER_EMEMORY, "checkpoint: no memory"), status;

    if (c && !out)
        rc = mu_err_set(&err, MUSTER_EUSAGE,
                        "muster_checkpoint_open needs a place for its result");
    if (rc == 0) {
        c->m = m;
        c->pid = getpid();
        c->shrinks = m->shrinks;
        pthread_mutex_init(&c->save.lock, NULL);
        init_condition(&c->save.changed);
        rc = take_options(c, folder, options ? options : &defaults, &err);
    }
    if (rc == 0 && (c->sharded || muster_rank(m) == 0))
        rc = mu_ckfolder_make(c->folder, &err);
    status = mu_checkpoint_agree(m, rc, &err);
    if (status != MUSTER_OK) {
        free(c);
        return status;
    }
    if (muster_rank(m) == 0)
        mu_ckfolder_sweep(c->folder, c->name, &m->log);
    /* Nobody writes before the sweep is over. */
    status = muster_barrier(m);
    if (status != MUSTER_OK) {
        free(c);
        return status;
    }
    *out = c;
    return MUSTER_OK;
}

int muster_checkpoint_close(struct muster_checkpoint *c)
{
    int status;

    if (!c)
        return MUSTER_OK;
    status = muster_checkpoint_wait(c);
    /* After a failed collective the thread may still be at work. */
    if (c->save.running && c->save.writes && !c->save.failed)
        pthread_join(c->save.thread, NULL);
    pthread_mutex_destroy(&c->save.lock);
    pthread_cond_destroy(&c->save.changed);
    free(c->save.parts);
    free(c->save.stage);
    free(c);
    return status;
}

const char *muster_checkpoint_path(const struct muster_checkpoint *c)
{
    return c->path;
}
