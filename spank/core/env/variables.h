/* SPDX-License-Identifier: BSD-3-Clause */
/* variables.h - environment variables that Muster would set, why, and whose value wins
 */
#ifndef MU_VARIABLES_H
#define MU_VARIABLES_H

#include <stdio.h>

#include "runtime/base/err.h"
#include "spank/core/env/nccl_conf.h"

#define MU_SETTINGS_MAX 64

enum mu_setting_winner {
    MU_WINNER_MUSTER, /* to be exported */
    MU_WINNER_USER,   /* the user's environment has the name */
    MU_WINNER_FILE,   /* a configuration file of NCCL has it */
};

struct mu_setting {
    char name[64];
    char value[1280];
    char reason[256]; /* why Muster wants it, a clause without full stop */
    enum mu_setting_winner winner;
    char kept[512]; /* the winning value and its source, if Muster's does not win */
};

struct mu_settings {
    int n;
    struct mu_setting item[MU_SETTINGS_MAX];
};

/* Append. A name that is already in the list keeps its first value, so earlier calls
 * have precedence.
 */
int mu_settings_add(struct mu_settings *settings, const char *name, const char *value,
                    const char *reason, struct mu_err *err);

const struct mu_setting *mu_settings_find(const struct mu_settings *settings,
                                          const char *name);

/* Decide whose value of each name wins. user(arg, name) returns the user's own value of
 * a variable, or NULL if there is none. A value that Muster set in an outer step is not
 * the user's. conf may be NULL.
 */
void mu_settings_resolve(struct mu_settings *settings,
                         const char *(*user)(void *arg, const char *name), void *arg,
                         const struct mu_conf *conf);

/* Print a line per setting: the value and the reason, or the value that stays and its
 * source.
 */
void mu_settings_show(FILE *out, const struct mu_settings *settings);

#endif
