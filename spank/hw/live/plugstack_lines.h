/* SPDX-License-Identifier: BSD-3-Clause */
/* plugstack_lines.h - the lines of plugstack.conf, with those of the files it includes
 */
#ifndef MU_PLUGSTACK_LINES_H
#define MU_PLUGSTACK_LINES_H

#include "spank/core/options/plugstack.h"

/* Call each(arg, file, number, line) for every line that loads a plugin, in Slurm's
 * order. Numbers start at 1. Unreadable files are skipped.
 */
void mu_plugstack_lines(const char *path,
                        void (*each)(void *arg, const char *file, int number,
                                     const struct mu_plugstack_line *line),
                        void *arg);

#endif
