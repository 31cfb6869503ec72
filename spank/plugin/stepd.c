/* SPDX-License-Identifier: BSD-3-Clause */
/* stepd.c - in slurmstepd: decides once per node, as the user (user_init), what Muster
 * does for this step; task_init.c applies it in each task
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spank/core/options/mem_bind.h"
#include "spank/plugin/plugin.h"

/* Takes over the binding in the batch script's environment, for sruns that cannot do it
 * (in a container without the plugin).
 */
static void take_over_batch(struct mu_state *st, spank_t sp)
{
    struct mu_takeover_change changes[MU_TAKEOVER_CHANGES];
    struct mu_takeover_buffer *buffer = calloc(1, sizeof *buffer);
    struct mu_takeover_input input = { 0 };
    struct mu_bind_request request;
    char encoded[MU_TAKEOVER_TEXT], taken[256], cpus[32];
    int n = 0;

    if (!buffer)
        return;
    mu_item_env(sp, "SLURMD_NODENAME", st->step.host, sizeof st->step.host);
    mu_item_env(sp, "SLURM_JOB_PARTITION", st->step.partition,
                sizeof st->step.partition);
    if (mu_site_load(st, st->step.partition, st->step.host, &st->site, NULL) < 0 ||
        mu_settle(st, &st->site, &st->opts, taken, sizeof taken, NULL) < 0 ||
        st->opts.mode != MU_MODE_ON || st->opts.bind != MU_BIND_AUTO ||
        st->site.installed == MU_FLAG_NO ||
        (!st->option_given && st->site.enable == MU_ENABLE_OFF))
        goto out;
    mu_step_takeover_input(sp, buffer, &input);
    mu_takeover_decide(&input, &mu_this_slurm, &request, changes, &n);
    if (mu_takeover_repeats_cpus(
            &input, mu_item_env(sp, "SLURM_CPUS_PER_TASK", cpus, sizeof cpus)))
        spank_unsetenv(sp, "SLURM_TRES_PER_TASK");
    if (n > 0 && request.gpu_bind[0]) {
        mu_takeover_encode(&request, encoded);
        spank_setenv(sp, MU_TAKEOVER_VARIABLE, encoded, 1);
        for (int i = 0; i < n; i++)
            spank_setenv(sp, changes[i].name, changes[i].value, 1);
    }
out:
    free(buffer);
}

/* Decides from site file and options what Muster does for this step. */
static int settle_step(struct mu_state *st, struct mu_err *err)
{
    char taken[256];
    bool on;

    if (mu_site_load(st, st->step.partition, st->step.host, &st->site, err) < 0 ||
        mu_settle(st, &st->site, &st->opts, taken, sizeof taken, err) < 0) {
        st->action = st->step.taken_over ? MU_ACTION_NARROW : MU_ACTION_NOTHING;
        return -1;
    }
    /* An explicit --mem-bind wins, as --cpu-bind does. */
    if (mu_mem_bind_parse(st->step.mem_bind) != MU_MEM_UNSET)
        st->opts.mem = mu_mem_bind_parse(st->step.mem_bind);
    if (taken[0])
        mu_warn(st, "this site does not allow users to set %s; its value is used",
                taken);
    if (st->opts.mode == MU_MODE_OFF)
        on = false;
    else if ((st->option_given && !st->step.request.own_option) ||
             st->site.enable == MU_ENABLE_ALL)
        on = true;
    else
        on = st->site.enable != MU_ENABLE_OFF && st->step.gpus[0];
    if (on && !(st->step.taken_over && st->opts.bind == MU_BIND_NONE))
        st->action = MU_ACTION_PLAN;
    else
        st->action = st->step.taken_over ? MU_ACTION_NARROW : MU_ACTION_NOTHING;
    return 0;
}

static void decide_role(struct mu_state *st)
{
    struct mu_role_facts facts = {
        .rdzv = st->opts.rdzv,
        .launcher = st->step.launcher,
        .pty = st->step.pty,
        .ntasks = st->step.world,
        .nnodes = st->step.world_nodes,
    };
    struct mu_cpuset gpus = { { 0 } };

    /* Without a plan, all of the step's GPUs on this node are the one task's. */
    if (st->have_plan)
        facts.gpus = st->plan.slots[0].ngpus;
    else if (mu_cpuset_parse(st->step.gpus, &gpus, NULL) == 0)
        facts.gpus = mu_cpuset_count(&gpus);
    st->role = mu_role_decide(&facts, &st->role_why);
}

