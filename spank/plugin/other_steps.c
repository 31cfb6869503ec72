/* SPDX-License-Identifier: BSD-3-Clause */
/* other_steps.c - reports what this step shares with the job's other steps on this node
 * (case 053). A step with --overlap, or started inside another step, gets that step's
 * CPUs and GPUs, which spoils measurements. Slurm does not report this; it is read from
 * the other steps' processes. So is the address of NCCL's RAS in the step whose GPUs a
 * tool shares.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/parse.h"
#include "spank/hw/live/step_tasks.h"
#include "spank/plugin/plugin.h"

#define STEPS_MAX 16

struct other {
    long step;
    struct mu_cpuset cpus;
    bool gpu[MU_GPUS_MAX]; /* [pos] */
    char ras[128];         /* NCCL_RAS_ADDR, "" none */
};

struct others {
    const struct mu_state *st;
    int n;
    struct other step[STEPS_MAX];
};

static bool listed(const char *list, const char *word)
{
    size_t n = strlen(word);

    for (const char *at = list; at && *at;
         at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (strncmp(at, word, n) == 0 && (at[n] == ',' || !at[n]))
            return true;
    return false;
}

/* Reads MUSTER_PLAN, else Slurm's GPU numbers. In a task that Slurm narrowed, these do
 * not count over the node and are ignored.
 */
static void add_gpus(const struct mu_state *st, const struct mu_step_task *task,
                     struct other *other)
{
    const char *plan = mu_step_task_env(task, "MUSTER_PLAN");
    const char *numbers = mu_step_task_env(task, "SLURM_STEP_GPUS");
    const char *visible = mu_step_task_env(task, "CUDA_VISIBLE_DEVICES");
    const char *narrowed = mu_step_task_env(task, "SLURMD_TRES_BIND");
    struct mu_alloc theirs = { 0 };
    struct mu_record record;

    if (plan && mu_record_decode(plan, &record, NULL) == 0) {
        for (int pos = 0; pos < st->alloc.ngpus; pos++)
            other->gpu[pos] |=
                listed(record.gpus, st->node.gpus[st->alloc.gpu_node[pos]].label);
        return;
    }
    if (!numbers || (narrowed && *narrowed) ||
        mu_gpus_of_step(numbers, visible ? visible : "", &st->order, &theirs, &st->node,
                        NULL) < 0)
        return;
    for (int pos = 0; pos < st->alloc.ngpus; pos++)
        for (int their_pos = 0; their_pos < theirs.ngpus; their_pos++)
            other->gpu[pos] |= theirs.gpu_node[their_pos] == st->alloc.gpu_node[pos];
}

static void add_cpus(const struct mu_step_task *task, struct other *other)
{
    struct mu_cpuset cpus;
    long pid;

    if (mu_parse_int("pid", task->pid, 1, INT32_MAX, &pid, NULL) < 0 ||
        mu_cpuset_of_process((pid_t)pid, &cpus) < 0)
        return;
    mu_cpuset_or(&other->cpus, &cpus);
}

static void visit_task(void *arg, const struct mu_step_task *task)
{
    struct others *all = arg;
    const char *host = mu_step_task_env(task, "SLURMD_NODENAME");
    long step;
    int i = 0;

    /* Two slurmd on one machine are two nodes. Batch and interactive steps own no CPUs
     * or GPUs. */
    if ((host && strcmp(host, all->st->step.host) != 0) ||
        mu_parse_int("step", task->step, 0, MU_STEP_SPECIAL - 1L, &step, NULL) < 0)
        return;
    while (i < all->n && all->step[i].step != step)
        i++;
    if (i == STEPS_MAX)
        return;
    if (i == all->n)
        all->step[all->n++].step = step;
    if (mu_step_task_env(task, "NCCL_RAS_ADDR"))
        mu_copy(all->step[i].ras, sizeof all->step[i].ras,
                mu_step_task_env(task, "NCCL_RAS_ADDR"));
    add_cpus(task, &all->step[i]);
    add_gpus(all->st, task, &all->step[i]);
}

static void print_shared(const struct mu_state *st, const struct other *other)
{
    struct mu_cpuset cpus = other->cpus;
    char list[512] = "", gpus[1024] = "";
    size_t at = 0;

    mu_cpuset_and(&cpus, &st->alloc.cpus);
    mu_cpuset_format(&cpus, list, sizeof list);
    for (int pos = 0; pos < st->alloc.ngpus && at < sizeof gpus - 80; pos++)
        if (other->gpu[pos])
            at += (size_t)snprintf(gpus + at, sizeof gpus - at, "%s%s", at ? "," : "",
                                   st->node.gpus[st->alloc.gpu_node[pos]].label);
    if (list[0] || gpus[0])
        mu_info(st,
                "this step shares %s%s%s%s%s with step %u.%ld, which also runs here",
                list[0] ? "CPUs " : "", list, list[0] && gpus[0] ? " and " : "",
                gpus[0] ? "GPUs " : "", gpus, st->step.job, other->step);
}

/* The other steps' tasks; NULL: out of memory. The caller frees it. */
static struct others *find_others(const struct mu_state *st)
{
    struct others *all = calloc(1, sizeof *all);
    char job[16], own[16];

    if (!all)
        return NULL;
    all->st = st;
    snprintf(job, sizeof job, "%u", st->step.job);
    snprintf(own, sizeof own, "%u", st->step.step);
    mu_step_tasks(job, own, visit_task, all);
    return all;
}

void mu_other_steps_report(const struct mu_state *st)
{
    struct others *all = find_others(st);

    for (int i = 0; all && i < all->n; i++)
        print_shared(st, &all->step[i]);
    free(all);
}

static bool shares_gpu(const struct mu_state *st, const struct other *other)
{
    for (int pos = 0; pos < st->alloc.ngpus; pos++)
        if (other->gpu[pos])
            return true;
    return false;
}

bool mu_other_steps_ras(const struct mu_state *st, char *addr, size_t len)
{
    /* The job's first step finds no other. */
    struct others *all = st->step.step > 0 ? find_others(st) : NULL;
    const struct other *first = NULL;
    bool found = false;

    for (int i = 0; all && i < all->n; i++)
        if (all->step[i].ras[0] && shares_gpu(st, &all->step[i]) &&
            (!first || all->step[i].step < first->step))
            first = &all->step[i];
    if (first)
        found = mu_copy(addr, len, first->ras);
    free(all);
    return found;
}
