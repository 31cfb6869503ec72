/* SPDX-License-Identifier: BSD-3-Clause */
/* monitor_job.c - from a job's id to the folders of its ledgers
 *
 * The processes of the job show them in their environment, which the kernel lets their
 * owner read. So muster monitor shows a user the jobs of that user. Root reads those of
 * all users, and any of them can put the number of a foreign job there.
 */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/parse.h"
#include "runtime/tools/monitor.h"

#define ENVIRONMENT_MOST (1 << 20)

/* The environment of a process, caller frees it; NULL: it is not ours, or has ended. */
static char *environment(const char *pid, size_t *size)
{
    char path[64], *text = malloc(ENVIRONMENT_MOST);
    FILE *f;

    snprintf(path, sizeof path, "/proc/%.20s/environ", pid);
    f = text ? fopen(path, "re") : NULL;
    if (!f) {
        free(text);
        return NULL;
    }
    *size = fread(text, 1, ENVIRONMENT_MOST - 1, f);
    text[*size] = '\0';
    fclose(f);
    return text;
}

static const char *value_of(const char *environment, size_t size, const char *name)
{
    size_t len = strlen(name);

    for (const char *at = environment; at < environment + size; at += strlen(at) + 1)
        if (strncmp(at, name, len) == 0 && at[len] == '=')
            return at + len + 1;
    return NULL;
}

/* 0: the process has ended. */
static long parent_of(long pid)
{
    char path[64], line[512] = "", *name_ends;
    long parent = 0;
    FILE *f;

    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    f = fopen(path, "re");
    if (!f)
        return 0;
    line[fread(line, 1, sizeof line - 1, f)] = '\0';
    fclose(f);
    name_ends = strrchr(line, ')');
    return name_ends && sscanf(name_ends + 1, " %*c %ld", &parent) == 1 ? parent : 0;
}

/* Is it the slurmstepd of a step of the job? It writes the step into its arguments. */
static bool is_slurmstepd(long pid, const char *job)
{
    char path[64], title[64] = "", want[64];
    struct stat st;
    FILE *f;

    snprintf(path, sizeof path, "/proc/%ld", pid);
    if (stat(path, &st) < 0 || st.st_uid != 0)
        return false;
    snprintf(path, sizeof path, "/proc/%ld/cmdline", pid);
    f = fopen(path, "re");
    if (!f)
        return false;
    title[fread(title, 1, sizeof title - 1, f)] = '\0';
    fclose(f);
    snprintf(want, sizeof want, "slurmstepd: [%.32s.", job);
    return strncmp(title, want, strlen(want)) == 0;
}

static bool is_below_slurmstepd(const char *pid, const char *job)
{
    long at = parent_of(strtol(pid, NULL, 10));

    while (at > 1 && !is_slurmstepd(at, job))
        at = parent_of(at);
    return at > 1;
}

/* The folder of a process of the job, as seen from here; NULL: it is none, or keeps no
 * ledger. Caller frees it.
 */
static char *folder_of(const char *pid, const char *job)
{
    size_t size;
    char *env = environment(pid, &size), *folder = NULL, cwd[64], where[PATH_MAX];
    const char *id = env ? value_of(env, size, "SLURM_JOB_ID") : NULL;
    const char *path = env ? value_of(env, size, "MUSTER_PROFILE") : NULL;
    ssize_t n;

    if (id && path && strcmp(id, job) == 0 &&
        (geteuid() != 0 || is_below_slurmstepd(pid, job))) {
        snprintf(cwd, sizeof cwd, "/proc/%.20s/cwd", pid);
        n = readlink(cwd, where, sizeof where - 1);
        where[n > 0 ? n : 0] = '\0';
        if (path[0] == '/')
            folder = strdup(path);
        else if (n > 0 && asprintf(&folder, "%s/%s", where, path) < 0)
            folder = NULL;
    }
    free(env);
    return folder;
}

int mu_monitor_find(const char *job, char *folder[MU_MONITOR_FOLDERS],
                    struct mu_err *err)
{
    DIR *proc = opendir("/proc");
    struct dirent *entry;
    int n = 0;

    while (proc && n < MU_MONITOR_FOLDERS && (entry = readdir(proc))) {
        char *one;
        bool twice = false;

        if (entry->d_name[strspn(entry->d_name, "0123456789")] != '\0')
            continue;
        one = folder_of(entry->d_name, job);
        for (int i = 0; one && i < n; i++)
            twice |= strcmp(folder[i], one) == 0;
        if (one && !twice)
            folder[n++] = one;
        else
            free(one);
    }
    if (proc)
        closedir(proc);
    if (n == 0)
        return mu_err_set(
            err, ENOENT,
            "job %s has no process of yours with MUSTER_PROFILE on this "
            "node; start it with --muster=profile, go to one of its nodes "
            "with srun --overlap --jobid=%s, or give the folder of its "
            "ledgers",
            job, job);
    return n;
}
