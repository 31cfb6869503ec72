/* SPDX-License-Identifier: BSD-3-Clause */
/* stepd.c - in slurmstepd: what Muster does for this step, decided once per node as the
 * user (user_init), carried out in each task (task_init)
 */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/parse.h"
#include "spank/core/env.h"
#include "spank/core/hostlist.h"
#include "spank/core/show.h"
#include "spank/hw/node_load.h"
#include "spank/plugin/plugin.h"

void mu_words_of_step(spank_t sp, struct mu_request_buffer *buffer,
                      struct mu_request_words *w)
{
    static const char *const names[9] = {
        "SLURM_GPU_BIND",      "SLURM_TRES_BIND",      "SLURM_GPUS_PER_TASK",
        "SLURM_TRES_PER_TASK", "SLURM_NTASKS_PER_GPU", "SLURM_GRES_FLAGS",
        "SLURM_CPU_BIND",      "SLURM_CPU_BIND_TYPE",  MU_REQUEST_VARIABLE,
    };
    const char **slots[9] = {
        &w->env_gpu_bind,      &w->env_tres_bind,      &w->env_gpus_per_task,
        &w->env_tres_per_task, &w->env_ntasks_per_gpu, &w->env_gres_flags,
        &w->env_cpu_bind,      &w->env_cpu_bind_type,  &w->env_request,
    };

    for (int i = 0; i < 9; i++)
        *slots[i] = mu_item_env(sp, names[i], buffer->text[i], sizeof buffer->text[i]);
}

/* The batch script's environment, so that the sruns in it ask Slurm for no binding even
 * where srun itself cannot (a container without the plugin).
 */
static void take_over_batch(struct mu_state *st, spank_t sp)
{
    struct mu_request_change changes[MU_REQUEST_CHANGES];
    struct mu_request_buffer *buffer = calloc(1, sizeof *buffer);
    struct mu_request_words words = { 0 };
    struct mu_request request;
    char encoded[MU_REQUEST_TEXT], taken[256];
    int n = 0;

    if (!buffer)
        return;
    mu_item_env(sp, "SLURMD_NODENAME", st->step.host, sizeof st->step.host);
    mu_item_env(sp, "SLURM_JOB_PARTITION", st->step.partition,
                sizeof st->step.partition);
    if (mu_site_load(st, st->step.partition, st->step.host, &st->site, NULL) < 0 ||
        mu_settle(st, &st->site, &st->opts, taken, sizeof taken, NULL) < 0 ||
        st->opts.mode != MU_MODE_ON || st->opts.bind != MU_BIND_AUTO ||
        (!st->option_given && st->site.enable == MU_ENABLE_OFF))
        goto out;
    mu_words_of_step(sp, buffer, &words);
    mu_request_decide(&words, &mu_this_slurm, &request, changes, &n);
    if (n > 0 && request.gpu_bind[0]) {
        mu_request_encode(&request, encoded);
        spank_setenv(sp, MU_REQUEST_VARIABLE, encoded, 1);
        for (int i = 0; i < n; i++)
            spank_setenv(sp, changes[i].name, changes[i].value, 1);
    }
out:
    free(buffer);
}

/* Site file and options for this step; what is not on after all is left alone. */
static int settle_step(struct mu_state *st, struct mu_err *err)
{
    char taken[256];
    bool on;

    if (mu_site_load(st, st->step.partition, st->step.host, &st->site, err) < 0 ||
        mu_settle(st, &st->site, &st->opts, taken, sizeof taken, err) < 0) {
        /* Without readable settings the defaults hold, the failure is told. */
        mu_opts_defaults(&st->opts);
        st->action = st->step.taken_over ? MU_ACTION_NARROW : MU_ACTION_NOTHING;
        return -1;
    }
    if (taken[0])
        mu_warn(st, "this site does not let users set %s; its own value holds", taken);
    if (st->opts.mode == MU_MODE_OFF)
        on = false;
    else if (st->option_given || st->site.enable == MU_ENABLE_ALL)
        on = true;
    else
        on = st->site.enable != MU_ENABLE_OFF && st->step.gpus[0];
    if (on && !(st->step.taken_over && st->opts.bind == MU_BIND_NONE))
        st->action = MU_ACTION_PLAN;
    else
        st->action = st->step.taken_over ? MU_ACTION_NARROW : MU_ACTION_NOTHING;
    return 0;
}

