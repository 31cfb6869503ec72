/* SPDX-License-Identifier: BSD-3-Clause */
/* opts.c - the text of --muster, key by key */
#include "spank/core/opts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/parse.h"

/* A key with a fixed set of words: word i is stored as i + 1, since 0 is "not given".
 */
struct word_key {
    const char *key;
    size_t offset;
    const char *words[4];
};

#define WORDS(key, field, ...)                                                         \
    {                                                                                  \
        key, offsetof(struct mu_opts, field),                                          \
        {                                                                              \
            __VA_ARGS__, NULL                                                          \
        }                                                                              \
    }

static const struct word_key word_keys[] = {
    WORDS("bind", bind, "auto", "none"),
    WORDS("cpus", cpus, "local", "all"),
    WORDS("mem", mem, "prefer", "strict", "none"),
    WORDS("visible", visible, "auto", "own", "all"),
    WORDS("nccl", nccl, "auto", "none"),
    WORDS("rdzv", rdzv, "auto", "none"),
    WORDS("omp", omp, "auto", "none"),
};

static const char all_keys[] = "on, off, dry-run, verbose, strict, bind, cpus, mem, "
                               "gpu-bind, visible, share, nccl, rdzv, omp, topo";

static int set_words(struct mu_opts *opts, const struct word_key *k, const char *value,
                     struct mu_err *err)
{
    int i = value ? mu_parse_word(value, k->words) : -1;

    if (i < 0)
        return mu_err_set(err, EINVAL, "%s takes %s%s%s%s%s, not '%.80s'", k->key,
                          k->words[0], k->words[2] ? ", " : " or ", k->words[1],
                          k->words[2] ? " or " : "", k->words[2] ? k->words[2] : "",
                          value ? value : "");
    /* Every field in the table is an enum, and those are ints to the compilers that
     * Slurm is built with; the assertion below holds them to it. */
    _Static_assert(sizeof(enum mu_bind) == sizeof(int), "enums are ints");
    *(int *)((char *)opts + k->offset) = i + 1;
    return 0;
}

/* The bare words; in a site file, where each key has a value, they take yes or no. */
static int set_switch(const char *key, const char *value, bool *yes, struct mu_err *err)
{
    static const char *const words[] = { "no", "yes", NULL };
    int i = value ? mu_parse_word(value, words) : 1;

    if (i < 0)
        return mu_err_set(err, EINVAL, "%s takes no value, or yes or no, not '%.80s'",
                          key, value);
    *yes = i == 1;
    return 0;
}

static int set_mode(struct mu_opts *opts, int mode, const char *key, const char *value,
                    struct mu_err *err)
{
    bool yes = true;

    if (set_switch(key, value, &yes, err) < 0)
        return -1;
    if (mode == MU_MODE_DRY_RUN)
        opts->mode = yes ? MU_MODE_DRY_RUN : MU_MODE_ON;
    else
        opts->mode = yes == (mode == MU_MODE_ON) ? MU_MODE_ON : MU_MODE_OFF;
    return 0;
}

static int set_flag(enum mu_flag *flag, const char *key, const char *value,
                    struct mu_err *err)
{
    bool yes = true;

    if (set_switch(key, value, &yes, err) < 0)
        return -1;
    *flag = yes ? MU_FLAG_YES : MU_FLAG_NO;
    return 0;
}

/* share= has a third state without a word, the default: left alone, with a warning. */
static int set_share(struct mu_opts *opts, const char *value, struct mu_err *err)
{
    static const char *const words[] = { "warn", "yes", "no", NULL };
    int i = value ? mu_parse_word(value, words) : -1;

    if (i < 0)
        return mu_err_set(err, EINVAL, "share takes yes, no or warn, not '%.80s'",
                          value ? value : "");
    opts->share = (enum mu_share)(MU_SHARE_WARN + i);
    return 0;
}

