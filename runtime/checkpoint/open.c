/* SPDX-License-Identifier: BSD-3-Clause */
/* open.c - open and free a checkpoint folder */
#include "runtime/checkpoint/checkpoint.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/checkpoint/ckfolder.h"
#include "runtime/base/clock.h"
#include "runtime/base/parse.h"
#include "runtime/base/random.h"
#include "runtime/base/thread.h"

#define MARK_S 3 /* a network file system shows a new file within this time */

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

static int make_folder(const struct muster_checkpoint *c, struct mu_err *err)
{
    return c->sharded || c->comm->world->rank == 0 ? mu_ckfolder_make(c->folder, err)
                                                   : 0;
}

/* [collective] Look for rank 0's file until all ranks see it, or for MARK_S seconds: a
 * network file system may show a new file late. The pauses between two looks double.
 */
static int look_for_mark(const struct muster_checkpoint *c, uint64_t mark, bool *sees,
                         struct mu_err *err)
{
    double begin = mu_clock_s(), spent = 0, next = 0;
    int64_t all[2] = { 0, 1 }; /* every rank sees it; every rank has time left */

    for (*sees = false; !all[0] && all[1]; spent = mu_clock_s() - begin) {
        if (!*sees && spent >= next) {
            *sees = mu_ckfolder_mark_is_set(c->folder, c->name, mark);
            next = 2 * spent + 0.001;
        }
        all[0] = *sees;
        all[1] = spent < MARK_S;
        if (mu_checkpoint_min(c->comm, all, 2, err) < 0)
            return -1;
    }
    return 0;
}

/* [collective] Shards in folders that are local to a node are saved without an error
 * and are missing at resume. So each rank looks for a file that rank 0 made. A folder
 * that takes no file, for loads only, is not proved. Sets c->id. 0, or -1 with the same
 * *err on all ranks.
 */
static int prove_one_folder(struct muster_checkpoint *c, struct mu_err *err)
{
    const struct mu_world *world = c->comm->world;
    struct {
        uint64_t mark;
        int64_t set;
    } proof = { 0 };
    bool root = world->rank == 0, sees = true;
    int rc;

    if (world->size == 1)
        return 0;
    if (root && mu_random(&proof.mark, sizeof proof.mark) == 0 && c->sharded)
        proof.set = mu_ckfolder_mark_set(c->folder, c->name, proof.mark);
    rc = mu_checkpoint_broadcast(c->comm, &proof, sizeof proof, 0, err);
    c->id = proof.mark;
    if (rc == 0 && proof.set)
        rc = look_for_mark(c, proof.mark, &sees, err);
    if (root && proof.set)
        mu_ckfolder_mark_clear(c->folder, c->name, proof.mark);
    if (rc < 0)
        return -1;
    if (!sees)
        rc = mu_err_set(err, MUSTER_EUSAGE,
                        "checkpoint: folder %s is not the one of rank 0 (node %s): a "
                        "file that rank 0 wrote there is missing; a sharded checkpoint "
                        "needs a folder that all nodes share",
                        c->folder, world->host_of[0]);
    return mu_checkpoint_agree(c->comm, rc, err) == 0 ? 0 : -1;
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
        mu_cond_init(&c->save.changed);
        rc = take_options(c, folder, options, err);
    }
    if (rc == 0)
        rc = make_folder(c, err);
    if (mu_checkpoint_agree(comm, rc, err) != 0 ||
        mu_checkpoint_same_options(c, err) < 0 || prove_one_folder(c, err) < 0) {
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
