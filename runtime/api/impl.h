/* SPDX-License-Identifier: BSD-3-Clause */
/* impl.h - the one struct of state behind muster.h, for the files of api/ */
#ifndef MU_IMPL_H
#define MU_IMPL_H

#include "runtime/backend/backend.h"
#include "runtime/boot/world.h"
#include "runtime/core/config.h"
#include "runtime/muster.h"

struct muster {
    struct mu_config config;
    struct mu_log log;
    struct mu_world *world;
    const struct mu_backend_ops *ops;
    struct mu_backend *backend;
    void *module;  /* dlopen handle of the backend, or NULL */
    char *gpus;    /* MUSTER_PLAN's gpus of this rank, "" unknown */
    char *address; /* MASTER_ADDR, or NULL */
    struct mu_err err;
    int status; /* of the last failed call */
};

/* Remember the sentence; returns status, so that a public function ends with it. */
int mu_fail(struct muster *m, int status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* The same from an err whose code is a muster_status. */
int mu_fail_err(struct muster *m, const struct mu_err *err);

/* Start in a world that is already there (taken, also on failure): muster_init after it
 * has asked PMIx, and the tests with ranks of their own.
 */
int mu_init_world(struct muster **out, const struct mu_config *config,
                  struct mu_world *world);

/* Find the backend's table: in this library, or in backend_nccl.so below `dir` (NULL:
 * the installed one). *module is closed with dlclose after the backend.
 */
int mu_backend_choose(enum mu_backend_choice choice, const char *dir,
                      const struct mu_log *log, const struct mu_backend_ops **ops,
                      void **module, struct mu_err *err);

/* Start a collective and wait for it. what is a name for messages. */
int mu_coll_run(struct muster *m, struct mu_coll *coll, struct mu_err *err);

#endif
