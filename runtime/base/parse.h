/* SPDX-License-Identifier: BSD-3-Clause */
/* parse.h - numbers, sizes and lists in strings; a string is read as a whole */
#ifndef MU_PARSE_H
#define MU_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/err.h"

/* Each reads the whole string and refuses blanks. On failure the sentence has `what`
 * and the value, and *out is unchanged.
 */
int mu_parse_int(const char *what, const char *text, long min, long max, long *out,
                 struct mu_err *err);
int mu_parse_double(const char *what, const char *text, double min, double max,
                    double *out, struct mu_err *err);
/* Bytes: "1048576", "25M", "1KiB", "2g" (powers of 1024). */
int mu_parse_size(const char *what, const char *text, uint64_t max, uint64_t *out,
                  struct mu_err *err);

/* Index of text in the NULL-terminated list, or -1. */
int mu_parse_word(const char *text, const char *const *words);

/* The next item of *rest, which ends at `sep`: its terminator is written into the
 * string, and *rest becomes what follows, NULL after the last item. NULL when *rest is
 * NULL.
 */
char *mu_parse_next(char **rest, char sep);

/* Copy a string. False when src did not fit; then dst has its beginning. */
bool mu_copy(char *dst, size_t len, const char *src);

/* Control characters but tabs, and bytes that are no UTF-8, become '?'. For a text with
 * bytes of another user, which goes to a terminal, a log or JSON.
 */
void mu_make_printable(char *text);

#endif
