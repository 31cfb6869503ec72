/* SPDX-License-Identifier: BSD-3-Clause */
/* doctor_tasks.c - what the job's other steps run on this node (case 044): their tasks
 * are the children of a slurmstepd with our job id in their environment
 */
#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/parse.h"
#include "spank/core/args.h"
#include "spank/hw/sysfile.h"
#include "spank/tools/doctor_facts.h"

#define ENVIRON_MAX (256 * 1024)
#define ARGS_MAX 64

/* The value of a variable in the text of /proc/PID/environ, NULL. */
static const char *value_of(const char *text, long len, const char *name)
{
    size_t n = strlen(name);

    for (const char *at = text; at < text + len; at += strlen(at) + 1)
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

/* Its words into argv (pointers into text); 0 when it cannot be read. */
static int read_words(const char *pid, char *text, size_t len, char **argv, int max)
{
    long n = mu_sysfile_read("", text, len, "/proc/%s/cmdline", pid);
    int argc = 0;

    for (char *at = text; n > 0 && at < text + n && argc < max; at += strlen(at) + 1)
        argv[argc++] = at;
    return argc;
}

/* Remember the task: the first one seen, or the first that is a launcher. */
static void remember(struct mu_doctor_input *in, int argc, char **argv,
                     const char *step)
{
    struct mu_facts *facts = &in->facts;
    int nproc;
    bool launcher = mu_args_launcher(argc, argv, &nproc) != MU_LAUNCHER_NONE;
    size_t at = 0;

    if (facts->command_line && strcmp(in->command_step, step) == 0)
        facts->command_tasks++;
    if (facts->command_line && (in->command_launches || !launcher))
        return;
    if (!facts->command_line || strcmp(in->command_step, step) != 0)
        facts->command_tasks = 1;
    in->command_launches = launcher;
    mu_copy(in->command_step, sizeof in->command_step, step);
    for (int i = 0; i < argc && at < sizeof in->command_line; i++)
        at += (size_t)snprintf(in->command_line + at, sizeof in->command_line - at,
                               "%s%s", i ? " " : "", argv[i]);
    facts->command_line = in->command_line;
}

static void look_at(struct mu_doctor_input *in, const char *pid, char *text)
{
    const char *job = mu_facts_env(&in->facts, "SLURM_JOB_ID");
    const char *own = mu_facts_env(&in->facts, "SLURM_STEP_ID");
    const char *their_job, *their_step;
    char step[32], words[4096], *argv[ARGS_MAX];
    int argc;
    long len;

    if (!started_by_slurmstepd(pid))
        return;
    len = mu_sysfile_read("", text, ENVIRON_MAX, "/proc/%s/environ", pid);
    if (len <= 0)
        return;
    their_job = value_of(text, len, "SLURM_JOB_ID");
    their_step = value_of(text, len, "SLURM_STEP_ID");
    if (!their_job || !their_step || strcmp(their_job, job) != 0 ||
        (own && strcmp(own, their_step) == 0) ||
        !mu_copy(step, sizeof step, their_step))
        return;
    argc = read_words(pid, words, sizeof words, argv, ARGS_MAX);
    if (argc > 0)
        remember(in, argc, argv, step);
}

void mu_doctor_tasks(struct mu_doctor_input *in)
{
    DIR *proc = mu_facts_env(&in->facts, "SLURM_JOB_ID") ? opendir("/proc") : NULL;
    char *text = malloc(ENVIRON_MAX);
    struct dirent *entry;

    while (proc && text && (entry = readdir(proc)))
        if (isdigit((unsigned char)entry->d_name[0]))
            look_at(in, entry->d_name, text);
    free(text);
    if (proc)
        closedir(proc);
}
