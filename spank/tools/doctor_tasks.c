/* SPDX-License-Identifier: BSD-3-Clause */
/* doctor_tasks.c - reads the commands and limits of the job's other steps on this node
 * (case 044), and where NCCL's RAS of each answers: their tasks are children of a
 * slurmstepd and have the job's id in their environment
 */
#include <stdio.h>
#include <string.h>

#include "runtime/base/parse.h"
#include "spank/core/slurm/command_line.h"
#include "spank/hw/live/step_tasks.h"
#include "spank/hw/io/sysfile.h"
#include "spank/tools/doctor_facts.h"

#define ARGS_MAX 64

/* Reads the arguments of a process; argv points into text. 0: it cannot be read. */
static int read_args(const char *pid, char *text, size_t len, char **argv, int max)
{
    long n = mu_sysfile_read("", text, len, "/proc/%s/cmdline", pid);
    int argc = 0;

    for (char *at = text; n > 0 && at < text + n && argc < max; at += strlen(at) + 1)
        argv[argc++] = at;
    return argc;
}

/* Keeps the first task, or the first that is a launcher. */
static void keep_task(struct mu_doctor_input *in, int argc, char **argv,
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

/* Keeps the address of each step once. */
static void keep_ras(struct mu_facts *facts, const struct mu_step_task *task)
{
    const char *addr = mu_step_task_env(task, "NCCL_RAS_ADDR");
    struct mu_ras ras;

    if (!addr || facts->nras == MU_RAS_MAX ||
        !mu_copy(ras.addr, sizeof ras.addr, addr) ||
        !mu_copy(ras.step, sizeof ras.step, task->step))
        return;
    for (int i = 0; i < facts->nras; i++)
        if (strcmp(facts->ras[i].step, ras.step) == 0)
            return;
    facts->ras[facts->nras++] = ras;
}

/* The soft limit in a line "Max locked memory  65536  65536  bytes". */
static void lower(uint64_t *limit, const char *text, const char *name)
{
    const char *line = strstr(text, name);
    unsigned long long value;

    if (line && sscanf(line + strlen(name), "%llu", &value) == 1 && value < *limit)
        *limit = value;
}

/* The doctor's own step has the limits of the shell that started it, its job's tasks
 * may have others.
 */
static void keep_limits(struct mu_limits *limits, const char *pid)
{
    char text[4096];

    if (!limits->known ||
        mu_sysfile_read("", text, sizeof text, "/proc/%s/limits", pid) < 0)
        return;
    lower(&limits->memlock, text, "Max locked memory");
    lower(&limits->addresses, text, "Max address space");
}

static void visit_task(void *arg, const struct mu_step_task *task)
{
    struct mu_doctor_input *in = arg;
    char step[32], args[4096], *argv[ARGS_MAX];
    int argc;

    keep_ras(&in->facts, task);
    if (!mu_copy(step, sizeof step, task->step))
        return;
    keep_limits(&in->facts.limits, task->pid);
    argc = read_args(task->pid, args, sizeof args, argv, ARGS_MAX);
    if (argc > 0)
        keep_task(in, argc, argv, step);
}

void mu_doctor_tasks(struct mu_doctor_input *in)
{
    const char *job = mu_facts_env(&in->facts, "SLURM_JOB_ID");

    if (job)
        mu_step_tasks(job, mu_facts_env(&in->facts, "SLURM_STEP_ID"), visit_task, in);
}
