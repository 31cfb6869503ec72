/* SPDX-License-Identifier: BSD-3-Clause */
#include "spank/hw/live/step_tasks.h"

#include <ctype.h>
#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spank/hw/io/sysfile.h"

#define ENVIRON_MAX (256 * 1024)

const char *mu_step_task_env(const struct mu_step_task *task, const char *name)
{
    size_t n = strlen(name);

    for (const char *at = task->environ; at < task->environ + task->len;
         at += strlen(at) + 1)
        if (strncmp(at, name, n) == 0 && at[n] == '=')
            return at + n + 1;
    return NULL;
}

static bool started_by_slurmstepd(const char *pid)
{
    char stat[512], comm[32];
    const char *close;
    long parent;

    if (mu_sysfile_read("", stat, sizeof stat, "/proc/%s/stat", pid) < 0 ||
        !(close = strrchr(stat, ')')) || sscanf(close + 1, " %*c %ld", &parent) != 1)
        return false;
    return mu_sysfile_read("", comm, sizeof comm, "/proc/%ld/comm", parent) > 0 &&
           strncmp(comm, "slurmstepd", 10) == 0;
}

void mu_step_tasks(const char *job, const char *own,
                   void (*seen)(void *arg, const struct mu_step_task *task), void *arg)
{
    DIR *proc = opendir("/proc");
    char *text = malloc(ENVIRON_MAX);
    struct dirent *entry;

    while (proc && text && (entry = readdir(proc))) {
        struct mu_step_task task = { .pid = entry->d_name, .environ = text };
        const char *their_job;

        if (!isdigit((unsigned char)task.pid[0]) || !started_by_slurmstepd(task.pid))
            continue;
        task.len = mu_sysfile_read("", text, ENVIRON_MAX, "/proc/%s/environ", task.pid);
        their_job = mu_step_task_env(&task, "SLURM_JOB_ID");
        task.step = mu_step_task_env(&task, "SLURM_STEP_ID");
        if (their_job && task.step && strcmp(their_job, job) == 0 &&
            (!own || strcmp(task.step, own) != 0))
            seen(arg, &task);
    }
    free(text);
    if (proc)
        closedir(proc);
}
