/* SPDX-License-Identifier: BSD-3-Clause */
/* config.h - what the program and the environment ask of libmuster, checked */
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
    const char *first_bucket, *bucket_cap;
};

enum mu_backend_choice { MU_BACKEND_AUTO, MU_BACKEND_HOST, MU_BACKEND_NCCL };

struct mu_config {
    enum mu_backend_choice backend;
    bool force_tcp;
    double init_timeout, timeout; /* seconds */
    bool single;
    bool return_failure; /* a failed peer is a status of the call, not the job's end */
    int elastic; /* the least number of ranks to go on with; 0: end when one dies */
    enum mu_log_level log;
    size_t first_bucket, bucket_cap; /* bytes; 0: the default */
};

/* A field of options (may be NULL) wins over its variable, that over the default.
 * A value that cannot be read is refused with the variable's name.
 */
int mu_config_make(const struct muster_options *options,
                   const struct mu_config_env *env, struct mu_config *out,
                   struct mu_err *err);

#endif
