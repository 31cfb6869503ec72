/* SPDX-License-Identifier: BSD-3-Clause */
#include "runtime/checkpoint/ckfolder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/parse.h"

#define STEP_FORMAT "%012llu"

enum kind { OTHER, CHECKPOINT, SHARD, TEMPORARY };

int mu_ckfolder_make(const char *folder, struct mu_err *err)
{
    char path[PATH_MAX];

    if (!*folder || !mu_copy(path, sizeof path, folder))
        return mu_err_set(err, ENAMETOOLONG, "checkpoint folder '%s': not a path",
                          folder);
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(path, 0777) < 0 && errno != EEXIST && access(path, F_OK) < 0)
            return mu_err_set(err, errno, "folder %s cannot be created: %s", path,
                              strerror(errno));
        *slash = '/';
    }
    if (mkdir(path, 0777) < 0 && errno != EEXIST)
        return mu_err_set(err, errno, "folder %s cannot be created: %s", path,
                          strerror(errno));
    return 0;
}

static int mark_path(const char *folder, const char *name, uint64_t mark, char *buf,
                     size_t len)
{
    return snprintf(buf, len, "%s/%s-" STEP_FORMAT ".muster.%016llx.tmp", folder, name,
                    0ULL, (unsigned long long)mark) < (int)len;
}

bool mu_ckfolder_mark_set(const char *folder, const char *name, uint64_t mark)
{
    char path[PATH_MAX];
    bool written;
    int fd;

    if (!mark_path(folder, name, mark, path, sizeof path))
        return false;
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return false;
    written = write(fd, &mark, sizeof mark) == sizeof mark && fsync(fd) == 0;
    if (close(fd) == 0 && written)
        return true;
    unlink(path);
    return false;
}

bool mu_ckfolder_mark_is_set(const char *folder, const char *name, uint64_t mark)
{
    char path[PATH_MAX];
    uint64_t found = 0;
    bool same;
    int fd;

    if (!mark_path(folder, name, mark, path, sizeof path))
        return false;
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    same = fd >= 0 && read(fd, &found, sizeof found) == sizeof found && found == mark;
    if (fd >= 0)
        close(fd);
    return same;
}

void mu_ckfolder_mark_clear(const char *folder, const char *name, uint64_t mark)
{
    char path[PATH_MAX];

    if (mark_path(folder, name, mark, path, sizeof path))
        unlink(path);
}

int mu_ckfolder_path(const char *folder, const char *name, uint64_t step, char *buf,
                     size_t len)
{
    return snprintf(buf, len, "%s/%s-" STEP_FORMAT ".muster", folder, name,
                    (unsigned long long)step) < (int)len;
}

int mu_ckfolder_shard(const char *folder, const char *name, uint64_t step,
                      uint32_t shard, uint32_t nshards, char *buf, size_t len)
{
    return snprintf(buf, len, "%s/%s-" STEP_FORMAT ".%04u-of-%04u.shard", folder, name,
                    (unsigned long long)step, shard, nshards) < (int)len;
}

/* Which kind of file this is, among the checkpoints with the name `name`. */
static enum kind classify(const char *file, const char *name, uint64_t *step)
{
    size_t n = strlen(name), digits, len = strlen(file);
    const char *rest;
    unsigned shard, nshards;
    int end = 0;

    if (strncmp(file, name, n) != 0 || file[n] != '-')
        return OTHER;
    file += n + 1;
    digits = strspn(file, "0123456789");
    if (digits < 12 || digits > 20)
        return OTHER;
    errno = 0;
    *step = strtoull(file, NULL, 10);
    if (errno)
        return OTHER;
    rest = file + digits;
    if (strcmp(rest, ".muster") == 0)
        return CHECKPOINT;
    if (len > 4 && strcmp(file + strlen(file) - 4, ".tmp") == 0 &&
        (strncmp(rest, ".muster.", 8) == 0 || strstr(rest, ".shard.")))
        return TEMPORARY;
    if (sscanf(rest, ".%4u-of-%4u.shard%n", &shard, &nshards, &end) == 2 && end > 0 &&
        rest[end] == '\0')
        return SHARD;
    return OTHER;
}

