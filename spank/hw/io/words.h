/* SPDX-License-Identifier: BSD-3-Clause */
/* words.h - command line and environment of a process, as /proc shows them: words that
 * end with a zero byte each
 */
#ifndef MU_WORDS_H
#define MU_WORDS_H

#include "runtime/base/err.h"

/* Owned; clear with mu_words_clear. All zero is an empty list. */
struct mu_words {
    char *text;
    char **word; /* n words and NULL; they point into text */
    int n;
};

/* Reads a file such as /proc/self/cmdline; -1 with *out untouched. Words may be empty.
 * More than the kernel ever passes to a program (6 MiB) is refused.
 */
int mu_words_read(const char *path, struct mu_words *out, struct mu_err *err);
void mu_words_clear(struct mu_words *words);

#endif
