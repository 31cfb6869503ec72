/* SPDX-License-Identifier: BSD-3-Clause */
/* muster_option.c - the text of --muster, key by key */
#include "spank/core/options/muster_option.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/parse.h"
#include "spank/core/gpubind/gpu_bind.h"

/* A key of --muster: the enum that it sets, and the function that sets it. */
struct key {
    const char *name;
    size_t offset; /* in struct mu_opts; gpu-bind is a text and has none */
    int (*set)(struct mu_opts *opts, const struct key *key, const char *value,
               struct mu_err *err);
    const char *words[4]; /* of set_words and set_file */
    int yes, no;          /* of set_switch */
    /* of set_file: the text's place and room, what it names, the word that a missing
     * value means, NULL: it is missing */
    size_t text, room;
    const char *noun, *bare;
};

/* Every field in the table is an enum with 0 for "not given". Slurm's compilers store
 * an enum as an int.
 */
_Static_assert(sizeof(enum mu_bind) == sizeof(int), "enums are ints");

static int *field_of(struct mu_opts *opts, const struct key *key)
{
    return (int *)((char *)opts + key->offset);
}

/* Choice i is stored as i + 1, because 0 is "not given". */
static int set_words(struct mu_opts *opts, const struct key *k, const char *value,
                     struct mu_err *err)
{
    int i = value ? mu_parse_word(value, k->words) : -1;

    if (i < 0)
        return mu_err_set(err, EINVAL, "%s takes %s%s%s%s%s, not '%.80s'", k->name,
                          k->words[0], k->words[2] ? ", " : " or ", k->words[1],
                          k->words[2] ? " or " : "", k->words[2] ? k->words[2] : "",
                          value ? value : "");
    *field_of(opts, k) = i + 1;
    return 0;
}

/* A switch needs no value in --muster. In a site file each key has one: yes or no. */
static int set_switch(struct mu_opts *opts, const struct key *key, const char *value,
                      struct mu_err *err)
{
    static const char *const words[] = { "no", "yes", NULL };
    int i = value ? mu_parse_word(value, words) : 1;

    if (i < 0)
        return mu_err_set(err, EINVAL, "%s takes no value, or yes or no, not '%.80s'",
                          key->name, value);
    *field_of(opts, key) = i == 1 ? key->yes : key->no;
    return 0;
}

static char *text_of(struct mu_opts *opts, const struct key *key)
{
    return (char *)opts + key->text;
}

/* A word, as for set_words, or a name: the number behind those of the words. */
static int set_file(struct mu_opts *opts, const struct key *k, const char *value,
                    struct mu_err *err)
{
    int i, n = 0;

    if (!value)
        value = k->bare ? k->bare : "";
    i = mu_parse_word(value, k->words);
    while (k->words[n])
        n++;
    if (i < 0 && !strpbrk(value, "/."))
        return mu_err_set(err, EINVAL,
                          "%s takes %s%s%s or a %s name (with a '/'), not '%.80s'",
                          k->name, k->words[0], n > 1 ? ", " : "",
                          n > 1 ? k->words[1] : "", k->noun, value);
    if (i < 0 && strlen(value) >= k->room)
        return mu_err_set(err, ENAMETOOLONG,
                          "%s: the %s name has %zu characters, at most %zu are allowed",
                          k->name, k->noun, strlen(value), k->room - 1);
    *field_of(opts, k) = i < 0 ? n + 1 : i + 1;
    mu_copy(text_of(opts, k), k->room, i < 0 ? value : "");
    return 0;
}

static int set_gpu_bind(struct mu_opts *opts, const struct key *key, const char *value,
                        struct mu_err *err)
{
    struct mu_gpu_bind bind;
    char text[sizeof opts->gpu_bind];

    if (!value || !*value)
        return mu_err_set(err, EINVAL,
                          "gpu-bind takes a value of Slurm's --gpu-bind, with "
                          "'+' for ',' (gpu-bind=map_gpu:1+0)");
    if (!mu_copy(text, sizeof text, value))
        return mu_err_set(
            err, ENAMETOOLONG,
            "gpu-bind: the value has %zu characters, at most %zu are allowed",
            strlen(value), sizeof text - 1);
    for (char *c = text; *c; c++)
        if (*c == '+')
            *c = ',';
    if (mu_gpu_bind_parse(text, &bind, err) < 0)
        return -1;
    mu_copy(opts->gpu_bind, sizeof opts->gpu_bind, text);
    return 0;
}

#define FIELD(name) offsetof(struct mu_opts, name)
#define TEXT(name) .text = FIELD(name), .room = sizeof((struct mu_opts *)0)->name