bool mu_ckfolder_split(const char *path, char *folder, size_t folder_len, char *name,
                       size_t name_len, uint64_t *step)
{
    const char *slash = strrchr(path, '/'), *file = slash ? slash + 1 : path;
    const char *dash = strrchr(file, '-');

    if (!dash ||
        snprintf(name, name_len, "%.*s", (int)(dash - file), file) >= (int)name_len)
        return false;
    if (snprintf(folder, folder_len, "%.*s", slash ? (int)(slash - path) : 1,
                 slash ? path : ".") >= (int)folder_len)
        return false;
    return classify(file, name, step) == CHECKPOINT;
}

static int newest_first(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? 1 : x > y ? -1 : 0;
}

int mu_ckfolder_list(const char *folder, const char *name, uint64_t **steps,
                     struct mu_err *err)
{
    DIR *dir = opendir(folder);
    struct dirent *entry;
    uint64_t *list = NULL, step;
    int n = 0;

    if (!dir)
        return mu_err_set(err, errno, "folder %s cannot be read: %s", folder,
                          strerror(errno));
    while ((entry = readdir(dir))) {
        if (classify(entry->d_name, name, &step) != CHECKPOINT)
            continue;
        if ((n & (n - 1)) == 0) { /* room doubles at each power of two */
            uint64_t *more = realloc(list, (n ? 2 * (size_t)n : 1) * sizeof *list);

            if (!more) {
                free(list);
                closedir(dir);
                return mu_err_set(err, ENOMEM, "no memory to list folder %s", folder);
            }
            list = more;
        }
        list[n++] = step;
    }
    closedir(dir);
    if (n > 0)
        qsort(list, (size_t)n, sizeof *list, newest_first);
    *steps = list;
    return n;
}

static void drop(const char *folder, const char *file, const char *why,
                 const struct mu_log *log)
{
    char path[PATH_MAX];

    if (snprintf(path, sizeof path, "%s/%s", folder, file) >= (int)sizeof path)
        return;
    if (unlink(path) < 0 && errno != ENOENT)
        mu_log(log, MU_LOG_WARN, "checkpoint: %s cannot be removed: %s", path,
               strerror(errno));
    else if (why)
        mu_log(log, MU_LOG_WARN, "checkpoint: removed %s, %s", path, why);
}

void mu_ckfolder_sweep(const char *folder, const char *name, const struct mu_log *log)
{
    DIR *dir = opendir(folder);
    struct dirent *entry;
    char record[PATH_MAX];
    uint64_t step;

    if (!dir)
        return;
    while ((entry = readdir(dir))) {
        switch (classify(entry->d_name, name, &step)) {
        case TEMPORARY:
            drop(folder, entry->d_name, "a file that a run left incomplete", log);
            break;
        case SHARD:
            if (mu_ckfolder_path(folder, name, step, record, sizeof record) &&
                access(record, F_OK) < 0)
                drop(folder, entry->d_name, "a shard of no checkpoint", log);
            break;
        default:
            break;
        }
    }
    closedir(dir);
}

static void drop_shards(const char *folder, const char *name, uint64_t step,
                        const struct mu_log *log)
{
    DIR *dir = opendir(folder);
    struct dirent *entry;
    uint64_t at;

    while (dir && (entry = readdir(dir)))
        if (classify(entry->d_name, name, &at) == SHARD && at == step)
            drop(folder, entry->d_name, NULL, log);
    if (dir)
        closedir(dir);
}

void mu_ckfolder_prune(const char *folder, const char *name, uint64_t last, int keep,
                       const struct mu_log *log)
{
    uint64_t *steps = NULL;
    int n = keep < 0 ? 0 : mu_ckfolder_list(folder, name, &steps, NULL);
    char path[PATH_MAX];

    for (int i = 0; i < n; i++) {
        if (steps[i] > last || keep-- > 0)
            continue;
        if (!mu_ckfolder_path(folder, name, steps[i], path, sizeof path))
            continue;
        drop(folder, strrchr(path, '/') + 1, NULL, log);
        drop_shards(folder, name, steps[i], log);
    }
    free(steps);
}

void mu_ckfolder_latest(const char *folder, const char *name, uint64_t step)
{
    char target[PATH_MAX], link[PATH_MAX], temporary[PATH_MAX];

    if (!mu_ckfolder_path(folder, name, step, target, sizeof target) ||
        snprintf(link, sizeof link, "%s/%s-latest.muster", folder, name) >=
            (int)sizeof link ||
        snprintf(temporary, sizeof temporary, "%s/%s-latest.tmp", folder, name) >=
            (int)sizeof temporary)
        return;
    unlink(temporary);
    if (symlink(strrchr(target, '/') + 1, temporary) < 0 || rename(temporary, link) < 0)
        unlink(temporary);
}
