/* SPDX-License-Identifier: BSD-3-Clause */
/* plugstack.c - a line of plugstack.conf, and the arguments of the plugin */
#include "spank/core/options/plugstack.h"

#include <errno.h>
#include <string.h>

#include "runtime/base/parse.h"
#include "spank/core/options/muster_conf.h"

#define BLANKS " \t"

static char *next_word(char **rest)
{
    char *word = *rest + strspn(*rest, BLANKS);

    *rest = word + strcspn(word, BLANKS);
    if (**rest)
        *(*rest)++ = '\0';
    return *word ? word : NULL;
}

void mu_plugstack_parse(char *line, struct mu_plugstack_line *out)
{
    static const char *const kinds[] = { "required", "optional", "include", NULL };
    char *rest = line, *word;
    int kind;

    *out = (struct mu_plugstack_line){ .kind = MU_PLUGSTACK_OTHER };
    line[strcspn(line, "#\n")] = '\0';
    out->word = next_word(&rest);
    if (!out->word)
        return;
    kind = mu_parse_word(out->word, kinds);
    out->path = next_word(&rest);
    out->kind = kind < 0 || !out->path
                    ? MU_PLUGSTACK_INVALID
                    : (enum mu_plugstack_kind)(kind + MU_PLUGSTACK_REQUIRED);
    while (out->nargs < MU_PLUGSTACK_ARGS && (word = next_word(&rest)))
        out->arg[out->nargs++] = word;
}

int mu_plugin_arguments(int n, char *const *arg, char *conf, size_t len,
                        struct mu_err *err)
{
    const char *file = MU_SITE_FILE;

    for (int i = 0; i < n; i++) {
        if (strncmp(arg[i], "conf=", 5) != 0)
            return mu_err_set(err, EINVAL,
                              "unknown argument '%.80s'; use conf=FILE only", arg[i]);
        file = arg[i] + 5;
        if (file[0] != '/')
            return mu_err_set(err, EINVAL, "conf= needs an absolute path, not '%.80s'",
                              file);
        if (strlen(file) >= len)
            return mu_err_set(err, ENAMETOOLONG, "conf= has more than %zu characters",
                              len - 1);
    }
    mu_copy(conf, len, file);
    return 0;
}
