/* SPDX-License-Identifier: BSD-3-Clause */
/* tasks.c - the ranks of this node that have a process, from /proc */
#include "runtime/boot/tasks.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/parse.h"

#define DAEMON "slurmstepd"
#define RANK "SLURM_PROCID="
#define LONGEST (4 << 20) /* bytes of an environment that are looked at */

/* The parent of a process; 0: not to be seen. */
static pid_t parent_of(const char *proc, pid_t pid)
{
    char path[PATH_MAX], text[512], *end;
    FILE *file;
    size_t n;
    int parent = 0;

    snprintf(path, sizeof path, "%s/%d/stat", proc, (int)pid);
    file = fopen(path, "re");
    if (!file)
        return 0;
    n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[n] = '\0';
    /* "PID (NAME) S PARENT ...", and a name may hold anything. */
    end = strrchr(text, ')');
    if (!end || sscanf(end + 1, " %*c %d", &parent) != 1)
        return 0;
    return parent;
}

static bool is_daemon(const char *proc, pid_t pid)
{
    char path[PATH_MAX], name[32] = "";
    FILE *file;

    snprintf(path, sizeof path, "%s/%d/comm", proc, (int)pid);
    file = fopen(path, "re");
    if (!file)
        return false;
    if (!fgets(name, sizeof name, file))
        name[0] = '\0';
    fclose(file);
    return strcmp(name, DAEMON "\n") == 0;
}

/* The daemon of the task that self belongs to; 0: none. */
static pid_t find_daemon(const char *proc, pid_t self)
{
    pid_t pid = self;

    for (int depth = 0; depth < 64; depth++) {
        pid = parent_of(proc, pid);
        if (pid <= 1)
            return 0;
        if (is_daemon(proc, pid))
            return pid;
    }
    return 0;
}

/* The rank in a process's environment; -1: unknown. */
static long rank_of(const char *proc, pid_t pid)
{
    char path[PATH_MAX], *word = NULL;
    size_t room = 0, seen = 0;
    ssize_t n;
    FILE *file;
    long rank = -1;

    snprintf(path, sizeof path, "%s/%d/environ", proc, (int)pid);
    file = fopen(path, "re");
    if (!file)
        return -1;
    while (rank < 0 && seen < LONGEST && (n = getdelim(&word, &room, '\0', file)) > 0) {
        seen += (size_t)n;
        if (strncmp(word, RANK, strlen(RANK)) == 0 &&
            mu_parse_int("", word + strlen(RANK), 0, INT_MAX, &rank, NULL) < 0)
            break;
    }
    free(word);
    fclose(file);
    return rank;
}

/* Unmark the ranks of the children that a thread of the daemon made; false: there is
 * one whose rank is unknown.
 */
static bool unmark_children(const char *proc, pid_t daemon, const char *thread,
                            int size, bool *gone)
{
    char path[PATH_MAX];
    FILE *file;
    bool known = true;
    int pid;

    snprintf(path, sizeof path, "%s/%d/task/%s/children", proc, (int)daemon, thread);
    file = fopen(path, "re");
    if (!file)
        return false;
    while (known && fscanf(file, "%d", &pid) == 1) {
        long rank = rank_of(proc, pid);

        known = rank >= 0;
        if (known && rank < size)
            gone[rank] = false;
    }
    fclose(file);
    return known;
}

static bool unmark_living(const char *proc, pid_t daemon, int size, bool *gone)
{
    char path[PATH_MAX];
    bool known = true;
    struct dirent *thread;
    DIR *dir;

    snprintf(path, sizeof path, "%s/%d/task", proc, (int)daemon);
    dir = opendir(path);
    if (!dir)
        return false;
    while (known && (thread = readdir(dir)))
        if (thread->d_name[0] != '.')
            known = unmark_children(proc, daemon, thread->d_name, size, gone);
    closedir(dir);
    return known;
}

int mu_tasks_gone(const char *proc, pid_t self, const bool *local, int size, bool *gone)
{
    pid_t daemon = find_daemon(proc, self);
    long me = rank_of(proc, self);
    int n = 0;

    memcpy(gone, local, (size_t)size * sizeof *gone);
    /* Where it does not see us it sees nothing. */
    if (daemon && me >= 0 && me < size && unmark_living(proc, daemon, size, gone) &&
        !gone[me])
        for (int r = 0; r < size; r++)
            n += gone[r];
    if (n == 0)
        memset(gone, 0, (size_t)size * sizeof *gone);
    return n;
}
