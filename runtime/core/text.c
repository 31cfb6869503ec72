/* SPDX-License-Identifier: BSD-3-Clause */
/* text.c - write a sentence in parts into a buffer of fixed size */
#include "runtime/core/text.h"

#include <stdarg.h>
#include <stdio.h>

void mu_text_add(char *text, size_t len, size_t *at, const char *fmt, ...)
{
    va_list ap;
    int n;

    if (*at + 1 >= len)
        return;
    va_start(ap, fmt);
    n = vsnprintf(text + *at, len - *at, fmt, ap);
    va_end(ap);
    if (n > 0)
        *at = *at + (size_t)n < len ? *at + (size_t)n : len - 1;
}