static int set_topo(struct mu_opts *opts, const char *value, struct mu_err *err)
{
    static const char *const words[] = { "auto", "none", NULL };
    int i = value ? mu_parse_word(value, words) : -1;

    if (i < 0 && (!value || !strpbrk(value, "/.")))
        return mu_err_set(
            err, EINVAL,
            "topo takes auto, none or a file name (with a '/'), not '%.80s'",
            value ? value : "");
    if (i < 0 && strlen(value) >= sizeof opts->topo_file)
        return mu_err_set(err, ENAMETOOLONG,
                          "topo: a file name of %zu characters, at most "
                          "%zu",
                          strlen(value), sizeof opts->topo_file - 1);
    opts->topo = i < 0 ? MU_TOPO_FILE : (enum mu_topo)(MU_TOPO_AUTO + i);
    mu_copy(opts->topo_file, sizeof opts->topo_file, i < 0 ? value : "");
    return 0;
}

static int set_gpu_bind(struct mu_opts *opts, const char *value, struct mu_err *err)
{
    struct mu_gpu_bind *bind;
    char text[sizeof opts->gpu_bind];
    int rc;

    if (!value || !*value)
        return mu_err_set(err, EINVAL,
                          "gpu-bind takes a value of Slurm's --gpu-bind, with "
                          "'+' for ',' (gpu-bind=map_gpu:1+0)");
    if (!mu_copy(text, sizeof text, value))
        return mu_err_set(err, ENAMETOOLONG, "gpu-bind: %zu characters, at most %zu",
                          strlen(value), sizeof text - 1);
    for (char *c = text; *c; c++)
        if (*c == '+')
            *c = ',';
    bind = malloc(sizeof *bind);
    if (!bind)
        return mu_err_set(err, ENOMEM, "gpu-bind: out of memory");
    rc = mu_gpu_bind_parse(text, bind, err);
    free(bind);
    if (rc < 0)
        return -1;
    mu_copy(opts->gpu_bind, sizeof opts->gpu_bind, text);
    return 0;
}

int mu_opts_set(struct mu_opts *opts, const char *key, const char *value,
                struct mu_err *err)
{
    for (size_t i = 0; i < sizeof word_keys / sizeof word_keys[0]; i++)
        if (strcmp(key, word_keys[i].key) == 0)
            return set_words(opts, &word_keys[i], value, err);
    if (strcmp(key, "on") == 0)
        return set_mode(opts, MU_MODE_ON, key, value, err);
    if (strcmp(key, "off") == 0)
        return set_mode(opts, MU_MODE_OFF, key, value, err);
    if (strcmp(key, "dry-run") == 0)
        return set_mode(opts, MU_MODE_DRY_RUN, key, value, err);
    if (strcmp(key, "verbose") == 0)
        return set_flag(&opts->verbose, key, value, err);
    if (strcmp(key, "strict") == 0)
        return set_flag(&opts->strict, key, value, err);
    if (strcmp(key, "share") == 0)
        return set_share(opts, value, err);
    if (strcmp(key, "topo") == 0)
        return set_topo(opts, value, err);
    if (strcmp(key, "gpu-bind") == 0)
        return set_gpu_bind(opts, value, err);
    return mu_err_set(err, EINVAL, "unknown key '%.80s'; the keys are %s", key,
                      all_keys);
}

bool mu_opts_is_key(const char *word)
{
    static const char *const others[] = { "on",      "off",      "dry-run",
                                          "verbose", "strict",   "share",
                                          "topo",    "gpu-bind", NULL };

    for (size_t i = 0; i < sizeof word_keys / sizeof word_keys[0]; i++)
        if (strcmp(word, word_keys[i].key) == 0)
            return true;
    return mu_parse_word(word, others) >= 0;
}

