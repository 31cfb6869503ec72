/* SPDX-License-Identifier: BSD-3-Clause */
/* checkpoint.h - the state behind muster_checkpoint_*, shared by save and load */
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

/* The save in progress; there is at most one. `parts` and `stage` are kept from save to
 * save. The thread owns all of it until done; lock guards copied and done only.
 */
struct mu_cksave {
    bool running; /* a save was started, and mu_checkpoint_wait has not returned */
    bool writes;  /* this rank writes a file, in a thread unless `failed` */
    bool failed;  /* no thread was started: err gives the reason */
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
    uint64_t stage_bytes, gpu_bytes; /* its first gpu_bytes are copies from a GPU */
    struct mu_ckid id;
    int rc;
    struct mu_err err;
};

struct muster_checkpoint {
    struct mu_comm *comm;
    struct muster *m; /* for the public calls, which end in it */
    pid_t pid;        /* a forked child must not save */
    int generation;   /* comm->generation at the last wait for a save */
    uint64_t id;      /* rank 0's random number: equal on all ranks, for no other one */
    char folder[PATH_MAX], name[MU_CKFILE_NAME], kind[MU_CKFILE_KIND];
    char path[PATH_MAX]; /* the checkpoint last saved or loaded */
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
/* Waits for the thread of this rank. */
void mu_checkpoint_free(struct muster_checkpoint *c);

/* ---- save.c, load.c: muster_checkpoint_* ---- */
int mu_checkpoint_save(struct muster_checkpoint *c, uint64_t step,
                       const struct muster_item *items, int nitems, struct mu_err *err);
void mu_checkpoint_copied(struct muster_checkpoint *c);
int mu_checkpoint_wait(struct muster_checkpoint *c, struct mu_err *err);
int mu_checkpoint_load(struct muster_checkpoint *c, const struct muster_item *items,
                       int nitems, uint64_t *step, int *found, struct mu_err *err);

/* ---- together.c ---- */
/* [collective] Pass rc and *err of each rank. Returns 0 when rc is 0 on all ranks.
 * Returns 1 when all ranks have the same *err now: sentence and muster_status of the
 * lowest rank whose rc is not 0. Returns -1 when the group failed.
 */
int mu_checkpoint_agree(struct mu_comm *comm, int rc, struct mu_err *err);
/* [collective] Element-wise minimum of n values over all ranks. */
int mu_checkpoint_min(struct mu_comm *comm, int64_t *values, size_t n,
                      struct mu_err *err);
/* [collective] Send any number of bytes from rank root. */
int mu_checkpoint_broadcast(struct mu_comm *comm, void *data, uint64_t bytes, int root,
                            struct mu_err *err);
/* [collective] Gather n values of each rank, in rank order. */
int mu_checkpoint_gather(struct mu_comm *comm, const int64_t *mine, int64_t *all,
                         size_t n, struct mu_err *err);

/* ---- same.c ---- */
/* [collective] In a world of several ranks each call names the checkpoint, and what it
 * saves or loads. They refuse a difference with MUSTER_ECONTRACT and both sides.
 *
 * open: name, kind, sharded.
 */
int mu_checkpoint_same_options(const struct muster_checkpoint *c, struct mu_err *err);
/* The object, the step (NULL: none), names and sizes of the items in order. rc is this
 * rank's status so far; where one is below 0 nothing is compared.
 */
int mu_checkpoint_same(const struct muster_checkpoint *c, const char *call,
                       const uint64_t *step, const struct muster_item *items,
                       int nitems, int rc, struct mu_err *err);

/* ---- items.c ---- */
/* The slice of a replicated item that a shard holds: whole multiples of 64 bytes,
 * except the last.
 */
void mu_checkpoint_slice(uint64_t bytes, int rank, int size, uint64_t *offset,
                         uint64_t *length);

/* True when p is memory of a GPU; mu_checkpoint_copy reads and writes it. */
bool mu_checkpoint_on_gpu(const struct mu_comm *comm, const void *p);
/* memcpy, also from and to a GPU. Waits until the GPU has finished the work enqueued
 * before.
 */
int mu_checkpoint_copy(struct mu_comm *comm, void *dst, const void *src, uint64_t bytes,
                       struct mu_err *err);

/* True for items of muster_ddp_state: a checkpoint may lack them, and a program may
 * leave out those that a checkpoint has.
 */
static inline bool mu_checkpoint_may_miss(const char *name)
{
    return strncmp(name, MU_DDP_KEPT, strlen(MU_DDP_KEPT)) == 0;
}

/* Fails with MUSTER_EUSAGE when a name is missing, too long or given twice, or when a
 * part reaches beyond its item.
 */
int mu_checkpoint_items(const struct muster_checkpoint *c,
                        const struct muster_item *items, int nitems,
                        struct mu_err *err);

#endif
