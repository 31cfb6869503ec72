/* SPDX-License-Identifier: BSD-3-Clause */
/* profile.c - parses profile files with inih; matches and applies their rules */
#include "spank/core/nccl/profile.h"

#include <ctype.h>
#include <errno.h>
#include <fnmatch.h>
#include <ini.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/array.h"
#include "runtime/base/parse.h"

void mu_profiles_clear(struct mu_profiles *profiles)
{
    for (int i = 0; i < profiles->n; i++)
        free(profiles->profile[i].rule);
    free(profiles->profile);
    *profiles = (struct mu_profiles){ 0 };
}

/* inih returns the line of the first refused entry, but no reason. So the handler
 * stores the reason here, and the caller adds file and line.
 */
struct parse {
    struct mu_profiles *profiles;
    const char *file;
    const char *what; /* NULL: no failure yet */
};

/* Split "KEY<sep> TEXT" into the rule's key and text. */
static bool split(const char *value, char sep, struct mu_rule *rule)
{
    const char *at = strchr(value, sep);
    size_t len = at ? (size_t)(at - value) : 0;

    if (!at || len == 0 || len >= sizeof rule->key)
        return false;
    memcpy(rule->key, value, len);
    for (at++; isspace((unsigned char)*at); at++)
        ;
    return *at && mu_copy(rule->text, sizeof rule->text, at);
}

/* "NAME" or "NAME COUNT" */
static bool parse_count(const char *value, struct mu_rule *rule)
{
    char copy[64], *rest = copy, *id, *count;
    long n = 1;

    if (!mu_copy(copy, sizeof copy, value))
        return false;
    id = mu_parse_next(&rest, ' ');
    count = mu_parse_next(&rest, ' ');
    if (rest || (count && mu_parse_int("count", count, 1, 4096, &n, NULL) < 0))
        return false;
    rule->count = (int)n;
    return mu_copy(rule->key, sizeof rule->key, id);
}

/* Variables that the loader, libc, a shell, an interpreter, Slurm or a container's tool
 * reads, also with root's rights (TaskProlog, pyxis and enroot): a profile that sets
 * one would run code in every user's task. A prefix ends in '*'.
 */
static bool is_refused(const char *name)
{
    static const char *const refused[] = {
        "LD_*",        "GCONV_PATH", "GETCONF_DIR", "GLIBC_*",     "HOSTALIASES",
        "LOCALDOMAIN", "LOCPATH",    "MALLOC_*",    "NIS_PATH",    "NLSPATH",
        "RES_OPTIONS", "RESOLV_*",   "TMPDIR",      "TZDIR",       "PATH",
        "HOME",        "SHELL",      "IFS",         "ENV",         "BASH*",
        "PYTHON*",     "PERL*",      "SLURM*",      "SPANK_*",     "MUSTER_*",
        "PYXIS_*",     "ENROOT_*",   "APPTAINER*",  "SINGULARITY*"
    };

    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        if (fnmatch(refused[i], name, 0) == 0)
            return true;
    return false;
}

static bool parse_rule(const char *name, const char *value, struct mu_rule *rule)
{
    static const char *const kinds[] = { "dmi", "pci",      "rdma", "file",
                                         "set", "set-from", "why",  NULL };
    static const char *const layers[] = { "InfiniBand", "Ethernet", "none", NULL };
    int kind = mu_parse_word(name, kinds);

    rule->kind = kind;
    switch (kind) {
    case MU_RULE_DMI:
    case MU_RULE_WHY:
        return split(value, ':', rule);
    case MU_RULE_PCI:
        return parse_count(value, rule) && strchr(rule->key, ':');
    case MU_RULE_RDMA:
        return parse_count(value, rule) && mu_parse_word(rule->key, layers) >= 0;
    case MU_RULE_FILE:
    case MU_RULE_FROM:
        return value[0] == '/' && mu_copy(rule->text, sizeof rule->text, value);
    case MU_RULE_SET:
        return split(value, '=', rule);
    default:
        return false;
    }
}

static struct mu_profile *section(struct parse *p, const char *name)
{
    struct mu_profiles *list = p->profiles;
    struct mu_profile *last = list->n ? &list->profile[list->n - 1] : NULL;

    if (last && strcmp(last->name, name) == 0 && strcmp(last->file, p->file) == 0)
        return last;
    if (mu_array_extend(&list->profile, sizeof *last, list->n, list->n + 1) < 0)
        return NULL;
    last = &list->profile[list->n++];
    mu_copy(last->name, sizeof last->name, name);
    mu_copy(last->file, sizeof last->file, p->file);
    return last;
}

static int fail(struct parse *p, const char *what)
{
    if (!p->what)
        p->what = what;
    return 0;
}