static int *field_of(struct mu_opts *opts, const char *key)
{
    for (size_t i = 0; i < sizeof word_keys / sizeof word_keys[0]; i++)
        if (strcmp(key, word_keys[i].key) == 0)
            return (int *)((char *)opts + word_keys[i].offset);
    if (strcmp(key, "verbose") == 0)
        return (int *)&opts->verbose;
    if (strcmp(key, "strict") == 0)
        return (int *)&opts->strict;
    if (strcmp(key, "share") == 0)
        return (int *)&opts->share;
    if (strcmp(key, "topo") == 0)
        return (int *)&opts->topo;
    return (int *)&opts->mode;
}

bool mu_opts_unset(struct mu_opts *opts, const char *key)
{
    bool given;

    if (strcmp(key, "gpu-bind") == 0) {
        given = opts->gpu_bind[0];
        opts->gpu_bind[0] = '\0';
        return given;
    }
    given = *field_of(opts, key) != 0;
    *field_of(opts, key) = 0;
    if (strcmp(key, "topo") == 0)
        opts->topo_file[0] = '\0';
    return given;
}

int mu_opts_parse(const char *text, struct mu_opts *opts, struct mu_err *err)
{
    struct mu_opts *work;
    char *copy = NULL, *rest, *item;
    int rc = -1;

    if (!text || !*text || strcmp(text, "(null)") == 0)
        text = "on";
    work = malloc(sizeof *work);
    copy = strdup(text);
    if (!work || !copy) {
        mu_err_set(err, ENOMEM, "--muster: out of memory");
        goto out;
    }
    *work = *opts;
    for (rest = copy; (item = mu_parse_next(&rest, ','));) {
        char *value = strchr(item, '=');
        bool digits = strspn(item, "0123456789abcdefx") == strlen(item) && *item;

        if (value)
            *value++ = '\0';
        if (digits && work->gpu_bind[0] && !mu_opts_is_key(item))
            mu_err_set(
                err, EINVAL,
                "'%.80s' stands behind a comma; within gpu-bind write + instead: "
                "gpu-bind=%.200s+%.80s",
                item, work->gpu_bind, item);
        else if (mu_opts_set(work, item, value, err) == 0)
            continue;
        mu_err_context(err, "--muster");
        goto out;
    }
    /* Giving the option at all asks for the plugin, whatever the site's default. */
    if (work->mode == MU_MODE_UNSET)
        work->mode = MU_MODE_ON;
    *opts = *work;
    rc = 0;
out:
    free(work);
    free(copy);
    return rc;
}

#define MERGE(field)                                                                   \
    do {                                                                               \
        if (!opts->field)                                                              \
            opts->field = lower->field;                                                \
    } while (0)

void mu_opts_merge(struct mu_opts *opts, const struct mu_opts *lower)
{
    MERGE(mode);
    MERGE(verbose);
    MERGE(strict);
    MERGE(bind);
    MERGE(cpus);
    MERGE(mem);
    MERGE(visible);
    MERGE(share);
    MERGE(nccl);
    MERGE(rdzv);
    MERGE(omp);
    if (!opts->topo) {
        opts->topo = lower->topo;
        mu_copy(opts->topo_file, sizeof opts->topo_file, lower->topo_file);
    }
    if (!opts->gpu_bind[0])
        mu_copy(opts->gpu_bind, sizeof opts->gpu_bind, lower->gpu_bind);
}

void mu_opts_defaults(struct mu_opts *opts)
{
    *opts = (struct mu_opts){
        .mode = MU_MODE_ON,
        .verbose = MU_FLAG_NO,
        .strict = MU_FLAG_NO,
        .bind = MU_BIND_AUTO,
        .cpus = MU_CPUS_LOCAL,
        .mem = MU_MEM_PREFER,
        .visible = MU_VISIBLE_AUTO,
        .share = MU_SHARE_WARN,
        .nccl = MU_AUTO_AUTO,
        .rdzv = MU_AUTO_AUTO,
        .omp = MU_AUTO_AUTO,
        .topo = MU_TOPO_AUTO,
    };
}
