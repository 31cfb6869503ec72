/* SPDX-License-Identifier: BSD-3-Clause */
#include "spank/hw/io/sysfile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Read the whole of a file, without the final newline; closes fd. */
static long read_and_close(int fd, char *buf, size_t len)
{
    size_t got = 0;
    ssize_t n = 0;

    while (got < len - 1 && (n = read(fd, buf + got, len - 1 - got)) > 0)
        got += (size_t)n;
    close(fd);
    if (n < 0)
        return -1;
    if (got && buf[got - 1] == '\n')
        got--;
    buf[got] = '\0';
    return (long)got;
}

/* Opens without blocking, since a FIFO may lie in the place of the file. */
static int open_regular(const char *path, struct stat *st, struct mu_err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

    if (fd < 0)
        return mu_err_set(err, errno, "%s: %s", path, strerror(errno));
    if (fstat(fd, st) < 0 || !S_ISREG(st->st_mode)) {
        close(fd);
        errno = EINVAL;
        return mu_err_set(err, EINVAL, "%s: not a regular file", path);
    }
    return fd;
}

static long read_path(const char *path, char *buf, size_t len)
{
    struct stat st;
    int fd = open_regular(path, &st, NULL);

    return fd < 0 ? -1 : read_and_close(fd, buf, len);
}

static long read_formatted(const char *root, char *buf, size_t len, const char *path,
                           va_list ap)
{
    char full[4096];
    int n = snprintf(full, sizeof full, "%s", root);

    if (n < 0 || n >= (int)sizeof full ||
        n + vsnprintf(full + n, sizeof full - n, path, ap) >= (int)sizeof full) {
        errno = ENAMETOOLONG;
        return -1;
    }
    return read_path(full, buf, len);
}

long mu_sysfile_read(const char *root, char *buf, size_t len, const char *path, ...)
{
    va_list ap;
    long n;

    va_start(ap, path);
    n = read_formatted(root, buf, len, path, ap);
    va_end(ap);
    return n;
}

long mu_sysfile_number(const char *root, long none, const char *path, ...)
{
    char buf[64], *end;
    va_list ap;
    long n;

    va_start(ap, path);
    n = read_formatted(root, buf, sizeof buf, path, ap);
    va_end(ap);
    if (n <= 0)
        return none;
    n = strtol(buf, &end, 0);
    return end == buf ? none : n;
}

const char *mu_sysfile_root(void)
{
    const char *root = getenv("HWLOC_FSROOT");

    return root ? root : "";
}

int mu_refuse_foreign(const char *path, const struct stat *st, struct mu_err *err)
{
    if (st->st_uid != 0 && st->st_uid != getuid())
        return mu_err_set(err, EPERM,
                          "%s belongs to user %u, not to root; it is not read: run "
                          "chown root %s",
                          path, (unsigned)st->st_uid, path);
    if (st->st_mode & (S_IWGRP | S_IWOTH))
        return mu_err_set(
            err, EPERM, "%s is writable by %s; it is not read: run chmod go-w %s", path,
            st->st_mode & S_IWOTH ? "everybody" : "its group", path);
    return 0;
}

static int open_owned(const char *path, struct stat *st, struct mu_err *err)
{
    int fd = open_regular(path, st, err);

    if (fd >= 0 && mu_refuse_foreign(path, st, err) < 0) {
        close(fd);
        return -1;
    }
    return fd;
}

long mu_owned_read(const char *path, char *buf, size_t len, struct mu_err *err)
{
    struct stat st;
    int fd = open_owned(path, &st, err);
    long n = fd < 0 ? -1 : read_and_close(fd, buf, len);

    if (fd >= 0 && n < 0)
        return mu_err_set(err, errno, "%s: %s", path, strerror(errno));
    return n;
}

/* Read the text of an open file and close it. */
static int text_and_close(int fd, const char *path, size_t max, char **text,
                          struct mu_err *err)
{
    char *buf = malloc(max + 1);

    if (!buf) {
        close(fd);
        return mu_err_set(err, ENOMEM, "%s: out of memory", path);
    }
    if (read_and_close(fd, buf, max + 1) < 0) {
        mu_err_set(err, errno, "%s: %s", path, strerror(errno));
        free(buf);
        return -1;
    }
    *text = buf;
    return 0;
}

int mu_sysfile_text(const char *path, size_t max, char **text, struct mu_err *err)
{
    struct stat st;
    int fd = open_regular(path, &st, err);

    return fd < 0 ? -1 : text_and_close(fd, path, max, text, err);
}

int mu_owned_text(const char *path, size_t max, char **text, struct mu_err *err)
{
    struct stat st;
    int fd = open_owned(path, &st, err);

    if (fd < 0)
        return -1;
    if ((size_t)st.st_size > max) {
        close(fd);
        return mu_err_set(err, EFBIG, "%s: larger than %zu bytes", path, max);
    }
    return text_and_close(fd, path, max, text, err);
}

int mu_check_owner(const char *path, struct mu_err *err)
{
    struct stat st;

    if (stat(path, &st) < 0)
        return mu_err_set(err, errno, "%s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return mu_err_set(err, EINVAL, "%s: not a regular file", path);
    return mu_refuse_foreign(path, &st, err);
}