/* The rendezvous needs no plan. */
static void settle_rendezvous(struct mu_state *st, spank_t sp)
{
    struct mu_err err = { 0 };

    decide_role(st);
    mu_choose_ports(st, sp);
    if (mu_decide_network(st, sp, &err) < 0)
        mu_warn(st, "network: %s", err.text);
    if (st->opts.mode != MU_MODE_ON)
        return;
    mu_leftovers_report(st, sp);
    if (st->role != MU_ROLE_NONE)
        mu_port_check(st);
}

/* Without a plan, tasks still get the rank and rendezvous variables where Muster is on,
 * unless they will fail under `strict` or share=no.
 */
static void go_without_plan(struct mu_state *st, spank_t sp, const struct mu_err *err)
{
    st->failure = *err;
    st->refused = err->code == MU_PLAN_REFUSED && st->opts.mode == MU_MODE_ON;
    if (st->opts.strict == MU_FLAG_YES || st->refused)
        return;
    if (st->action != MU_ACTION_PLAN || st->opts.mode != MU_MODE_ON ||
        st->opts.rdzv == MU_RDZV_NONE) {
        mu_warn(st, "tasks run as Slurm placed them: %s", err->text);
        return;
    }
    st->ranks_only = true;
    settle_rendezvous(st, sp);
    mu_warn(st,
            "tasks run as Slurm placed them, with the rank and rendezvous variables "
            "only: %s",
            err->text);
}

/* An unreadable site file leaves the user's options and the defaults. `strict` then
 * fails the tasks with the reason, unless Muster is off. Returns whether the step would
 * have had a plan: only then its user has something to read.
 */
static bool settle_without_site(struct mu_state *st)
{
    char taken[256];

    memset(&st->site, 0, sizeof st->site);
    if (mu_settle(st, &st->site, &st->opts, taken, sizeof taken, NULL) < 0)
        mu_opts_defaults(&st->opts);
    if (st->opts.mode == MU_MODE_OFF)
        st->opts.strict = MU_FLAG_NO;
    return st->opts.mode != MU_MODE_OFF && (st->option_given || st->step.gpus[0]);
}

static int read_step(struct mu_state *st, spank_t sp, struct mu_err *err)
{
    char served[32];

    if (mu_items_read(sp, &st->step, err) < 0)
        return -1;
    /* In every mode, also off: the outer step's ranks are never this step's. */
    mu_inherited_drop_step(sp);
    if (st->step.taken_over) {
        snprintf(served, sizeof served, "%u.%u", st->step.job, st->step.step);
        spank_setenv(sp, MU_SERVED_VARIABLE, served, 1);
    }
    return 0;
}

void mu_stepd_user_init(struct mu_state *st, spank_t sp)
{
    struct mu_err err = { 0 };
    uint32_t step = 0;

    /* Where this fails, mu_items_read asks once more, and reports it. */
    if (spank_get_item(sp, S_JOB_STEPID, &step) == ESPANK_SUCCESS &&
        step >= MU_STEP_SPECIAL) {
        if (step == MU_STEP_BATCH)
            mu_inherited_drop_job(sp);
        else
            mu_inherited_drop_step(sp);
        if (step == MU_STEP_BATCH || step == MU_STEP_INTERACTIVE)
            take_over_batch(st, sp);
        return;
    }
    if (read_step(st, sp, &err) < 0 || settle_step(st, &err) < 0) {
        bool wanted = settle_without_site(st);

        st->failure = err;
        if (wanted && st->opts.strict != MU_FLAG_YES)
            mu_warn(st, "tasks run as Slurm placed them: %s", err.text);
        return;
    }
    if (st->action == MU_ACTION_NOTHING)
        return;
    if (mu_step_plan_make(st, &err) < 0) {
        go_without_plan(st, sp, &err);
        return;
    }
    if (st->action == MU_ACTION_NARROW)
        return;
    mu_container_remember(st);
    settle_rendezvous(st, sp);
    mu_report(st);
    if (st->opts.strict == MU_FLAG_YES && !st->plan.as_asked && !st->failure.text[0])
        mu_err_set(&st->failure, EINVAL, "%s",
                   st->plan.nwarnings ? st->plan.warning[0]
                                      : "the plan differs from the request");
}

/* srun may return, and the next step may start, before slurmstepd ends. */
void mu_stepd_task_exit(struct mu_state *st)
{
    if (++st->exited == st->step.nlocal)
        mu_port_release(st);
}

void mu_stepd_exit(struct mu_state *st)
{
    mu_port_release(st);
    mu_topofile_remove(st);
    mu_plan_clear(&st->plan);
    mu_node_clear(&st->node);
    if (st->have_network)
        mu_network_clear(&st->network);
    st->have_plan = st->have_network = false;
}
