/* SPDX-License-Identifier: BSD-3-Clause */
/* task_init.c - in the task, between fork and exec: applies the task's slot of the plan
 */
#include <errno.h>
#include <string.h>

#include "runtime/base/parse.h"
#include "spank/hw/live/apply.h"
#include "spank/plugin/plugin.h"

static bool has_gpus(const struct mu_slot *slot, const int *gpu_node, int n)
{
    return slot->ngpus == n &&
           memcmp(slot->gpu_node, gpu_node, (size_t)n * sizeof gpu_node[0]) == 0;
}

/* If the task cannot open some GPUs of the step, Slurm gave the task its own device
 * cgroup and so decided its GPUs: take the slot of the plan with these.
 */
static void slot_of_task(const struct mu_state *st, int task, struct mu_slot *slot,
                         bool *hidden)
{
    int open_node[MU_GPUS_MAX], n = 0;

    *slot = st->plan.slots[task];
    *hidden = false;
    for (int pos = 0; pos < st->alloc.ngpus; pos++) {
        if (mu_gpu_open(st, st->alloc.gpu_node[pos]) == 0)
            *hidden = true;
        else
            open_node[n++] = st->alloc.gpu_node[pos];
    }
    if (!*hidden || n == 0 || has_gpus(slot, open_node, n))
        return;
    for (int i = 0; i < st->plan.nslots; i++)
        if (has_gpus(&st->plan.slots[i], open_node, n)) {
            *slot = st->plan.slots[i];
            slot->task = task;
            return;
        }
    slot->ngpus = n;
    memcpy(slot->gpu_node, open_node, (size_t)n * sizeof open_node[0]);
}

static void warn_hidden_gpus(const struct mu_state *st)
{
    char plus[1024];

    mu_copy(plus, sizeof plus, st->step.request.gpu_bind);
    for (char *c = plus; *c; c++)
        if (*c == ',')
            *c = '+';
    mu_warn(
        st,
        "Slurm's GPU binding %s hides the step's other GPUs from each task, so that "
        "NCCL and CUDA IPC between them fail; write instead: srun --gpu-bind=none "
        "--muster=gpu-bind=%s",
        st->step.request.gpu_bind, plus[0] ? plus : "single:1");
}

/* Case 023. Warn once per job: only an administrator can fix ConstrainDevices. */
static void warn_foreign_gpus(const struct mu_state *st)
{
    int n = st->step.step == 0 ? mu_gpus_foreign(st) : 0;

    if (n > 0)
        mu_warn(st,
                "this job's tasks can open %d GPU%s of the node that %s not the job's: "
                "ConstrainDevices is off in Slurm's cgroup.conf, and only "
                "CUDA_VISIBLE_DEVICES separates jobs",
                n, mu_plural(n), n > 1 ? "are" : "is");
}

static int disputed_cpus(const struct mu_state *st, struct mu_err *err)
{
    struct mu_cpuset now = { { 0 } };
    char has[256], step[256];

    mu_cpuset_of_process(0, &now);
    mu_cpuset_format(&now, has, sizeof has);
    mu_cpuset_format(&st->alloc.cpus, step, sizeof step);
    return mu_err_set(
        err, EINVAL,
        "Slurm bound this task outside the step's CPUs (has %s, step %s); "
        "affinity left as it is",
        has, step);
}

static int bind_task(const struct mu_state *st, const struct mu_slot *slot,
                     struct mu_bound *bound, struct mu_err *err)
{
    if (!slot->bound || st->simulated || st->step.launcher == MU_LAUNCHER_MPI)
        return 0;
    if (mu_step_cpus_disputed(st))
        return disputed_cpus(st, err);
    if (mu_apply_affinity(&slot->cpus, &bound->cpus, err) < 0)
        return -1;
    if (st->opts.mem == MU_MEM_NONE)
        return 0;
    if (mu_apply_memory(&slot->mems, st->opts.mem == MU_MEM_STRICT, err) < 0)
        return -1;
    bound->mems = slot->mems;
    return 0;
}

/* The task's number in the step, with that on this node where they differ. */
static void name_task(spank_t sp, int task, char *buf, size_t len)
{
    uint32_t global;

    if (spank_get_item(sp, S_TASK_GLOBAL_ID, &global) != ESPANK_SUCCESS ||
        global == (uint32_t)task)
        snprintf(buf, len, "task %d", task);
    else
        snprintf(buf, len, "task %u (%d on this node)", global, task);
}

/* Reports a problem of this task: an error under strict and where the options refuse
 * the step, else a warning.
 */
static int problem(const struct mu_state *st, spank_t sp, int task,
                   const struct mu_err *err)
{
    bool strict = st->opts.strict == MU_FLAG_YES;
    char name[64];

    name_task(sp, task, name, sizeof name);
    if (strict || st->refused) {
        mu_error(st, "%s%s: %s", name, strict ? " (strict)" : "", err->text);
        return -1;
    }
    mu_warn(st, "%s: %s", name, err->text);
    return 0;
}

/* The task's number on this node, -1 unknown. */
static int number_of_task(spank_t sp)
{
    int task = 0;

    return spank_get_item(sp, S_TASK_ID, &task) == ESPANK_SUCCESS ? task : -1;
}

static int run_without_plan(const struct mu_state *st, spank_t sp, int task)
{
    struct mu_err err = { 0 };

    if (st->step.taken_over)
        mu_taskenv_restore(st, sp);
    if (st->ranks_only && task >= 0 && mu_taskenv_ranks(st, sp, task, &err) < 0)
        return problem(st, sp, task, &err);
    return 0;
}

/* Muster is off or only prints its plan: the task sees the GPUs that Slurm's binding,
 * taken over by srun, would have shown.
 */
static int run_narrowed(const struct mu_state *st, spank_t sp,
                        const struct mu_slot *slot)
{
    struct mu_err err = { 0 };

    if (st->step.taken_over && mu_taskenv_narrow(st, sp, slot, &err) < 0)
        return problem(st, sp, slot->task, &err);
    return 0;
}

static int run_in_slot(struct mu_state *st, spank_t sp, const struct mu_slot *slot,
                       bool hidden)
{
    struct mu_bound bound = { 0 };
    struct mu_err err = { 0 };
    int rc = 0;

    if (bind_task(st, slot, &bound, &err) < 0)
        rc = problem(st, sp, slot->task, &err);
    err = (struct mu_err){ 0 };
    mu_container_settle(st, sp, slot->task);
    mu_topofile_settle(st, sp, slot->task);
    if (rc == 0 && mu_taskenv_write(st, sp, slot, &bound, hidden, &err) < 0)
        rc = problem(st, sp, slot->task, &err);
    return rc;
}

int mu_stepd_task_init(struct mu_state *st, spank_t sp)
{
    int task = number_of_task(sp);
    struct mu_slot slot;
    bool hidden;

    if (st->failure.text[0] && (st->opts.strict == MU_FLAG_YES || st->refused))
        return problem(st, sp, task < 0 ? 0 : task, &st->failure);
    if (!st->have_plan)
        return run_without_plan(st, sp, task);
    if (task < 0 || task >= st->plan.nslots)
        return 0;
    slot_of_task(st, task, &slot, &hidden);
    if (task == 0 && st->action == MU_ACTION_PLAN)
        warn_foreign_gpus(st);
    if (st->action == MU_ACTION_NARROW || st->opts.mode == MU_MODE_DRY_RUN)
        return run_narrowed(st, sp, &slot);
    if (task == 0 && hidden)
        warn_hidden_gpus(st);
    return run_in_slot(st, sp, &slot, hidden);
}
