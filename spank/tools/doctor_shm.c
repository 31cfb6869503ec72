/* SPDX-License-Identifier: BSD-3-Clause */
/* doctor_shm.c - files in /dev/shm that no process uses: ended jobs left them there,
 * and they take memory until the next boot
 */
#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/parse.h"
#include "spank/tools/doctor_facts.h"

#define SHM "/dev/shm/"
#define FILES_MAX 1024

struct file {
    char name[256];
    uint64_t bytes;
    bool used;
};

struct files {
    int n;
    struct file file[FILES_MAX];
};

/* Marks the file of a path below /dev/shm, which may end in " (deleted)". */
static void mark(struct files *files, const char *path)
{
    const char *name = strstr(path, SHM);

    if (!name)
        return;
    name += strlen(SHM);
    for (int i = 0; i < files->n; i++) {
        size_t len = strlen(files->file[i].name);

        if (strncmp(name, files->file[i].name, len) == 0 &&
            (!name[len] || strchr(" \n", name[len])))
            files->file[i].used = true;
    }
}

static void mark_mapped(struct files *files, const char *pid)
{
    char path[64], *line = NULL;
    size_t room = 0;
    FILE *maps;

    snprintf(path, sizeof path, "/proc/%.20s/maps", pid);
    maps = fopen(path, "re");
    while (maps && getline(&line, &room, maps) > 0)
        mark(files, line);
    free(line);
    if (maps)
        fclose(maps);
}

static void mark_open(struct files *files, const char *pid)
{
    char path[400], target[512];
    struct dirent *entry;
    DIR *dir;

    snprintf(path, sizeof path, "/proc/%.20s/fd", pid);
    dir = opendir(path);
    while (dir && (entry = readdir(dir))) {
        ssize_t len;

        snprintf(path, sizeof path, "/proc/%.20s/fd/%s", pid, entry->d_name);
        len = readlink(path, target, sizeof target - 1);
        if (len <= 0)
            continue;
        target[len] = '\0';
        mark(files, target);
    }
    if (dir)
        closedir(dir);
}

/* The regular files of this user; root sees those of all users and all processes. */
static void list_files(struct files *files)
{
    struct dirent *entry;
    DIR *dir = opendir(SHM);

    while (dir && files->n < FILES_MAX && (entry = readdir(dir))) {
        struct file *file = &files->file[files->n];
        struct stat st;

        if (fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
            !S_ISREG(st.st_mode) || (geteuid() != 0 && st.st_uid != geteuid()))
            continue;
        *file = (struct file){ .bytes = (uint64_t)st.st_blocks * 512 };
        if (mu_copy(file->name, sizeof file->name, entry->d_name))
            files->n++;
    }
    if (dir)
        closedir(dir);
}

void mu_doctor_shm(struct mu_stale_files *stale)
{
    struct files *files = calloc(1, sizeof *files);
    struct dirent *entry;
    DIR *proc;

    *stale = (struct mu_stale_files){ 0 };
    if (files)
        list_files(files);
    proc = files && files->n ? opendir("/proc") : NULL;
    while (proc && (entry = readdir(proc)))
        if (isdigit((unsigned char)entry->d_name[0])) {
            mark_mapped(files, entry->d_name);
            mark_open(files, entry->d_name);
        }
    for (int i = 0; proc && i < files->n; i++) {
        const struct file *file = &files->file[i];

        if (file->used)
            continue;
        if (!stale->n++ || file->bytes > stale->largest) {
            stale->largest = file->bytes;
            mu_copy(stale->name, sizeof stale->name, file->name);
        }
        stale->bytes += file->bytes;
        stale->nccl += strncmp(file->name, "nccl-", 5) == 0;
    }
    if (proc)
        closedir(proc);
    free(files);
}
