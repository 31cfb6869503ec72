/* SPDX-License-Identifier: BSD-3-Clause */
/* plugstack_lines.h - the lines of plugstack.conf, with those of the files it includes
 */
#ifndef MU_PLUGSTACK_LINES_H
#define MU_PLUGSTACK_LINES_H

#include "spank/core/options/plugstack.h"

#define MU_PLUGSTACK_DEPTH 8 /* includes within includes */

struct mu_plugstack_reader {
    /* A line that loads a plugin, or that is MU_PLUGSTACK_INVALID. Lines are numbered
     * from 1. */
    void (*line)(void *arg, const char *file, int number,
                 const struct mu_plugstack_line *line);
    /* A file that exists and is not read: its errno, or 0 below MU_PLUGSTACK_DEPTH.
     * from and number are the line that includes it; from is NULL for the first file.
     * NULL: not needed. */
    void (*unread)(void *arg, const char *path, const char *from, int number,
                   int error);
    void *arg;
};

/* Reads plugstack.conf and what it includes, in Slurm's order. */
void mu_plugstack_lines(const char *path, const struct mu_plugstack_reader *reader);

#endif
