/* SPDX-License-Identifier: BSD-3-Clause */
/* gnuplot.h - plots as inline SVG, drawn by gnuplot
 *
 * gnuplot is packaged for Debian and RHEL, and a child process away. Its SVG needs no
 * script and no network in the page, stays small, and prints.
 */
#ifndef MU_GNUPLOT_H
#define MU_GNUPLOT_H

#include <stdio.h>

#include "runtime/base/err.h"

/* A script for one plot, to which the caller writes; NULL: no temporary file. Strings
 * from outside go through mu_gnuplot_text.
 */
FILE *mu_gnuplot_open(int width, int height);
/* Write text as a quoted string that holds printable characters only. */
void mu_gnuplot_text(FILE *script, const char *text);
/* Run the script, write the svg element to `to`, and close the script. */
int mu_gnuplot_close(FILE *script, FILE *to, struct mu_err *err);

#endif
