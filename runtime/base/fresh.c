/* SPDX-License-Identifier: BSD-3-Clause */
/* fresh.c - opens files in folders where another user may have put something else */
#include "runtime/base/fresh.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int mu_fresh_open(const char *path)
{
    if (unlink(path) < 0 && errno != ENOENT)
        return -1;
    return open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
}

int mu_regular_open(const char *path, struct mu_err *err)
{
    int found = open(path, O_PATH | O_CLOEXEC), fd = -1;
    char name[32];
    struct stat st;

    if (found < 0 || fstat(found, &st) < 0) {
        mu_err_set(err, errno, "%s: the file cannot be read: %s", path,
                   strerror(errno));
    } else if (!S_ISREG(st.st_mode)) {
        mu_err_set(err, EINVAL, "%s: this is no regular file", path);
    } else {
        snprintf(name, sizeof name, "/proc/self/fd/%d", found);
        fd = open(name, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            mu_err_set(err, errno, "%s: the file cannot be read: %s", path,
                       strerror(errno));
    }
    if (found >= 0)
        close(found);
    return fd;
}
