/* SPDX-License-Identifier: BSD-3-Clause */
#include "spank/hw/io/words.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "spank/hw/io/sysfile.h"

#define WORDS_BYTES (8u << 20)

/* The words of a text of `len` bytes and a zero byte behind it; NULL: out of memory. */
static char **split(char *text, size_t len, int *n)
{
    char **word;
    size_t at;

    *n = 0;
    for (at = 0; at < len; at += strlen(text + at) + 1)
        (*n)++;
    word = calloc((size_t)*n + 1, sizeof *word);
    if (!word)
        return NULL;
    *n = 0;
    for (at = 0; at < len; at += strlen(text + at) + 1)
        word[(*n)++] = text + at;
    return word;
}

int mu_words_read(const char *path, struct mu_words *out, struct mu_err *err)
{
    char *text = malloc(WORDS_BYTES), **word = NULL;
    int n = 0, rc = -1;
    long len;

    if (!text)
        return mu_err_set(err, ENOMEM, "%s: out of memory", path);
    len = mu_sysfile_read("", text, WORDS_BYTES, "%s", path);
    if (len < 0) {
        mu_err_set(err, errno, "%s: %s", path, strerror(errno));
    } else if (len == WORDS_BYTES - 1) {
        mu_err_set(err, EFBIG, "%s: larger than %u bytes", path, WORDS_BYTES - 1);
    } else if (!(word = split(text, (size_t)len, &n))) {
        mu_err_set(err, ENOMEM, "%s: out of memory", path);
    } else {
        *out = (struct mu_words){ text, word, n };
        text = NULL;
        rc = 0;
    }
    free(text);
    return rc;
}

void mu_words_clear(struct mu_words *words)
{
    free(words->text);
    free(words->word);
    memset(words, 0, sizeof *words);
}