static int on_line(void *arg, const char *sect, const char *name, const char *value)
{
    struct parse *p = arg;
    struct mu_rule rule = { 0 };
    struct mu_profile *profile;

    if (p->what)
        return 0;
    if (!sect[0])
        return fail(p, "the line is before the first [PROFILE]");
    if (!parse_rule(name, value, &rule))
        return fail(
            p, "the line is none of dmi = FIELD: TEXT, pci = VENDOR:DEVICE [COUNT], "
               "rdma = LAYER [COUNT], file = /PATH, set = NAME=VALUE, "
               "set-from = /PATH, why = NAME: REASON");
    if (rule.kind == MU_RULE_SET && is_refused(rule.key))
        return fail(
            p, "set takes no variable that the loader, a shell, Slurm or a "
               "container's tools read: LD_*, PATH, SLURM_*, ENROOT_* and the like");
    profile = section(p, sect);
    if (!profile || mu_array_extend(&profile->rule, sizeof rule, profile->nrules,
                                    profile->nrules + 1) < 0)
        return fail(p, "out of memory");
    profile->rule[profile->nrules++] = rule;
    return 1;
}

int mu_profiles_parse(struct mu_profiles *profiles, const char *file, const char *text,
                      struct mu_err *err)
{
    struct parse p = { .profiles = profiles, .file = file };
    int line = ini_parse_string(text, on_line, &p);

    if (line)
        return mu_err_set(err, EINVAL, "%s line %d: %s", file, line,
                          p.what ? p.what
                                 : "the line is neither a [PROFILE] nor NAME = VALUE");
    return 0;
}

static bool holds(const struct mu_rule *rule, const struct mu_platform *platform)
{
    const char *value;

    switch (rule->kind) {
    case MU_RULE_DMI:
        value = platform->dmi(platform->arg, rule->key);
        return value && fnmatch(rule->text, value, 0) == 0;
    case MU_RULE_PCI:
        return platform->pci(platform->arg, rule->key) >= rule->count;
    case MU_RULE_RDMA:
        if (strcmp(rule->key, "none") == 0)
            return platform->rdma(platform->arg, "InfiniBand") +
                       platform->rdma(platform->arg, "Ethernet") ==
                   0;
        return platform->rdma(platform->arg, rule->key) >= rule->count;
    case MU_RULE_FILE:
        return platform->exists(platform->arg, rule->text);
    default:
        return true;
    }
}

static bool matches(const struct mu_profile *profile,
                    const struct mu_platform *platform)
{
    int conditions = 0;

    for (int i = 0; i < profile->nrules; i++) {
        conditions += profile->rule[i].kind <= MU_RULE_FILE;
        if (!holds(&profile->rule[i], platform))
            return false;
    }
    return conditions > 0;
}

const struct mu_profile *mu_profiles_match(const struct mu_profiles *profiles,
                                           const struct mu_platform *platform)
{
    for (int i = 0; i < profiles->n; i++)
        if (matches(&profiles->profile[i], platform))
            return &profiles->profile[i];
    return NULL;
}

static const char *why(const struct mu_profile *profile, const char *name)
{
    for (int i = 0; i < profile->nrules; i++)
        if (profile->rule[i].kind == MU_RULE_WHY &&
            fnmatch(profile->rule[i].key, name, 0) == 0)
            return profile->rule[i].text;
    return "the platform's vendor documents it";
}

/* Read a vendor's file in the format of NCCL's own files, without "export" and quotes.
 */
static int apply_file(const struct mu_profile *profile, const char *path,
                      const struct mu_platform *platform, struct mu_settings *settings,
                      struct mu_err *err)
{
    char *text = platform->read(platform->arg, path);
    struct mu_conf conf = { 0 };
    char reason[256];
    int rc = 0;

    if (!text)
        return 0;
    snprintf(reason, sizeof reason, "profile %s: %.150s sets it", profile->name, path);
    rc = mu_conf_add_script(&conf, path, text, strlen(text), err);
    for (int i = 0; rc == 0 && i < conf.n; i++) {
        char *name = conf.line[i].name, *value = conf.line[i].value;
        size_t len = strlen(value);

        if (strncmp(name, "export ", 7) == 0)
            name += 7;
        if (len >= 2 && (value[0] == '"' || value[0] == '\'') &&
            value[len - 1] == value[0]) {
            value[len - 1] = '\0';
            value++;
        }
        /* Skip a value that only a shell can expand. */
        if (strncmp(name, "NCCL_", 5) == 0 && !strpbrk(name, " \t") &&
            !strpbrk(value, "$`\"' "))
            rc = mu_settings_add(settings, name, value, reason, err);
    }
    mu_conf_clear(&conf);
    free(text);
    return rc;
}

int mu_profile_apply(const struct mu_profile *profile,
                     const struct mu_platform *platform, struct mu_settings *settings,
                     struct mu_err *err)
{
    for (int i = 0; i < profile->nrules; i++) {
        const struct mu_rule *rule = &profile->rule[i];
        char reason[256];
        int rc = 0;

        snprintf(reason, sizeof reason, "profile %s: %.150s", profile->name,
                 why(profile, rule->key));
        if (rule->kind == MU_RULE_SET)
            rc = mu_settings_add(settings, rule->key, rule->text, reason, err);
        else if (rule->kind == MU_RULE_FROM)
            rc = apply_file(profile, rule->text, platform, settings, err);
        if (rc < 0)
            return -1;
    }
    return 0;
}
