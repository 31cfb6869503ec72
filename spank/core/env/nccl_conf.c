/* SPDX-License-Identifier: BSD-3-Clause */
/* nccl_conf.c - parses NCCL's configuration files */
#include "spank/core/env/nccl_conf.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/parse.h"

void mu_conf_clear(struct mu_conf *conf)
{
    free(conf->line);
    *conf = (struct mu_conf){ 0 };
}

/* Copy text[from, to), without blanks at its ends if `trim`; false if it does not fit.
 */
static bool copy_part(const char *text, size_t from, size_t to, bool trim, char *dst,
                      size_t len)
{
    while (trim && from < to && isspace((unsigned char)text[from]))
        from++;
    while (to > from &&
           (text[to - 1] == '\r' || (trim && isspace((unsigned char)text[to - 1]))))
        to--;
    if (to - from >= len || memchr(text + from, '\0', to - from))
        return false;
    memcpy(dst, text + from, to - from);
    dst[to - from] = '\0';
    return true;
}

/* "export NCCL_" is how a vendor's script begins; NCCL ignores such a line. */
static bool is_wanted(const char *name)
{
    name += strspn(name, " \t");
    return strncmp(name, "NCCL_", 5) == 0 || strncmp(name, "export NCCL_", 12) == 0;
}

int mu_conf_add_line(struct mu_conf *conf, const struct mu_conf_line *line,
                     struct mu_err *err)
{
    struct mu_conf_line copy = *line;

    copy.name[sizeof copy.name - 1] = '\0';
    copy.value[sizeof copy.value - 1] = '\0';
    copy.file[sizeof copy.file - 1] = '\0';
    if (!is_wanted(copy.name) || mu_conf_find(conf, copy.name))
        return 0;
    if (conf->n == MU_CONF_LINES_MAX)
        return mu_err_set(err, E2BIG, "%s: more than %d variables", copy.file,
                          MU_CONF_LINES_MAX);
    if (conf->n == conf->room) {
        int room = conf->room ? 2 * conf->room : 16;
        void *grown = realloc(conf->line, (size_t)room * sizeof copy);

        if (!grown)
            return mu_err_set(err, ENOMEM, "%s: out of memory", copy.file);
        conf->line = grown;
        conf->room = room;
    }
    conf->line[conf->n++] = copy;
    return 0;
}

static int add(struct mu_conf *conf, const char *file, const char *text, size_t len,
               bool script, struct mu_err *err)
{
    struct mu_conf_line line = { .line = 0 };

    mu_copy(line.file, sizeof line.file, file);
    for (size_t at = 0; at < len;) {
        const char *nl = memchr(text + at, '\n', len - at);
        size_t end = nl ? (size_t)(nl - text) : len;
        const char *eq = memchr(text + at, '=', end - at);

        line.line++;
        if (text[at] != '#' && eq &&
            copy_part(text, at, (size_t)(eq - text), script, line.name,
                      sizeof line.name) &&
            is_wanted(line.name) &&
            copy_part(text, (size_t)(eq - text) + 1, end, script, line.value,
                      sizeof line.value) &&
            mu_conf_add_line(conf, &line, err) < 0)
            return -1;
        at = end + 1;
    }
    return 0;
}

int mu_conf_add(struct mu_conf *conf, const char *file, const char *text, size_t len,
                struct mu_err *err)
{
    return add(conf, file, text, len, false, err);
}

int mu_conf_add_script(struct mu_conf *conf, const char *file, const char *text,
                       size_t len, struct mu_err *err)
{
    return add(conf, file, text, len, true, err);
}

const struct mu_conf_line *mu_conf_find(const struct mu_conf *conf, const char *name)
{
    for (int i = 0; i < conf->n; i++)
        if (strcmp(conf->line[i].name, name) == 0)
            return &conf->line[i];
    return NULL;
}
