/* SPDX-License-Identifier: BSD-3-Clause */
#include "spank/core/options/muster_conf.h"

#include <ctype.h>
#include <errno.h>
#include <ini.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/parse.h"
#include "spank/core/slurm/hostlist.h"
#include "spank/core/network/interface.h"

struct reading {
    const char *rest; /* text that inih has not read yet */
    int line;         /* number of the line that inih read last */
    struct mu_site site;
    int bad_line; /* of err, 0 none */
    struct mu_err *err;
};

static int fail(struct reading *r)
{
    if (!r->bad_line)
        r->bad_line = r->line;
    return -1;
}

static int set_enable(struct mu_site_keys *keys, const char *value, struct mu_err *err)
{
    static const char *const words[] = { "off", "gpu", "all", NULL };
    int i = mu_parse_word(value, words);

    if (i < 0)
        return mu_err_set(err, EINVAL, "enable takes off, gpu or all, not '%.80s'",
                          value);
    keys->enable = (enum mu_enable)(MU_ENABLE_OFF + i);
    return 0;
}

static int set_flag(const char *key, enum mu_flag *flag, const char *value,
                    struct mu_err *err)
{
    static const char *const words[] = { "no", "yes", NULL };
    int i = mu_parse_word(value, words);

    if (i < 0)
        return mu_err_set(err, EINVAL, "%s takes yes or no, not '%.80s'", key, value);
    *flag = (enum mu_flag)(MU_FLAG_NO + i);
    return 0;
}

/* A list key may be given several times. inih repeats the key for each indented line.
 */
static int append(const char *key, char *list, size_t len, const char *value,
                  struct mu_err *err)
{
    size_t at = strlen(list);

    if (at + strlen(value) + 2 > len)
        return mu_err_set(err, E2BIG, "%s is longer than %zu characters", key, len - 2);
    snprintf(list + at, len - at, "%s%s", at ? "," : "", value);
    return 0;
}

static int set_networks(struct mu_site_keys *keys, const char *value,
                        struct mu_err *err)
{
    struct mu_addr list[MU_NETWORKS_MAX];
    int n;

    if (mu_networks_parse(value, list, &n, err) < 0)
        return -1;
    return append("networks", keys->networks, sizeof keys->networks, value, err);
}

static int set_path(const char *key, char *path, size_t len, const char *value,
                    struct mu_err *err)
{
    if (value[0] != '/')
        return mu_err_set(err, EINVAL, "%s takes an absolute path, not '%.80s'", key,
                          value);
    if (!mu_copy(path, len, value))
        return mu_err_set(err, ENAMETOOLONG,
                          "%s: the path is longer than %zu characters", key, len - 1);
    return 0;
}

static int set_ports(struct mu_site_keys *keys, const char *value, struct mu_err *err)
{
    char copy[32], *rest = copy, *from, *to;
    long first, last;

    if (!mu_copy(copy, sizeof copy, value) || !strchr(copy, '-'))
        return mu_err_set(err, EINVAL, "ports takes FIRST-LAST, not '%.80s'", value);
    from = mu_parse_next(&rest, '-');
    to = rest;
    if (mu_parse_int("ports", from, 1024, 65535, &first, err) < 0 ||
        mu_parse_int("ports", to, first, 65535, &last, err) < 0)
        return -1;
    keys->port_first = (int)first;
    keys->port_last = (int)last;
    return 0;
}

static int set_lock(struct mu_site_keys *keys, const char *value, struct mu_err *err)
{
    char copy[512], *rest = copy, *key;

    if (!mu_copy(copy, sizeof copy, value))
        return mu_err_set(err, E2BIG, "lock is longer than %zu characters",
                          sizeof copy - 1);
    while ((key = mu_parse_next(&rest, ','))) {
        while (isspace((unsigned char)*key))
            key++;
        key[strcspn(key, " \t")] = '\0';
        if (!mu_opts_is_key(key))
            return mu_err_set(err, EINVAL, "lock takes keys of --muster, not '%.80s'",
                              key);
        if (keys->nlocks == MU_SITE_LOCKS)
            return mu_err_set(err, E2BIG, "lock names more than %d keys",
                              MU_SITE_LOCKS);
        mu_copy(keys->lock[keys->nlocks++], sizeof keys->lock[0], key);
    }
    return 0;
}

static int set_key(struct mu_site_keys *keys, const char *key, const char *value,
                   struct mu_err *err)
{
    if (strcmp(key, "enable") == 0)
        return set_enable(keys, value, err);
    if (strcmp(key, "installed") == 0)
        return set_flag(key, &keys->installed, value, err);
    if (strcmp(key, "networks") == 0)
        return set_networks(keys, value, err);
    if (strcmp(key, "exclude-hca") == 0)
        return append(key, keys->exclude_hca, sizeof keys->exclude_hca, value, err);
    if (strcmp(key, "topology") == 0)
        return set_path(key, keys->topology, sizeof keys->topology, value, err);
    if (strcmp(key, "devices") == 0)
        return set_path(key, keys->devices, sizeof keys->devices, value, err);
    if (strcmp(key, "ports") == 0)
        return set_ports(keys, value, err);
    if (strcmp(key, "restart") == 0)
        return set_flag(key, &keys->restart, value, err);
    if (strcmp(key, "lock") == 0)
        return set_lock(keys, value, err);
    if (strcmp(key, "topo") == 0 && strpbrk(value, "./") && value[0] != '/')
        return mu_err_set(err, EINVAL,
                          "in this file topo takes auto, none or an absolute path, not "
                          "'%.80s'",
                          value);
    if (mu_opts_is_key(key))
        return mu_opts_set(&keys->opts, key, value, err);
    return mu_err_set(
        err, EINVAL,
        "unknown key '%.80s'; the keys are enable, installed, networks, "
        "exclude-hca, topology, devices, ports, restart, lock and those of --muster",
        key);
}

