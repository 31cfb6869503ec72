/* SPDX-License-Identifier: BSD-3-Clause */
/* config.c - libmuster's settings, from the program's options and the environment */
#include "runtime/core/config.h"

#include "runtime/base/parse.h"

/* A day, in seconds. A longer timeout is a mistake. */
#define LONGEST_TIMEOUT 86400.0

static int seconds(const char *name, double option, const char *env, double otherwise,
                   double *out, struct mu_err *err)
{
    if (option != 0) {
        if (!(option >= 0.1 && option <= LONGEST_TIMEOUT))
            return mu_err_set(err, MUSTER_EUSAGE, "%s takes 0.1 to %g seconds, not %g",
                              name, LONGEST_TIMEOUT, option);
        *out = option;
        return 0;
    }
    *out = otherwise;
    if (env && mu_parse_double(name, env, 0.1, LONGEST_TIMEOUT, out, err) < 0) {
        if (err)
            err->code = MUSTER_EUSAGE;
        return -1;
    }
    return 0;
}

static int word(const char *name, const char *option, const char *env,
                const char *const *words, const char *list, int otherwise, int *out,
                struct mu_err *err)
{
    const char *text = option ? option : env;

    *out = otherwise;
    if (!text)
        return 0;
    *out = mu_parse_word(text, words);
    if (*out < 0)
        return mu_err_set(err, MUSTER_EUSAGE, "%s takes %s, not '%.80s'", name, list,
                          text);
    return 0;
}

static int least_ranks(int option, const char *env, int *out, struct mu_err *err)
{
    long n = option;

    if (option < 0)
        return mu_err_set(err, MUSTER_EUSAGE,
                          "MUSTER_ELASTIC takes the least number of ranks, not %d",
                          option);
    if (!option && env &&
        mu_parse_int("MUSTER_ELASTIC", env, 0, 1000000, &n, err) < 0) {
        if (err)
            err->code = MUSTER_EUSAGE;
        return -1;
    }
    *out = (int)n;
    return 0;
}

static int bytes(const char *name, const char *env, size_t *out, struct mu_err *err)
{
    uint64_t n = 0;

    if (env && mu_parse_size(name, env, UINT64_C(1) << 40, &n, err) < 0) {
        if (err)
            err->code = MUSTER_EUSAGE;
        return -1;
    }
    *out = n;
    return 0;
}

/* A newcomer may become rank 0, which writes the file. */
static int growing(const struct muster_options *o, const struct mu_config_env *env,
                   struct mu_config *c, struct mu_err *err)
{
    const char *grow = o->grow ? o->grow : env->grow;
    const char *join = o->join ? o->join : env->join;

    const char *name = join ? "MUSTER_JOIN" : "MUSTER_GROW";

    c->joins = join != NULL;
    if (!mu_copy(c->grow, sizeof c->grow, join ? join : grow ? grow : ""))
        return mu_err_set(err, MUSTER_EUSAGE,
                          "%s=%.40s... is longer than %zu characters", name,
                          join ? join : grow, sizeof c->grow - 1);
    if (c->grow[0] && c->elastic == 0)
        return mu_err_set(err, MUSTER_EUSAGE,
                          "%s=%.200s needs MUSTER_ELASTIC, the least number of ranks",
                          name, c->grow);
    return 0;
}

int mu_config_make(const struct muster_options *options,
                   const struct mu_config_env *env, struct mu_config *out,
                   struct mu_err *err)
{
    static const char *const backends[] = { "auto", "host", "nccl", NULL };
    static const char *const transports[] = { "shm", "tcp", NULL };
    static const char *const levels[] = { "error", "warn", "info", "debug", NULL };
    static const char *const flags[] = { "0", "1", NULL };
    static const char *const failures[] = { "end", "return", NULL };
    static const struct muster_options none;
    const struct muster_options *o = options ? options : &none;
    struct mu_config c;
    int backend, transport, log, single, failure, map;

    if (word("MUSTER_BACKEND", o->backend, env->backend, backends, "host, nccl or auto",
             MU_BACKEND_AUTO, &backend, err) < 0 ||
        word("MUSTER_TRANSPORT", o->transport, env->transport, transports, "shm or tcp",
             0, &transport, err) < 0 ||
        word("MUSTER_LOG", o->log, env->log, levels, "error, warn, info or debug",
             MU_LOG_WARN, &log, err) < 0 ||
        word("MUSTER_SINGLE", NULL, env->single, flags, "0 or 1", 0, &single, err) <
            0 ||
        word("MUSTER_MAP_MEMORY", NULL, env->map_memory, flags, "0 or 1",
             o->map_memory != 0, &map, err) < 0 ||
        word("MUSTER_ON_FAILURE", o->on_failure, env->on_failure, failures,
             "end or return", 0, &failure, err) < 0 ||
        seconds("MUSTER_INIT_TIMEOUT", o->init_timeout, env->init_timeout, 120,
                &c.init_timeout, err) < 0 ||
        seconds("MUSTER_TIMEOUT", o->timeout, env->timeout, 600, &c.timeout, err) < 0 ||
        least_ranks(o->elastic, env->elastic, &c.elastic, err) < 0 ||
        bytes("MUSTER_FIRST_BUCKET", env->first_bucket, &c.first_bucket, err) < 0 ||
        bytes("MUSTER_BUCKET_CAP", env->bucket_cap, &c.bucket_cap, err) < 0)
        return -1;
    c.backend = (enum mu_backend_choice)backend;
    c.force_tcp = transport == 1;
    c.map_memory = map == 1;
    c.own_device = o->own_device != 0;
    c.log = (enum mu_log_level)log;
    c.single = o->single || single;
    c.return_failure = failure == 1;
    if (growing(o, env, &c, err) < 0)
        return -1;
    *out = c;
    return 0;
}
