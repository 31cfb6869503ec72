/* SPDX-License-Identifier: BSD-3-Clause */
/* open.c - open and free a checkpoint folder */
#include "runtime/checkpoint/checkpoint.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "runtime/checkpoint/ckfolder.h"
#include "runtime/base/parse.h"

static int take_options(struct muster_checkpoint *c, const char *folder,
                        const struct muster_checkpoint_options *o, struct mu_err *err)
{
    const char *name = o->name ? o->name : "checkpoint";

    c->keep = o->keep ? o->keep : 3;
    c->sharded = o->sharded != 0;
    c->mode = o->mode;
    if ((unsigned)o->mode > MUSTER_CHECKPOINT_LAZY || c->keep < -1)
        return mu_err_set(err, MUSTER_EUSAGE,
                          "checkpoint: unknown mode %d, or keep %d is below -1",
                          (int)o->mode, o->keep);
    if (!*name || strchr(name, '/') || !mu_copy(c->name, sizeof c->name, name))
        return mu_err_set(err, MUSTER_EUSAGE,
                          "checkpoint: the name '%s' must be 1 to %zu bytes without /",
                          name, sizeof c->name - 1);
    if (!mu_copy(c->kind, sizeof c->kind, o->kind ? o->kind : ""))
        return mu_err_set(err, MUSTER_EUSAGE,
                          "checkpoint: the kind '%s' is longer than %zu bytes", o->kind,
                          sizeof c->kind - 1);
    /* Leave room for the longest file name. */
    if (!folder || strlen(folder) + sizeof c->name + 64 > sizeof c->folder)
        return mu_err_set(err, MUSTER_EUSAGE,
                          "checkpoint: the path of the folder is missing or too long");
    mu_copy(c->folder, sizeof c->folder, folder);
    return 0;
}

/* Waits use the monotonic clock, which is never set. */
static void init_condition(pthread_cond_t *condition)
{
    pthread_condattr_t attr;

    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &attr);
    pthread_condattr_destroy(&attr);
}

static int make_folder(const struct muster_checkpoint *c, struct mu_err *err)
{
    return c->sharded || c->comm->world->rank == 0 ? mu_ckfolder_make(c->folder, err)
                                                   : 0;
}

int mu_checkpoint_open(struct mu_comm *comm, const char *folder,
                       const struct muster_checkpoint_options *options,
                       struct muster_checkpoint **out, struct mu_err *err)
{
    struct muster_checkpoint *c = calloc(1, sizeof *c);
    int rc = c ? 0 : mu_err_set(err, MUSTER_EMEMORY, "checkpoint: no memory");

    if (c && !out)
        rc = mu_err_set(err, MUSTER_EUSAGE,
                        "muster_checkpoint_open needs a place for its result");
    if (rc == 0) {
        c->comm = comm;
        c->pid = getpid();
        c->generation = comm->generation;
        pthread_mutex_init(&c->save.lock, NULL);
        init_condition(&c->save.changed);
        rc = take_options(c, folder, options, err);
    }
    if (rc == 0)
        rc = make_folder(c, err);
    if (mu_checkpoint_agree(comm, rc, err) != 0) {
        free(c);
        return -1;
    }
    if (comm->world->rank == 0)
        mu_ckfolder_sweep(c->folder, c->name, &comm->log);
    /* No rank writes before the sweep has ended. */
    if (mu_barrier(comm, err) < 0) {
        free(c);
        return -1;
    }
    *out = c;
    return 0;
}

void mu_checkpoint_free(struct muster_checkpoint *c)
{
    /* After a failed collective the thread may still be writing. */
    if (c->save.running && c->save.writes && !c->save.failed)
        pthread_join(c->save.thread, NULL);
    pthread_mutex_destroy(&c->save.lock);
    pthread_cond_destroy(&c->save.changed);
    free(c->save.parts);
    free(c->save.stage);
    free(c);
}