static const struct key keys[] = {
    { "on", FIELD(mode), set_switch, .yes = MU_MODE_ON, .no = MU_MODE_OFF },
    { "off", FIELD(mode), set_switch, .yes = MU_MODE_OFF, .no = MU_MODE_ON },
    { "dry-run", FIELD(mode), set_switch, .yes = MU_MODE_DRY_RUN, .no = MU_MODE_ON },
    { "verbose", FIELD(verbose), set_switch, .yes = MU_FLAG_YES, .no = MU_FLAG_NO },
    { "strict", FIELD(strict), set_switch, .yes = MU_FLAG_YES, .no = MU_FLAG_NO },
    { "bind", FIELD(bind), set_words, .words = { "auto", "none" } },
    { "cpus", FIELD(cpus), set_words, .words = { "local", "all" } },
    { "mem", FIELD(mem), set_words, .words = { "prefer", "strict", "none" } },
    { "gpu-bind", .set = set_gpu_bind },
    { "visible", FIELD(visible), set_words, .words = { "auto", "own", "all" } },
    { "share", FIELD(share), set_words, .words = { "warn", "yes", "no" } },
    { "nccl", FIELD(nccl), set_words, .words = { "auto", "none" } },
    { "rdzv", FIELD(rdzv), set_words, .words = { "auto", "none", "ranks" } },
    { "omp", FIELD(omp), set_words, .words = { "auto", "none" } },
    { "topo",
      FIELD(topo),
      set_file,
      { "auto", "none" },
      TEXT(topo_file),
      .noun = "file" },
    { "profile",
      FIELD(profile),
      set_file,
      { "no", "yes" },
      TEXT(profile_folder),
      .noun = "folder",
      .bare = "yes" },
    { "accelerate", FIELD(accelerate), set_switch, .yes = MU_FLAG_YES,
      .no = MU_FLAG_NO },
    { "tuner", FIELD(tuner), set_file, { "none" }, TEXT(tuner_file), .noun = "file" },
};

#define NKEYS (sizeof keys / sizeof keys[0])

static const struct key *find_key(const char *name)
{
    for (size_t i = 0; i < NKEYS; i++)
        if (strcmp(name, keys[i].name) == 0)
            return &keys[i];
    return NULL;
}

int mu_opts_set(struct mu_opts *opts, const char *key, const char *value,
                struct mu_err *err)
{
    const struct key *known = find_key(key);
    char all[256] = "";
    size_t at = 0;

    if (known)
        return known->set(opts, known, value, err);
    for (size_t i = 0; i < NKEYS; i++)
        at += (size_t)snprintf(all + at, sizeof all - at, "%s%s", i ? ", " : "",
                               keys[i].name);
    return mu_err_set(err, EINVAL, "unknown key '%.80s'; the keys are %s", key, all);
}

bool mu_opts_is_key(const char *word)
{
    return find_key(word) != NULL;
}

bool mu_opts_unset(struct mu_opts *opts, const char *key)
{
    const struct key *known = find_key(key);
    bool given;

    if (!known)
        return false;
    if (known->set == set_gpu_bind) {
        given = opts->gpu_bind[0];
        opts->gpu_bind[0] = '\0';
        return given;
    }
    given = *field_of(opts, known) != 0;
    *field_of(opts, known) = 0;
    if (known->room)
        text_of(opts, known)[0] = '\0';
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
            mu_err_set(err, EINVAL,
                       "'%.80s' follows a comma; inside gpu-bind write + instead: "
                       "gpu-bind=%.200s+%.80s",
                       item, work->gpu_bind, item);
        else if (mu_opts_set(work, item, value, err) == 0)
            continue;
        mu_err_context(err, "--muster");
        goto out;
    }
    /* The option itself turns Muster on, whatever the site's default is. */
    if (work->mode == MU_MODE_UNSET)
        work->mode = MU_MODE_ON;
    *opts = *work;
    rc = 0;
out:
    free(work);
    free(copy);
    return rc;
}

void mu_opts_merge(struct mu_opts *opts, const struct mu_opts *lower)
{
    struct mu_opts from = *lower;

    if (!opts->gpu_bind[0])
        mu_copy(opts->gpu_bind, sizeof opts->gpu_bind, lower->gpu_bind);
    for (size_t i = 0; i < NKEYS; i++) {
        const struct key *k = &keys[i];

        if (k->set == set_gpu_bind || *field_of(opts, k))
            continue;
        *field_of(opts, k) = *field_of(&from, k);
        if (k->room)
            mu_copy(text_of(opts, k), k->room, text_of(&from, k));
    }
}

void mu_opts_defaults(struct mu_opts *opts)
{
    *opts = (struct mu_opts){
        .mode = MU_MODE_ON,
        .verbose = MU_FLAG_NO,
        .strict = MU_FLAG_NO,
        .accelerate = MU_FLAG_NO,
        .bind = MU_BIND_AUTO,
        .cpus = MU_CPUS_LOCAL,
        .mem = MU_MEM_PREFER,
        .visible = MU_VISIBLE_AUTO,
        .share = MU_SHARE_WARN,
        .nccl = MU_AUTO_AUTO,
        .rdzv = MU_RDZV_AUTO,
        .omp = MU_AUTO_AUTO,
        .topo = MU_TOPO_AUTO,
        .profile = MU_PROFILE_NO,
        .tuner = MU_TUNER_NONE,
    };
}
