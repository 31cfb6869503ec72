/* SPDX-License-Identifier: BSD-3-Clause */
/* nccl_conf.h - parses the text of NCCL's configuration files
 *
 * NCCL reads NAME=VALUE lines of NCCL_CONF_FILE (or ~/.nccl.conf), then of
 * /etc/nccl.conf. It never overwrites a variable that is already set (NCCL
 * src/misc/param.cc). A variable that Muster exported would override these files, so
 * Muster exports no NCCL_ variable that they set. Lines with other names are skipped.
 */
#ifndef MU_NCCL_CONF_H
#define MU_NCCL_CONF_H

#include <stddef.h>

#include "runtime/base/err.h"

#define MU_CONF_NAME 64
#define MU_CONF_TEXT_MAX (64 * 1024) /* bytes of a file that are read */
#define MU_CONF_LINES_MAX 512        /* different names; NCCL has fewer than 300 */

struct mu_conf_line {
    char name[MU_CONF_NAME];
    char value[4096];
    char file[256];
    int line;
};

/* All files in order of precedence, one line for each name: the first wins. */
struct mu_conf {
    int n, room;
    struct mu_conf_line *line; /* owned */
};

void mu_conf_clear(struct mu_conf *conf);

/* Append the lines of one file's text. As NCCL does: '#' starts a comment line, lines
 * without '=' are ignored, and blanks around '=' belong to name and value, so that
 * "NCCL_IB_HCA =mlx5_0" sets no variable that NCCL reads. More than MU_CONF_LINES_MAX
 * names are an error.
 */
int mu_conf_add(struct mu_conf *conf, const char *file, const char *text, size_t len,
                struct mu_err *err);

/* The same of a shell's script: lines may be indented. */
int mu_conf_add_script(struct mu_conf *conf, const char *file, const char *text,
                       size_t len, struct mu_err *err);

/* Append one line that another process sent: its strings may lack their end. */
int mu_conf_add_line(struct mu_conf *conf, const struct mu_conf_line *line,
                     struct mu_err *err);

/* The winning line for name, or NULL. */
const struct mu_conf_line *mu_conf_find(const struct mu_conf *conf, const char *name);

#endif
