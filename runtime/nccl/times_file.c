/* SPDX-License-Identifier: BSD-3-Clause */
/* times_file.c - the file with the times of one machine */
#include "runtime/nccl/times_file.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/fresh.h"
#include "runtime/base/text.h"

#define FILE_MOST ((size_t)1 << 16) /* bytes */
#define VARIABLE "MUSTER_NCCL_TIMES"

/* FNV-1a: names of files need no more. */
static uint32_t hash_of(const char *text)
{
    uint32_t h = 2166136261u;

    for (; *text; text++)
        h = (h ^ (unsigned char)*text) * 16777619u;
    return h;
}

static int folder_make(const char *path, struct mu_err *err)
{
    if (mkdir(path, 0700) == 0 || errno == EEXIST)
        return 0;
    return mu_err_set(err, errno, "%s: the folder cannot be made: %s", path,
                      strerror(errno));
}

int mu_times_path(const char *machine, char *path, size_t len, struct mu_err *err)
{
    const char *named = getenv(VARIABLE), *cache = getenv("XDG_CACHE_HOME"),
               *home = getenv("HOME");
    char folder[MU_TIMES_PATH - 64];
    int n;

    if (named && *named) {
        n = snprintf(path, len, "%s", named);
        return (size_t)n < len ? 0
                               : mu_err_set(err, ENAMETOOLONG, VARIABLE " is too long");
    }
    if (cache && *cache == '/')
        n = snprintf(folder, sizeof folder, "%s", cache);
    else if (home && *home == '/')
        n = snprintf(folder, sizeof folder, "%s/.cache", home);
    else
        return mu_err_set(err, ENOENT, "neither " VARIABLE " nor HOME is set");
    if (n < 0 || n >= (int)sizeof folder - 8)
        return mu_err_set(err, ENAMETOOLONG, "the path of the cache is too long");
    if (folder_make(folder, err) < 0)
        return -1;
    strcat(folder, "/muster");
    if (folder_make(folder, err) < 0)
        return -1;
    snprintf(path, len, "%s/nccl-times-%08x", folder, hash_of(machine));
    return 0;
}

char *mu_times_load(const char *path, const char *machine, const struct mu_log *log)
{
    struct mu_err err = { 0 };
    struct mu_times times;
    char *text = access(path, F_OK) == 0 ? mu_text_read(path, FILE_MOST, &err) : NULL;

    if (text && mu_times_parse(&times, text, machine, path, &err) == 0)
        return text;
    if (err.text[0])
        mu_log(log, err.code == EXDEV ? MU_LOG_INFO : MU_LOG_WARN,
               "nccl: %s: the times are measured again", err.text);
    free(text);
    return NULL;
}

static int write_whole(const char *path, const char *text)
{
    int fd = mu_fresh_open(path);
    size_t len = strlen(text);
    ssize_t n = 0;

    if (fd < 0)
        return -1;
    while (len > 0 && (n = write(fd, text, len)) > 0) {
        text += n;
        len -= (size_t)n;
    }
    return close(fd) == 0 && len == 0 ? 0 : -1;
}

void mu_times_store(const char *path, const char *machine, const struct mu_times *t,
                    const struct mu_log *log)
{
    char fresh[MU_TIMES_PATH + 32], *text = mu_times_text(t, machine);

    snprintf(fresh, sizeof fresh, "%s.%d", path, (int)getpid());
    if (text && write_whole(fresh, text) == 0 && rename(fresh, path) == 0) {
        mu_log(log, MU_LOG_INFO, "nccl: the times are kept in %s", path);
    } else {
        mu_log(log, MU_LOG_INFO, "nccl: %s: the times cannot be kept: %s", path,
               strerror(errno));
        unlink(fresh);
    }
    free(text);
}
