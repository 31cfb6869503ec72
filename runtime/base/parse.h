/* SPDX-License-Identifier: BSD-3-Clause */
/* parse.h - numbers, sizes and lists out of strings, whole or not at all */
#ifndef MU_PARSE_H
#define MU_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/err.h"

/* Each takes the whole string (no trailing text, no blanks) or fails with a sentence
 * that holds `what` and the value; *out is untouched on failure.
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

/* Cut the next item off *rest at `sep`: writes a terminator into the string, moves
 * *rest behind it, sets *rest to NULL after the last. NULL when *rest is NULL.
 */
char *mu_parse_next(char **rest, char sep);

/* strlcpy that reports: false when src did not fit (dst then holds what fitted). */
bool mu_copy(char *dst, size_t len, const char *src);

#endif
