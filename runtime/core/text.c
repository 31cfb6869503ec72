/* SPDX-License-Identifier: BSD-3-Clause */
/* text.c - write a sentence in parts into a buffer of fixed size */
#include "runtime/core/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

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

void mu_text_add_word(char *text, size_t len, size_t *at, const char *word)
{
    size_t n = strlen(word);

    if (*at + 1 >= len)
        return;
    if (n > len - *at - 1)
        n = len - *at - 1;
    memcpy(text + *at, word, n);
    *at += n;
    text[*at] = '\0';
}

void mu_text_add_number(char *text, size_t len, size_t *at, uint64_t number)
{
    char digits[21], *first = digits + sizeof digits - 1;

    *first = '\0';
    do
        *--first = (char)('0' + number % 10);
    while (number /= 10);
    mu_text_add_word(text, len, at, first);
}