static int load_node(struct mu_state *st, struct mu_err *err)
{
    if (!st->site.topology[0]) {
        if (mu_node_load_live(&st->node, err) < 0)
            return -1;
        mu_locality_complete(st);
        return 0;
    }
    if (mu_check_owner(st->site.topology, err) < 0)
        return -1;
    return mu_node_load_file(st->site.topology, &st->node, err);
}

static int fill_alloc(struct mu_state *st, struct mu_err *err)
{
    struct mu_cpuset machine, online;

    st->alloc.ntasks = st->step.nlocal;
    st->alloc.cpus_per_task = st->step.cpus_per_task;
    if (st->step.one_thread && st->node.ncores)
        st->alloc.cpus_per_task *= st->node.cores[0].ncpus;
    mu_node_cpus(&st->node, &machine);
    mu_online_cpus(&online);
    st->simulated = st->site.topology[0] && !mu_cpuset_inside(&machine, &online);
    mu_owned_cpus(st, &machine, &st->alloc.cpus);
    return mu_gpus_of_step(st, &st->alloc, &st->node, err);
}

/* The options as the planner is to see them. */
static struct mu_opts planner_opts(const struct mu_state *st)
{
    struct mu_opts opts = st->opts;

    if (!opts.gpu_bind[0])
        mu_copy(opts.gpu_bind, sizeof opts.gpu_bind, st->step.request.gpu_bind);
    if (st->step.request.cpu_bind || st->action == MU_ACTION_NARROW)
        opts.bind = MU_BIND_NONE;
    return opts;
}

static int make_plan(struct mu_state *st, struct mu_err *err)
{
    struct mu_opts opts = planner_opts(st);

    if (load_node(st, err) < 0 || fill_alloc(st, err) < 0)
        return -1;
    if (mu_plan_make(&st->node, &st->alloc, &opts, &st->plan, err) < 0)
        return -1;
    st->have_plan = true;
    return 0;
}

struct user_lookup {
    struct mu_state *st;
    spank_t sp;
    char value[4096];
};

static int read_sysctl_range(int *first, int *last)
{
    char *text = NULL;
    int n = 0;

    if (mu_read_small("/proc/sys/net/ipv4/ip_local_port_range", 64, &text, NULL) == 0)
        n = sscanf(text, "%d %d", first, last);
    free(text);
    return n == 2 ? 0 : -1;
}

static void choose_port_range(struct mu_state *st)
{
    int eph_first = 32768, eph_last = 60999;

    st->ports_first = st->site.port_first;
    st->ports_last = st->site.port_last;
    if (st->ports_first)
        return;
    read_sysctl_range(&eph_first, &eph_last);
    if (!mu_env_port_range(eph_first, eph_last, &st->ports_first, &st->ports_last))
        st->ports_first = st->ports_last = 0;
}

static const char *users_value(void *arg, const char *name)
{
    struct user_lookup *look = arg;
    const char *value = mu_item_env(look->sp, name, look->value, sizeof look->value);

    return value && !mu_env_set_has(look->st->step.set, name, value) ? value : NULL;
}

