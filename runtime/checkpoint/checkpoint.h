/* SPDX-License-Identifier: BSD-3-Clause */
/* checkpoint.h - the state behind muster_checkpoint_*, shared by saving and loading */
#ifndef MU_CHECKPOINT_H
#define MU_CHECKPOINT_H

#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/types.h>

#include "runtime/checkpoint/ckfile.h"
#include "runtime/comm/comm.h"
#include "runtime/core/item.h"
#include "runtime/muster.h"

/* The only item of a commit record: a struct mu_ckid per shard. */
#define MU_CHECKPOINT_SHARDS MU_ITEM_RESERVED "shards"

/* The one save under way. `parts` and `stage` stay from save to save. The thread owns
 * all of it until done; lock guards copied, done and nothing else.
 */
struct mu_cksave {
    bool running; /* a save was started and not waited for */
    bool writes;  /* this rank writes a file, in a thread unless `failed` */
    bool failed;  /* before a thread could be started: err says why */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool copied, done;
    char path[PATH_MAX];
    struct mu_ckmeta meta;
    struct mu_ckpart *parts;
    int nparts;
    bool lazy; /* the thread copies the data to `stage` before it writes */
    uint8_t *stage;
    uint64_t stage_bytes, brought; /* its first bytes are what came from a GPU */
    struct mu_ckid id;
    int rc;
    struct mu_err err;
};

struct muster_checkpoint {
    struct mu_comm *comm;
    struct muster *m; /* of the public calls, which end in it */
    pid_t pid;        /* a forked child must not save */
    int generation;   /* of comm, when a save was last waited for */
    char folder[PATH_MAX], name[MU_CKFILE_NAME], kind[MU_CKFILE_KIND];
    char path[PATH_MAX]; /* last saved or loaded */
    int keep;
    bool sharded;
    enum muster_checkpoint_mode mode;
    struct mu_cksave save;
};

/* ---- open.c ---- */
/* [collective] */
int mu_checkpoint_open(struct mu_comm *comm, const char *folder,
                       const struct muster_checkpoint_options *options,
                       struct muster_checkpoint **out, struct mu_err *err);
/* Waits for this rank's own thread. */
void mu_checkpoint_free(struct muster_checkpoint *c);

/* ---- save.c, load.c: muster_checkpoint_* ---- */
int mu_checkpoint_save(struct muster_checkpoint *c, uint64_t step,
                       const struct muster_item *items, int nitems, struct mu_err *err);
void mu_checkpoint_copied(struct muster_checkpoint *c);
int mu_checkpoint_wait(struct muster_checkpoint *c, struct mu_err *err);
int mu_checkpoint_load(struct muster_checkpoint *c, const struct muster_item *items,
                       int nitems, uint64_t *step, int *found, struct mu_err *err);

/* ---- together.c ---- */
/* [collective] rc and *err of each rank. Returns 0 when every rc is 0; 1 when all ranks
 * have the same *err now: the sentence and muster_status of the lowest rank whose rc is
 * not; -1 when the group failed.
 */
int mu_checkpoint_agree(struct mu_comm *comm, int rc, struct mu_err *err);
/* [collective] Element-wise minimum of n words. */
int mu_checkpoint_least(struct mu_comm *comm, int64_t *words, size_t n,
                        struct mu_err *err);
/* [collective] Any number of bytes from rank root. */
int mu_checkpoint_broadcast(struct mu_comm *comm, void *data, uint64_t bytes, int root,
                            struct mu_err *err);
/* [collective] n words of each rank, by rank. */
int mu_checkpoint_gather(struct mu_comm *comm, const int64_t *mine, int64_t *all,
                         size_t n, struct mu_err *err);

/* ---- items.c ---- */
/* The slice of a replicated item that a shard holds: whole multiples of 64 bytes but
 * for the last.
 */
void mu_checkpoint_slice(uint64_t bytes, int rank, int size, uint64_t *offset,
                         uint64_t *length);

/* Is p memory of a GPU? Then it is read and written by mu_checkpoint_bring. */
bool mu_checkpoint_away(const struct mu_comm *comm, const void *p);
/* memcpy, also from and to a GPU. The GPU has done what it was given before. */
int mu_checkpoint_bring(struct mu_comm *comm, void *dst, const void *src,
                        uint64_t bytes, struct mu_err *err);

/* Items of muster_ddp_state: a checkpoint need not have them, and one that has them
 * need not be asked for them.
 */
static inline bool mu_checkpoint_may_miss(const char *name)
{
    return strncmp(name, MU_DDP_KEPT, strlen(MU_DDP_KEPT)) == 0;
}

/* EUSAGE for a name that is missing, too long or given twice, or a part beyond its
 * item. */
int mu_checkpoint_items(const struct muster_checkpoint *c,
                        const struct muster_item *items, int nitems,
                        struct mu_err *err);

#endif
