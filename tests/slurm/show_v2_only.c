/* SPDX-License-Identifier: BSD-3-Clause */
/* show_v2_only.c - preloaded into slurmd by `cluster --cgroup v2` on a machine that has
 * both versions of cgroups: /proc/PID/cgroup has the line of version 2 alone, as on a
 * machine without version 1. Slurm's cgroup/v2 plugin accepts no other. A process
 * outside of slurmd's cgroup namespace is shown in its root.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int is_cgroup_file(const char *path)
{
    size_t len = strlen(path);

    return strncmp(path, "/proc/", 6) == 0 && len > 13 &&
           strcmp(path + len - 7, "/cgroup") == 0;
}

/* Replaces an open file by the one line of it that begins with "0::". */
static int only_v2(int fd)
{
    char text[8192], *line, *rest = text;
    ssize_t n = read(fd, text, sizeof text - 1);
    int out = memfd_create("cgroup", MFD_CLOEXEC);

    close(fd);
    text[n > 0 ? n : 0] = '\0';
    while ((line = strsep(&rest, "\n")))
        if (strncmp(line, "0::", 3) == 0)
            dprintf(out, "%s\n", strncmp(line, "0::/..", 6) == 0 ? "0::/" : line);
    lseek(out, 0, SEEK_SET);
    return out;
}

static int open_with(const char *name, const char *path, int flags, int mode)
{
    int (*real)(const char *, int, ...) = dlsym(RTLD_NEXT, name);
    int fd = real(path, flags, mode);

    return fd >= 0 && is_cgroup_file(path) ? only_v2(fd) : fd;
}

#define OPEN(name)                                                                     \
    int name(const char *path, int flags, ...)                                         \
    {                                                                                  \
        va_list ap;                                                                    \
        int mode;                                                                      \
                                                                                       \
        va_start(ap, flags);                                                           \
        mode = va_arg(ap, int);                                                        \
        va_end(ap);                                                                    \
        return open_with(#name, path, flags, mode);                                    \
    }
OPEN(open)
OPEN(open64)

int __open_2(const char *path, int flags)
{
    return open(path, flags);
}

int __open64_2(const char *path, int flags)
{
    return open64(path, flags);
}

static FILE *fopen_with(const char *name, const char *path, const char *mode)
{
    FILE *(*real)(const char *, const char *) = dlsym(RTLD_NEXT, name);
    int fd;

    if (!is_cgroup_file(path))
        return real(path, mode);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? NULL : fdopen(fd, mode);
}

FILE *fopen(const char *path, const char *mode)
{
    return fopen_with("fopen", path, mode);
}

FILE *fopen64(const char *path, const char *mode)
{
    return fopen_with("fopen64", path, mode);
}