static int on_pair(void *arg, const char *section, const char *key, const char *value)
{
    struct reading *r = arg;
    struct mu_site *site = &r->site;

    if (r->bad_line)
        return 0;
    if (site->nrules == 0) {
        mu_err_set(
            r->err, EINVAL,
            "'%.80s' is before the first section; begin the file with [defaults]", key);
        return fail(r), 0;
    }
    if (set_key(&site->rule[site->nrules - 1]->keys, key, value ? value : "", r->err) <
        0)
        return fail(r), 0;
    return 1;
}

static int add_rule(struct mu_site *site, enum mu_site_section section,
                    const char *name, struct mu_err *err)
{
    struct mu_site_rule *rule = calloc(1, sizeof *rule);
    struct mu_site_rule **bigger =
        realloc(site->rule, ((size_t)site->nrules + 1) * sizeof *bigger);

    if (bigger)
        site->rule = bigger;
    if (rule)
        rule->name = strdup(name);
    if (!bigger || !rule || !rule->name) {
        if (rule)
            free(rule->name);
        free(rule);
        return mu_err_set(err, ENOMEM, "out of memory");
    }
    rule->section = section;
    site->rule[site->nrules++] = rule;
    return 0;
}

static int add_section(struct mu_site *site, char *title, struct mu_err *err)
{
    struct mu_hostlist hosts = { 0 };
    char *name = strpbrk(title, " \t");

    if (strcmp(title, "defaults") == 0)
        return add_rule(site, MU_SITE_DEFAULTS, "", err);
    if (name) {
        *name++ = '\0';
        name += strspn(name, " \t");
    }
    if (name && strcmp(title, "partition") == 0 && strpbrk(name, ", \t*?[]"))
        return mu_err_set(err, EINVAL,
                          "a [partition] section takes one name, not '%.80s'; write "
                          "one section for each partition",
                          name);
    if (name && *name && strcmp(title, "partition") == 0)
        return add_rule(site, MU_SITE_PARTITION, name, err);
    if (name && *name && strcmp(title, "node") == 0) {
        if (mu_hostlist_parse(name, &hosts, err) < 0)
            return -1;
        mu_hostlist_clear(&hosts);
        return add_rule(site, MU_SITE_NODE, name, err);
    }
    return mu_err_set(err, EINVAL,
                      "unknown section [%.80s]; the sections are [defaults], "
                      "[partition NAME] and [node HOSTLIST]",
                      title);
}

/* Parse a section line here and give inih an empty line: inih ends a title at the first
 * ']', which a host list may contain, and cuts it after 49 characters.
 */
static int read_title(struct reading *r, const char *start, size_t n)
{
    char *line = strndup(start, n), *end;
    int rc;

    if (!line) {
        mu_err_set(r->err, ENOMEM, "out of memory");
        return fail(r);
    }
    end = strrchr(line, ']');
    if (!end || end[1 + strspn(end + 1, " \t\r")]) {
        mu_err_set(r->err, EINVAL,
                   "a section title must end with ']', with nothing after it");
        rc = fail(r);
    } else {
        *end = '\0';
        rc = add_section(&r->site, line + 1, r->err);
        if (rc < 0)
            fail(r);
    }
    free(line);
    return rc;
}

/* Reader for inih, like fgets: it gives one line at a time and counts the lines for
 * messages.
 */
static char *next_line(char *buf, int len, void *arg)
{
    struct reading *r = arg;
    size_t n = strcspn(r->rest, "\n");

    if (!*r->rest || r->bad_line)
        return NULL;
    r->line++;
    buf[0] = '\0';
    if (r->rest[0] == '[') {
        read_title(r, r->rest, n);
    } else if (n + 2 > (size_t)len) {
        mu_err_set(r->err, E2BIG,
                   "the line has %zu characters, at most %d are allowed; a list key "
                   "may be given several times",
                   n, len - 2);
        fail(r);
    } else {
        memcpy(buf, r->rest, n);
        buf[n] = '\0';
    }
    strcat(buf, "\n");
    r->rest += n + (r->rest[n] == '\n');
    return buf;
}

int mu_site_parse(const char *text, const char *file, struct mu_site *site,
                  struct mu_err *err)
{
    bool mark = strncmp(text, "\xef\xbb\xbf", 3) == 0; /* UTF-8 byte order mark */
    struct reading r = { .rest = text + (mark ? 3 : 0), .err = err };
    int line = ini_parse_stream(next_line, &r, on_pair, &r);

    if (r.bad_line == 0 && line == 0) {
        *site = r.site;
        return 0;
    }
    mu_site_clear(&r.site);
    /* inih returns the first bad line, whether it or the handler refused it. */
    if (line > 0 && (r.bad_line == 0 || line < r.bad_line))
        return mu_err_set(err, EINVAL,
                          "%s:%d: neither 'key = value', a [section] nor a "
                          "comment",
                          file, line);
    if (r.bad_line == 0)
        return mu_err_set(err, ENOMEM, "%s: inih failed (%d)", file, line);
    return mu_err_context(err, "%s:%d", file, r.bad_line);
}

void mu_site_clear(struct mu_site *site)
{
    for (int i = 0; i < site->nrules; i++) {
        free(site->rule[i]->name);
        free(site->rule[i]);
    }
    free(site->rule);
    memset(site, 0, sizeof *site);
}
