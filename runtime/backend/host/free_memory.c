/* SPDX-License-Identifier: BSD-3-Clause */
/* free_memory.c - see free_memory.h. Slurm limits a step by nested cgroups of version 1
 * or 2; containers mount a part of the tree. So the mounts are read, and every folder
 * from the process's own cgroup up to the mount counts.
 */
#include "runtime/backend/host/free_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/parse.h"
#include "runtime/muster.h"

#define TEXT 65536

/* The files of a cgroup, by version. */
static const struct version {
    const char *limit, *usage, *cache[2]; /* cache: lines of memory.stat */
} versions[] = {
    { "memory.limit_in_bytes",
      "memory.usage_in_bytes",
      { "total_inactive_file ", "total_active_file " } },
    { "memory.max", "memory.current", { "inactive_file ", "active_file " } },
};

/* A mounted tree of cgroups that limits memory. */
struct tree {
    const struct version *version;
    char mount[PATH_MAX], root[PATH_MAX]; /* root: the cgroup that is mounted there */
};

static bool read_file(const char *root, const char *folder, const char *name,
                      char *text, size_t len)
{
    char path[3 * PATH_MAX];
    size_t at = 0;
    ssize_t n = 0;
    int fd;

    snprintf(path, sizeof path, "%s%s/%s", root, folder, name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    while (at < len - 1 && (n = read(fd, text + at, len - 1 - at)) > 0)
        at += (size_t)n;
    close(fd);
    text[at] = '\0';
    return n >= 0 && at > 0;
}

/* The number behind `key` at the beginning of a line; 0 where there is none. */
static uint64_t number_behind(const char *text, const char *key)
{
    for (const char *line = text; line && *line;) {
        if (strncmp(line, key, strlen(key)) == 0)
            return strtoull(line + strlen(key), NULL, 10);
        line = strchr(line, '\n');
        line = line ? line + 1 : NULL;
    }
    return 0;
}

static bool has_word(const char *list, const char *word)
{
    size_t n = strlen(word);

    for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (strncmp(at, word, n) == 0 && (at[n] == ',' || at[n] == '\0'))
            return true;
    return false;
}

/* "ID PARENT DEVICE ROOT MOUNT OPTIONS... - TYPE SOURCE SUPER-OPTIONS" */
static bool tree_of_line(char *line, struct tree *tree)
{
    char type[64], super[1024], *dash = strstr(line, " - ");

    if (!dash || sscanf(dash, " - %63s %*s %1023s", type, super) != 2 ||
        sscanf(line, "%*s %*s %*s %4095s %4095s", tree->root, tree->mount) != 2)
        return false;
    if (strcmp(type, "cgroup2") == 0)
        tree->version = &versions[1];
    else if (strcmp(type, "cgroup") == 0 && has_word(super, "memory"))
        tree->version = &versions[0];
    else
        return false;
    return true;
}

/* The process's cgroup in that tree, from "0::PATH" or "N:...,memory,...:PATH". */
static bool own_cgroup(char *text, const struct tree *tree, char *path, size_t len)
{
    char *rest = text, *line;

    while ((line = mu_parse_next(&rest, '\n'))) {
        char *names = strchr(line, ':'), *at = names ? strchr(names + 1, ':') : NULL;

        if (!at)
            continue;
        *at++ = '\0';
        if (tree->version == &versions[1] ? names[1] == '\0'
                                          : has_word(names + 1, "memory"))
            return mu_copy(path, len, at);
    }
    return false;
}

static void limit(struct mu_free_memory *out, uint64_t bytes, const char *folder,
                  const struct version *version, uint64_t max, uint64_t used)
{
    if (bytes >= out->bytes)
        return;
    out->bytes = bytes;
    snprintf(out->limit_by, sizeof out->limit_by,
             "the memory limit of the job leaves %" PRIu64 " (%.300s: %s %" PRIu64
             ", used %" PRIu64 ")",
             bytes, folder, version->limit, max, used);
}

/* On the heap: a process at its limit cannot enlarge its stack, and would be killed. */
struct scratch {
    char text[TEXT], mounts[TEXT], own[TEXT];
};

/* One cgroup. Without a limit the file has "max" or, in version 1, a number beyond any
 * machine.
 */
static void add_cgroup(const char *root, const struct version *v, const char *folder,
                       struct scratch *scratch, struct mu_free_memory *out)
{
    char *text = scratch->text;
    uint64_t max, used, cache = 0;

    if (!read_file(root, folder, v->limit, text, TEXT) || text[0] < '0' ||
        text[0] > '9')
        return;
    max = strtoull(text, NULL, 10);
    if (max >= INT64_MAX / 2 || !read_file(root, folder, v->usage, text, TEXT))
        return;
    used = strtoull(text, NULL, 10);
    if (read_file(root, folder, "memory.stat", text, TEXT))
        cache = number_behind(text, v->cache[0]) + number_behind(text, v->cache[1]);
    used -= cache < used ? cache : used;
    limit(out, used < max ? max - used : 0, folder, v, max, used);
}

static void add_tree(const char *root, const struct tree *tree, const char *cgroup,
                     struct scratch *scratch, struct mu_free_memory *out)
{
    size_t skip = strcmp(tree->root, "/") == 0 ? 0 : strlen(tree->root), mount;
    char folder[2 * PATH_MAX];

    /* A path outside of what is mounted here: the mount itself is the nearest above. */
    if (strncmp(cgroup, tree->root, skip) != 0)
        cgroup = "";
    else
        cgroup += skip;
    mount = strlen(tree->mount);
    snprintf(folder, sizeof folder, "%s%s", tree->mount, cgroup);
    for (;;) {
        char *slash = strrchr(folder, '/');

        add_cgroup(root, tree->version, folder, scratch, out);
        if (strlen(folder) <= mount || !slash || slash < folder + mount)
            return;
        *slash = '\0';
    }
}

static void add_cgroups(const char *root, struct scratch *scratch,
                        struct mu_free_memory *out)
{
    char cgroup[PATH_MAX], *rest = scratch->mounts, *line;
    struct tree tree;

    if (!read_file(root, "/proc/self", "mountinfo", scratch->mounts, TEXT))
        return;
    while ((line = mu_parse_next(&rest, '\n')))
        if (tree_of_line(line, &tree) &&
            read_file(root, "/proc/self", "cgroup", scratch->own, TEXT) &&
            own_cgroup(scratch->own, &tree, cgroup, sizeof cgroup))
            add_tree(root, &tree, cgroup, scratch, out);
}

void mu_free_memory(const char *root, struct mu_free_memory *out)
{
    struct scratch *scratch = malloc(sizeof *scratch);
    uint64_t kib;

    *out = (struct mu_free_memory){ .bytes = UINT64_MAX };
    if (!scratch)
        return;
    if (read_file(root, "/proc", "meminfo", scratch->text, TEXT) &&
        (kib = number_behind(scratch->text, "MemAvailable:")) > 0) {
        out->bytes = kib * 1024;
        snprintf(out->limit_by, sizeof out->limit_by,
                 "this node has %" PRIu64 " left (MemAvailable)", out->bytes);
    }
    add_cgroups(root, scratch, out);
    free(scratch);
}

int mu_free_memory_check(uint64_t bytes, uint64_t *left, struct mu_err *err)
{
    struct mu_free_memory memory;

    mu_free_memory("", &memory);
    if (bytes > memory.bytes)
        return mu_err_set(err, MUSTER_EMEMORY, "cannot reserve %" PRIu64 " bytes: %s",
                          bytes, memory.limit_by);
    if (left)
        *left = memory.bytes;
    return 0;
}
