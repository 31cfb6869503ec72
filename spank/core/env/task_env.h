/* SPDX-License-Identifier: BSD-3-Clause */
/* task_env.h - the environment of a task: which names Muster may write, MUSTER_SET,
 * rendezvous port; see muster-env(7)
 */
#ifndef MU_TASK_ENV_H
#define MU_TASK_ENV_H

#include <stdbool.h>
#include <stddef.h>

#include "runtime/base/err.h"

#define MU_ENV_MAX 96
#define MU_ENV_SET_TEXT 8192

enum mu_env_rule {
    MU_ENV_KEEP, /* a value of the user stays */
    /* a value that Muster exported in an outer step is computed again, even if it was
     * changed since; a value of the user stays */
    MU_ENV_RANK,
    MU_ENV_OURS, /* belongs to Slurm and Muster: always written */
};

/* The variables to export. Names are static or live as long as the list. */
struct mu_env {
    int n;
    struct {
        const char *name;
        char *value; /* owned */
        enum mu_env_rule rule;
    } item[MU_ENV_MAX];
};

int mu_env_add(struct mu_env *env, const char *name, enum mu_env_rule rule,
               struct mu_err *err, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
void mu_env_clear(struct mu_env *env);

/* MUSTER_SET is "NAME:HASH,..." with eight hexadecimal digits of a hash of the value
 * that Muster exported. Append to a text of MU_ENV_SET_TEXT bytes; false if it is full.
 */
bool mu_env_set_add(char *set, const char *name, const char *value);

/* Is the name listed? Is it listed with this value, which then comes from Muster and
 * not from the user? set may be NULL.
 */
bool mu_env_set_lists(const char *set, const char *name);
bool mu_env_set_has(const char *set, const char *name, const char *value);

/* May Muster replace the value `current` (NULL: not set) of `name`? set is the
 * MUSTER_SET that the step inherited, or NULL.
 */
bool mu_env_may_write(enum mu_env_rule rule, const char *name, const char *current,
                      const char *set);

/* The n-th name listed in set, into name; false when there are no more. */
bool mu_env_set_name(const char *set, int n, char *name, size_t len);

/* An environment to change: this process's own, or that of a step. */
struct mu_env_access {
    /* NULL: not there. The value is valid until the next call. */
    const char *(*get)(void *arg, const char *name);
    void (*unset)(void *arg, const char *name);
    void *arg;
};

/* Is this one of the variables that choose a task's GPUs? Slurm writes them, too. */
bool mu_env_is_visible(const char *name);

/* Unset what the Muster of an outer step exported: each variable that set lists and
 * whose value is still that one, MUSTER_SET and MUSTER_PLAN. With `slurms`, the
 * variables that choose GPUs stay: Slurm has written them anew.
 */
void mu_env_drop_inherited(const struct mu_env_access *env, const char *set,
                           bool slurms);

/* OMP_NUM_THREADS of a task with these cores and GPUs. A task with several GPUs starts
 * a process for each, as torchrun does, also from inside a script, where it cannot be
 * seen: all of them inherit the variable.
 */
int mu_env_threads(int cores, int gpus);

/* The first port of "26239-26241,27000", or -1. */
int mu_env_first_port(const char *ports);

#endif
