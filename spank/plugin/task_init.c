/* SPDX-License-Identifier: BSD-3-Clause */
/* task_init.c - in the task, between fork and exec: its slot of the plan is carried out
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/parse.h"
#include "spank/plugin/plugin.h"

/* The GPUs of the step that this task cannot open are hidden by a device cgroup of its
 * own. Slurm then decided which GPU it has: take the slot of the plan with that one.
 */
static const struct mu_slot *slot_of_task(const struct mu_state *st, int task,
                                          bool *hidden, struct mu_slot *own)
{
    const struct mu_slot *slot = &st->plan.slots[task];
    int open_node[MU_GPUS_MAX], n = 0;

    *hidden = false;
    for (int pos = 0; pos < st->alloc.ngpus; pos++) {
        int can = mu_gpu_open(st, st->alloc.gpu_node[pos]);

        if (can == 0)
            *hidden = true;
        else
            open_node[n++] = st->alloc.gpu_node[pos];
    }
    if (!*hidden || n == 0)
        return slot;
    if (slot->ngpus == n &&
        memcmp(slot->gpu_node, open_node, (size_t)n * sizeof open_node[0]) == 0)
        return slot;
    for (int i = 0; i < st->plan.nslots; i++)
        if (st->plan.slots[i].ngpus == n &&
            memcmp(st->plan.slots[i].gpu_node, open_node,
                   (size_t)n * sizeof open_node[0]) == 0) {
            *own = st->plan.slots[i];
            own->task = task;
            return own;
        }
    *own = *slot;
    own->ngpus = n;
    memcpy(own->gpu_node, open_node, (size_t)n * sizeof open_node[0]);
    return own;
}

static void say_hidden(const struct mu_state *st)
{
    char plus[1024];

    mu_copy(plus, sizeof plus, st->step.request.gpu_bind);
    for (char *c = plus; *c; c++)
        if (*c == ',')
            *c = '+';
    mu_warn(
        st,
        "Slurm's GPU binding %s hides the other GPUs of the step from each task, and "
        "NCCL and CUDA IPC between them fail; write instead: srun --gpu-bind=none "
        "--muster=gpu-bind=%s",
        st->step.request.gpu_bind, plus[0] ? plus : "single:1");
}

/* Case 023. Once for a job, by its first step: users cannot mend it. */
static void say_foreign(const struct mu_state *st)
{
    int n = st->step.step == 0 ? mu_gpus_foreign(st) : 0;

    if (n > 0)
        mu_warn(st,
                "this job's tasks can open %d GPU%s of the node that %s not the job's: "
                "ConstrainDevices is off in Slurm's cgroup.conf, and only "
                "CUDA_VISIBLE_DEVICES keeps jobs apart",
                n, mu_plural(n), n > 1 ? "are" : "is");
}

static int bind_task(const struct mu_state *st, const struct mu_slot *slot,
                     struct mu_err *err)
{
    if (!slot->bound || st->simulated || st->step.launcher == MU_LAUNCHER_MPI)
        return 0;
    if (mu_owned_disputed(st))
        return mu_err_set(
            err, EINVAL,
            "Slurm bound it to CPUs outside of those it told for the step; "
            "its affinity stays");
    if (mu_apply_affinity(&slot->cpus, err) < 0)
        return -1;
    if (st->opts.mem == MU_MEM_NONE)
        return 0;
    return mu_apply_memory(&slot->mems, st->opts.mem == MU_MEM_STRICT, err);
}

/* One problem of this task: an error under strict, else a warning. */
static int problem(const struct mu_state *st, int task, const struct mu_err *err)
{
    if (st->opts.strict == MU_FLAG_YES) {
        slurm_spank_log("muster: %s: error: task %d (strict): %s", st->step.host, task,
                        err->text);
        return -1;
    }
    mu_warn(st, "task %d: %s", task, err->text);
    return 0;
}

int mu_stepd_task_init(struct mu_state *st, spank_t sp)
{
    struct mu_err err = { 0 };
    const struct mu_slot *slot;
    struct mu_slot *own;
    bool hidden;
    int task = 0, rc = 0;

    if (st->failure.text[0] && st->opts.strict == MU_FLAG_YES) {
        spank_get_item(sp, S_TASK_ID, &task);
        return problem(st, task, &st->failure);
    }
    if (spank_get_item(sp, S_TASK_ID, &task) != ESPANK_SUCCESS)
        task = -1;
    if (!st->have_plan) {
        if (st->step.taken_over)
            mu_taskenv_restore(st, sp);
        if (st->ranks_only && task >= 0 && mu_taskenv_ranks(st, sp, task, &err) < 0)
            rc = problem(st, task, &err);
        return rc;
    }
    if (task < 0 || task >= st->plan.nslots)
        return 0;
    own = malloc(sizeof *own);
    if (!own)
        return 0;
    slot = slot_of_task(st, task, &hidden, own);
    if (task == 0 && st->action == MU_ACTION_PLAN)
        say_foreign(st);
    if (st->action == MU_ACTION_NARROW || st->opts.mode == MU_MODE_DRY_RUN) {
        if (st->step.taken_over && mu_taskenv_narrow(st, sp, slot, &err) < 0)
            rc = problem(st, task, &err);
        goto out;
    }
    if (hidden && task == 0)
        say_hidden(st);
    if (bind_task(st, slot, &err) < 0)
        rc = problem(st, task, &err);
    err = (struct mu_err){ 0 };
    mu_image_settle(st, sp, task);
    if (rc == 0 && mu_taskenv_write(st, sp, slot, hidden, &err) < 0)
        rc = problem(st, task, &err);
out:
    free(own);
    return rc;
}
