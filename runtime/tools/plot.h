/* SPDX-License-Identifier: BSD-3-Clause */
/* plot.h - small plots as inline SVG */
#ifndef MU_PLOT_H
#define MU_PLOT_H

#include <stdio.h>

/* Write the text with &, <, > and quotes escaped. */
void mu_plot_escape(const char *text, FILE *to);
/* <tag>text</tag> */
void mu_plot_cell(const char *tag, const char *text, FILE *to);

/* A line through n points; axes from the data, y from zero. Infinities and NaN are left
 * out.
 */
void mu_plot_line(const char *title, const char *xlabel, const char *ylabel,
                  const double *x, const double *y, int n, FILE *to);

/* Horizontal bars of up to three stacked parts each, in seconds: n * nparts values. */
void mu_plot_bars(const char *title, const char *const *parts, int nparts,
                  const double *values, int n, FILE *to);

#endif
