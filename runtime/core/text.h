/* SPDX-License-Identifier: BSD-3-Clause */
/* text.h - build a sentence piece by piece in a buffer of fixed size */
#ifndef MU_TEXT_H
#define MU_TEXT_H

#include <stddef.h>

/* Append at *at (never beyond len - 1, always terminated) and move *at. */
void mu_text_add(char *text, size_t len, size_t *at, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

#endif
