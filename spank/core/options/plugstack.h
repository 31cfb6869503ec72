/* SPDX-License-Identifier: BSD-3-Clause */
/* plugstack.h - parses a line of plugstack.conf as Slurm does, and the arguments of the
 * plugin in it
 */
#ifndef MU_PLUGSTACK_H
#define MU_PLUGSTACK_H

#include <stddef.h>

#include "runtime/base/err.h"

#define MU_PLUGSTACK_ARGS 64

enum mu_plugstack_kind {
    MU_PLUGSTACK_OTHER, /* empty or a comment */
    MU_PLUGSTACK_REQUIRED,
    MU_PLUGSTACK_OPTIONAL,
    MU_PLUGSTACK_INCLUDE,
    MU_PLUGSTACK_INVALID, /* another first word, or no path: Slurm ignores the line */
};

/* Pointers into the text of the line. */
struct mu_plugstack_line {
    enum mu_plugstack_kind kind;
    char *word; /* the first one; NULL: the line is empty or a comment */
    char *path; /* of the plugin, or the pattern of an include; NULL: none */
    int nargs;
    char *arg[MU_PLUGSTACK_ARGS];
};

/* Cuts the line in place into words, which blanks and tabs separate. A '#' starts a
 * comment anywhere.
 */
void mu_plugstack_parse(char *line, struct mu_plugstack_line *out);

/* The site file that the plugin's arguments name, MU_SITE_FILE without one. Fails for
 * every argument but conf=FILE with an absolute path; then *conf is unchanged.
 */
int mu_plugin_arguments(int n, char *const *arg, char *conf, size_t len,
                        struct mu_err *err);

#endif