static int decide_network(struct mu_state *st, spank_t sp, struct mu_err *err)
{
    struct user_lookup look = { .st = st, .sp = sp };
    struct mu_hostlist hosts = { 0 };
    char home[1024], conf_file[1024], tmpdir[900];
    const char *tmp = mu_item_env(sp, "TMPDIR", tmpdir, sizeof tmpdir);
    struct mu_topofile_request topo = { .st = st, .tmpdir = tmp ? tmp : "/tmp" };
    struct mu_network_request request = {
        .node = &st->node,
        .alloc = &st->alloc,
        .plan = &st->plan,
        .networks = st->site.networks,
        .exclude_hca = st->site.exclude_hca,
        .profile_dir = PROFILE_DIR,
        .site_profile_dir = "/etc/slurm/muster.d",
        .conf_file = mu_item_env(sp, "NCCL_CONF_FILE", conf_file, sizeof conf_file),
        .home = mu_item_env(sp, "HOME", home, sizeof home),
        .nccl = st->opts.nccl == MU_AUTO_AUTO && st->alloc.ngpus > 0,
        .timeout = 1.0,
        .user = users_value,
        .user_arg = &look,
        .topo = mu_topofile_prepare,
        .topo_arg = &topo,
    };
    int rc;

    if (!st->step.nodelist[0])
        return mu_err_set(err, ENOENT, "SLURM_STEP_NODELIST is not set");
    if (mu_hostlist_parse(st->step.nodelist, &hosts, err) < 0)
        return mu_err_context(err, "SLURM_STEP_NODELIST");
    request.hosts = hosts.name;
    request.nhosts = hosts.n;
    if (st->ports_first)
        request.ras_port = mu_port_hash(st->step.job, st->step.step, 0, 1,
                                        st->ports_first, st->ports_last);
    rc = mu_network_decide(&request, &st->network, err);
    st->have_network = rc == 0;
    mu_hostlist_clear(&hosts);
    return rc;
}

static void show_text(const struct mu_state *st)
{
    char *text = NULL;
    size_t len;
    FILE *out = open_memstream(&text, &len);

    if (!out)
        return;
    fprintf(out, "%s: step %u.%u, %d of %d tasks%s\n", st->step.host, st->step.job,
            st->step.step, st->step.nlocal, st->step.ntasks,
            st->opts.mode == MU_MODE_DRY_RUN ? ", dry run: nothing is changed" : "");
    if (st->simulated)
        fprintf(out, "topology=%s: a machine with other CPUs, so nothing is bound\n",
                st->site.topology);
    if (st->locality_file[0])
        fprintf(out, "the system does not say where the GPUs are; %s does\n",
                st->locality_file);
    mu_show_text(out, &st->node, &st->plan);
    for (int i = 0; i < st->plan.ninfos; i++)
        fprintf(out, "%s\n", st->plan.info[i]);
    if (st->have_network) {
        fprintf(out, "network: %s\n", st->network.choice.reason);
        mu_settings_show(out, &st->network.settings);
    }
    if (fclose(out) == 0)
        mu_say_lines(text);
    free(text);
}

/* An explicit --cpu-bind stays; tell the masks that the plan would use. */
static void show_better_masks(const struct mu_state *st)
{
    struct mu_opts opts = st->opts;
    struct mu_plan plan = { 0 };
    char text[1800] = "", mask[512];
    size_t at = 0;

    if (mu_plan_make(&st->node, &st->alloc, &opts, &plan, NULL) < 0)
        return;
    for (int i = 0; i < plan.nslots; i++) {
        char flat[512], *f = flat;

        mu_cpuset_format_mask(&plan.slots[i].cpus, mask, sizeof mask);
        for (const char *c = mask; *c; c++)
            if (*c != ',')
                *f++ = *c;
        *f = '\0';
        if (at + strlen(flat) + 4 > sizeof text)
            break;
        at +=
            (size_t)snprintf(text + at, sizeof text - at, "%s0x%s", i ? "," : "", flat);
    }
    mu_info(st,
            "--cpu-bind was given and stays; near the GPUs would be "
            "--cpu-bind=mask_cpu:%s",
            text);
    mu_plan_clear(&plan);
}

static void say_launcher(const struct mu_state *st)
{
    if (st->step.launcher == MU_LAUNCHER_MPI)
        mu_info(
            st,
            "the step runs mpirun's daemon: its ranks are not Slurm's tasks and are "
            "not placed one by one; start them with `srun --mpi=pmix` instead");
    if (st->step.launcher == MU_LAUNCHER_TORCH && st->step.nlocal > 1)
        mu_warn(
            st,
            "%d launchers%s%.0d%s on %d GPUs: a launcher makes its own ranks; run one "
            "per node (--ntasks-per-node=1)",
            st->step.nlocal, st->step.launcher_nproc ? " x " : "",
            st->step.launcher_nproc, st->step.launcher_nproc ? " processes" : "",
            st->alloc.ngpus);
}

