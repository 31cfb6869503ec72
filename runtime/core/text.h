/* SPDX-License-Identifier: BSD-3-Clause */
/* text.h - write a sentence in parts into a buffer of fixed size */
#ifndef MU_TEXT_H
#define MU_TEXT_H

#include <stddef.h>
#include <stdint.h>

/* Append at *at and move *at. What does not fit is cut; text stays terminated. */
void mu_text_add(char *text, size_t len, size_t *at, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* The same for a word and for a number, without the cost of a format: for text that is
 * made in each call.
 */
void mu_text_add_word(char *text, size_t len, size_t *at, const char *word);
void mu_text_add_number(char *text, size_t len, size_t *at, uint64_t number);

#endif
