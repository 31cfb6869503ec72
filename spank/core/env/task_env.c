/* SPDX-License-Identifier: BSD-3-Clause */
/* task_env.c - builds the environment of a task and MUSTER_SET */
#include "spank/core/env/task_env.h"

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/parse.h"

int mu_env_add(struct mu_env *env, const char *name, enum mu_env_rule rule,
               struct mu_err *err, const char *fmt, ...)
{
    va_list ap;
    char *value;
    int n;

    if (env->n == MU_ENV_MAX)
        return mu_err_set(err, E2BIG, "more than %d variables; %s does not fit",
                          MU_ENV_MAX, name);
    va_start(ap, fmt);
    n = vasprintf(&value, fmt, ap);
    va_end(ap);
    if (n < 0)
        return mu_err_set(err, ENOMEM, "%s: out of memory", name);
    env->item[env->n].name = name;
    env->item[env->n].rule = rule;
    env->item[env->n++].value = value;
    return 0;
}

void mu_env_clear(struct mu_env *env)
{
    for (int i = 0; i < env->n; i++)
        free(env->item[i].value);
    env->n = 0;
}

/* FNV-1a. The hash only detects a changed value; it need not resist an attacker. */
static uint32_t hash_of(const char *value)
{
    uint32_t h = 2166136261u;

    for (; *value; value++)
        h = (h ^ (unsigned char)*value) * 16777619u;
    return h;
}

bool mu_env_set_add(char *set, const char *name, const char *value)
{
    size_t at = strlen(set);

    if (at + strlen(name) + 11 > MU_ENV_SET_TEXT)
        return false;
    sprintf(set + at, "%s%s:%08x", at ? "," : "", name, (unsigned)hash_of(value));
    return true;
}

/* The hash text after "name:", or NULL. */
static const char *entry_of(const char *set, const char *name)
{
    size_t n = strlen(name);

    for (; set && *set; set = strchr(set, ',') ? strchr(set, ',') + 1 : NULL)
        if (strncmp(set, name, n) == 0 && set[n] == ':')
            return set + n + 1;
    return NULL;
}

bool mu_env_set_lists(const char *set, const char *name)
{
    return entry_of(set, name) != NULL;
}

bool mu_env_set_has(const char *set, const char *name, const char *value)
{
    const char *entry = entry_of(set, name);

    return entry && strtoul(entry, NULL, 16) == hash_of(value);
}

bool mu_env_may_write(enum mu_env_rule rule, const char *name, const char *current,
                      const char *set)
{
    if (!current || rule == MU_ENV_OURS)
        return true;
    if (rule == MU_ENV_RANK)
        return mu_env_set_lists(set, name);
    return mu_env_set_has(set, name, current);
}

bool mu_env_set_name(const char *set, int n, char *name, size_t len)
{
    size_t k;

    while (set && n-- > 0)
        set = strchr(set, ',') ? strchr(set, ',') + 1 : NULL;
    if (!set || !*set)
        return false;
    k = strcspn(set, ":,");
    if (k == 0 || k >= len)
        return false;
    memcpy(name, set, k);
    name[k] = '\0';
    return true;
}

bool mu_env_is_visible(const char *name)
{
    static const char *const names[] = { "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES",
                                         "ZE_AFFINITY_MASK", NULL };

    return mu_parse_word(name, names) >= 0;
}

void mu_env_drop_inherited(const struct mu_env_access *env, const char *set,
                           bool slurms)
{
    char name[64];

    for (int i = 0; mu_env_set_name(set, i, name, sizeof name); i++) {
        const char *value = env->get(env->arg, name);

        if (value && mu_env_set_has(set, name, value) &&
            !(slurms && mu_env_is_visible(name)))
            env->unset(env->arg, name);
    }
    env->unset(env->arg, "MUSTER_PLAN");
    env->unset(env->arg, "MUSTER_SET");
}

int mu_env_threads(int cores, int gpus)
{
    int threads = gpus > 1 ? cores / gpus : cores;

    return threads > 0 ? threads : 1;
}

int mu_env_first_port(const char *ports)
{
    char *end;
    long port;

    if (!ports || *ports < '0' || *ports > '9')
        return -1;
    port = strtol(ports, &end, 10);
    return port >= 1 && port <= 65535 && (!*end || *end == '-' || *end == ',')
               ? (int)port
               : -1;
}
