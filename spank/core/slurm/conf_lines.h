/* SPDX-License-Identifier: BSD-3-Clause */
/* conf_lines.h - lines of slurm.conf and gres.conf, cut up as Slurm cuts them:
 * KEY=VALUE with blanks around the '=' and quotes around the value allowed, keys in any
 * case, a comment from '#' on, a backslash at the end of a line that goes on.
 */
#ifndef MU_CONF_LINES_H
#define MU_CONF_LINES_H

#include <stdbool.h>
#include <stddef.h>

/* Put lines that end in a backslash together with the next one, in place; empty lines
 * behind keep the numbers of those that follow.
 */
void mu_slurm_conf_join(char *text);

/* The value of the first `key` of the line (which ends at a line end or '\0'); false
 * and "": it has none, or one longer than buf.
 */
bool mu_slurm_value(const char *line, const char *key, char *buf, size_t len);

/* The first value of `key` in a whole text. */
bool mu_slurm_text_value(const char *text, const char *key, char *buf, size_t len);

/* The file of an `Include FILE` line; false: it is none. */
bool mu_slurm_include_of_line(const char *line, char *out, size_t len);

/* A file and those it includes, as spank/hw reads them. */
#define MU_SLURM_FILES_MAX 32

struct mu_slurm_file {
    char path[1024];
    char *text; /* lines that go on are joined; NULL: it cannot be read */
    int from;   /* index of the file that includes it, -1 the first */
    int line;   /* and the line there */
};

struct mu_slurm_files {
    int n;
    struct mu_slurm_file file[MU_SLURM_FILES_MAX];
};

#endif
