/* SPDX-License-Identifier: BSD-3-Clause */
/* text.c - a small text file as a whole */
#include "runtime/base/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/fresh.h"

char *mu_text_read(const char *path, size_t most, struct mu_err *err)
{
    int fd = mu_regular_open(path, err);
    char *text = NULL;
    size_t at = 0, size = 0;
    ssize_t n = 0;
    struct stat st;

    if (fd < 0)
        return NULL;
    if (fstat(fd, &st) == 0)
        size = (size_t)st.st_size;
    if (size > most) {
        mu_err_set(err, EFBIG, "%s: the file has more than %zu bytes", path, most);
        goto out;
    }
    text = malloc(size + 1);
    while (text && at < size && (n = read(fd, text + at, size - at)) > 0)
        at += (size_t)n;
    if (text && n >= 0 && strnlen(text, at) == at) {
        text[at] = '\0';
    } else {
        mu_err_set(err, EINVAL, "%s: the file is no text, or cannot be read", path);
        free(text);
        text = NULL;
    }
out:
    close(fd);
    return text;
}