static void report(const struct mu_state *st)
{
    bool verbose = st->opts.verbose == MU_FLAG_YES;

    for (int i = 0; i < st->plan.nwarnings; i++)
        mu_warn(st, "%s", st->plan.warning[i]);
    say_launcher(st);
    if (verbose || st->opts.mode == MU_MODE_DRY_RUN)
        show_text(st);
    if (verbose && st->step.request.cpu_bind)
        show_better_masks(st);
}

void mu_stepd_user_init(struct mu_state *st, spank_t sp)
{
    struct mu_err err = { 0 };
    uint32_t step = 0;

    if (spank_get_item(sp, S_JOB_STEPID, &step) != ESPANK_SUCCESS)
        return;
    if (step >= MU_STEP_SPECIAL) {
        if (step == MU_STEP_BATCH || step == MU_STEP_INTERACTIVE)
            take_over_batch(st, sp);
        return;
    }
    if (mu_items_read(sp, &st->step, &err) < 0 || settle_step(st, &err) < 0)
        goto failed;
    if (st->action == MU_ACTION_NOTHING)
        return;
    if (make_plan(st, &err) < 0)
        goto failed;
    if (st->action == MU_ACTION_NARROW)
        return;
    choose_port_range(st);
    if (decide_network(st, sp, &err) < 0) {
        mu_warn(st, "network: %s", err.text);
        err = (struct mu_err){ 0 };
    }
    if (st->opts.rdzv == MU_AUTO_AUTO && st->opts.mode == MU_MODE_ON)
        mu_port_check(st);
    report(st);
    if (st->opts.strict == MU_FLAG_YES && !st->plan.as_asked)
        mu_err_set(&st->failure, EINVAL, "%s",
                   st->plan.nwarnings ? st->plan.warning[0] : "not as asked");
    return;
failed:
    st->failure = err;
    if (st->opts.strict != MU_FLAG_YES)
        mu_warn(st, "tasks run as Slurm placed them: %s", err.text);
}

/* The GPUs of the step that this task cannot open are hidden by a device cgroup of its
 * own. Slurm then decided which GPU it has: take the slot of the plan with that one.
 */
static const struct mu_slot *slot_of_task(const struct mu_state *st, int task,
                                          bool *hidden, struct mu_slot *own)
{
    const struct mu_slot *slot = &st->plan.slots[task];
    int open[MU_GPUS_MAX], n = 0;

    *hidden = false;
    for (int k = 0; k < st->alloc.ngpus; k++) {
        int can = mu_gpu_open(st, st->alloc.gpu[k]);

        if (can == 0)
            *hidden = true;
        else
            open[n++] = st->alloc.gpu[k];
    }
    if (!*hidden || n == 0)
        return slot;
    if (slot->ngpus == n && memcmp(slot->gpu, open, (size_t)n * sizeof open[0]) == 0)
        return slot;
    for (int i = 0; i < st->plan.nslots; i++)
        if (st->plan.slots[i].ngpus == n &&
            memcmp(st->plan.slots[i].gpu, open, (size_t)n * sizeof open[0]) == 0) {
            *own = st->plan.slots[i];
            own->task = task;
            return own;
        }
    *own = *slot;
    own->ngpus = n;
    memcpy(own->gpu, open, (size_t)n * sizeof open[0]);
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
    if (!st->have_plan) {
        if (st->step.taken_over)
            mu_taskenv_restore(st, sp);
        return 0;
    }
    if (spank_get_item(sp, S_TASK_ID, &task) != ESPANK_SUCCESS || task < 0 ||
        task >= st->plan.nslots)
        return 0;
    own = malloc(sizeof *own);
    if (!own)
        return 0;
    slot = slot_of_task(st, task, &hidden, own);
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
    if (rc == 0 && mu_taskenv_write(st, sp, slot, hidden, &err) < 0)
        rc = problem(st, task, &err);
out:
    free(own);
    return rc;
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
