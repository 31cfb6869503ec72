/* SPDX-License-Identifier: BSD-3-Clause */
/* config.h - libmuster's settings, from the program's options and the environment */
#ifndef MU_CONFIG_H
#define MU_CONFIG_H

#include <stdbool.h>

#include "runtime/base/err.h"
#include "runtime/base/log.h"
#include "runtime/muster.h"

/* The values of the MUSTER_* variables, NULL where unset or empty; borrowed. */
struct mu_config_env {
    const char *backend, *transport, *init_timeout, *timeout, *single, *log,
        *on_failure, *elastic;
    const char *first_bucket, *bucket_cap, *map_memory, *grow, *join;
};

enum mu_backend_choice { MU_BACKEND_AUTO, MU_BACKEND_HOST, MU_BACKEND_NCCL };

struct mu_config {
    enum mu_backend_choice backend;
    bool force_tcp;
    bool map_memory;              /* of the program, on GPUs */
    bool own_device;              /* the program's GPU, not the plan's */
    double init_timeout, timeout; /* seconds */
    bool single;
    bool return_failure; /* after a peer's failure calls return, the job goes on */
    int elastic; /* least number of ranks to go on with; 0: a death ends the job */
    /* The file by which newcomers find the world, "": there are none; and whether this
     * process is one of them.
     */
    char grow[1024];
    bool joins;
    enum mu_log_level log;
    size_t first_bucket, bucket_cap; /* bytes; 0: the default */
};

/* A field of options (may be NULL) overrides its variable, and the variable overrides
 * the default. A value that is invalid is refused with the variable's name.
 */
int mu_config_make(const struct muster_options *options,
                   const struct mu_config_env *env, struct mu_config *out,
                   struct mu_err *err);

#endif
