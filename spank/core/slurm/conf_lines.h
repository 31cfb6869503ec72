/* SPDX-License-Identifier: BSD-3-Clause */
/* conf_lines.h - parses lines of slurm.conf and gres.conf as Slurm does: KEY=VALUE,
 * blanks around the '=' and quotes around the value allowed, keys in any case. A '#'
 * starts a comment. A backslash at the end of a line continues it on the next.
 */
#ifndef MU_CONF_LINES_H
#define MU_CONF_LINES_H

#include <stdbool.h>
#include <stddef.h>

/* Join each line that ends in a backslash with the next one, in place. Empty lines
 * after it keep the numbers of the following lines.
 */
void mu_slurm_conf_join(char *text);

/* The value of the first `key` on the line, which ends at a newline or '\0'. False and
 * "" if there is none or it does not fit buf.
 */
bool mu_slurm_value(const char *line, const char *key, char *buf, size_t len);

/* The first value of `key` in a whole text. */
bool mu_slurm_text_value(const char *text, const char *key, char *buf, size_t len);

/* The file of an `Include FILE` line; false for any other line. */
bool mu_slurm_include_of_line(const char *line, char *out, size_t len);

/* A file and those it includes, as spank/hw reads them. */
#define MU_SLURM_FILES_MAX 32

struct mu_slurm_file {
    char path[1024];
    char *text; /* continued lines are joined; NULL: not readable */
    int from;   /* index of the file that includes it; -1: the first file */
    int line;   /* line of that Include */
};

struct mu_slurm_files {
    int n;
    struct mu_slurm_file file[MU_SLURM_FILES_MAX];
};

#endif
