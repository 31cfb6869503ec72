/* SPDX-License-Identifier: BSD-3-Clause */
/* srun.c - runs in srun, sbatch and salloc as the user: checks the option, takes over a
 * GPU binding before srun reads it, and warns of variables left by an outer step
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/parse.h"
#include "spank/core/env/task_env.h"
#include "spank/hw/io/words.h"
#include "spank/plugin/plugin.h"

int mu_srun_check(const struct mu_state *st)
{
    struct mu_opts opts = { 0 };
    struct mu_err err = { 0 };

    if (st->option_too_long) {
        slurm_error("muster: --muster takes at most %d characters", MU_OPTION_TEXT - 1);
        return -1;
    }
    if (mu_opts_parse(st->option, &opts, &err) < 0) {
        slurm_error("muster: %s", err.text);
        return -1;
    }
    return 0;
}

/* The shell of a job has its list of nodes, too; one of several parts has their number.
 */
static bool is_foreign(const char *job)
{
    const char *own = getenv("SLURM_JOB_ID");

    if (own && (getenv("SLURM_JOB_NODELIST") || getenv("SLURM_HET_SIZE")))
        return job && strcmp(job, own) != 0;
    return job || own;
}

void mu_srun_takeover_input(int argc, char *const *argv, struct mu_takeover_input *in)
{
    in->gpu_bind = mu_args_srun(argc, argv, "gpu-bind", 5);
    in->tres_bind = mu_args_srun(argc, argv, "tres-bind", 6);
    in->gpus_per_task = mu_args_srun(argc, argv, "gpus-per-task", 10);
    in->tres_per_task = mu_args_srun(argc, argv, "tres-per-task", 6);
    in->ntasks_per_gpu = mu_args_srun(argc, argv, "ntasks-per-gpu", 12);
    in->gres = mu_args_srun(argc, argv, "gres", 4);
    in->gres_flags = mu_args_srun(argc, argv, "gres-flags", 5);
    in->cpu_bind = mu_args_srun(argc, argv, "cpu-bind", 5);
    in->env_gpu_bind = getenv("SLURM_GPU_BIND");
    in->env_tres_bind = getenv("SLURM_TRES_BIND");
    in->env_gpus_per_task = getenv("SLURM_GPUS_PER_TASK");
    in->env_tres_per_task = getenv("SLURM_TRES_PER_TASK");
    in->env_ntasks_per_gpu = getenv("SLURM_NTASKS_PER_GPU");
    in->env_gres_flags = getenv("SLURM_GRES_FLAGS");
    in->env_cpu_bind = getenv("SLURM_CPU_BIND");
    in->env_cpu_bind_type = getenv("SLURM_CPU_BIND_TYPE");
    in->env_gres = getenv("SLURM_STEP_GRES");
    if (!in->env_gres)
        in->env_gres = getenv("SLURM_GRES");
    in->env_shards = getenv("SLURM_SHARDS_ON_NODE");
    if (!in->env_shards)
        in->env_shards = getenv(MU_PARTS_VARIABLE);
    in->env_mps = getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
    in->env_request = getenv(MU_TAKEOVER_VARIABLE);
    in->foreign_job = is_foreign(mu_args_srun(argc, argv, "jobid", 4));
}

void mu_srun_mark_parts(void)
{
    struct mu_takeover_input in = { .env_gres = getenv("SALLOC_GRES") };
    struct mu_words line = { 0 };

    mu_words_read("/proc/self/cmdline", &line, NULL);
    in.gres = mu_args_srun(line.n, line.word, "gres", 4);
    in.tres_per_task = mu_args_srun(line.n, line.word, "tres-per-task", 6);
    if (mu_takeover_asks_for_parts(&in))
        setenv(MU_PARTS_VARIABLE, "yes", 1);
    else
        unsetenv(MU_PARTS_VARIABLE);
    mu_words_clear(&line);
}

/* Finds the text of --muster, which srun has not parsed yet: on the command line, else
 * in the variables of sbatch or of an outer srun.
 */
static void find_option(struct mu_state *st, int argc, char **argv)
{
    static const char *const names[] = {
        "_SLURM_SPANK_OPTION_muster_muster",
        "SLURM_SPANK__SLURM_SPANK_OPTION_muster_muster"
    };
    const char *text = mu_args_srun(argc, argv, "muster", 6);

    for (int i = 0; i < 2 && !text; i++)
        text = getenv(names[i]);
    if (text) {
        st->option_given = true;
        st->option_too_long = !mu_copy(st->option, sizeof st->option, text);
    }
}

/* The partition of the step: of the job, else the first that srun asks for. */
static void find_partition(struct mu_state *st, int argc, char **argv)
{
    const char *text = getenv("SLURM_JOB_PARTITION");

    if (!text)
        text = mu_args_srun_letter(argc, argv, "partition", 2, 'p');
    if (!text)
        text = getenv("SLURM_PARTITION");
    if (mu_copy(st->step.partition, sizeof st->step.partition, text ? text : ""))
        st->step.partition[strcspn(st->step.partition, ",")] = '\0';
}

/* Is Muster on, wherever the plugin is installed? */
static bool is_wanted(const struct mu_state *st, const struct mu_site_keys *site)
{
    struct mu_opts opts;
    char taken[256];

    return mu_settle(st, site, &opts, taken, sizeof taken, NULL) == 0 &&
           opts.mode == MU_MODE_ON && opts.bind == MU_BIND_AUTO &&
           (st->option_given || site->enable != MU_ENABLE_OFF);
}

bool mu_srun_is_on(const struct mu_state *st, const struct mu_site_keys *site)
{
    return site->installed != MU_FLAG_NO && is_wanted(st, site);
}

/* Will the plugin be on in the step? A wrong guess is harmless: a binding that was
 * taken over is then done by CUDA_VISIBLE_DEVICES, any other by Slurm.
 */
static bool will_be_on(const struct mu_state *st)
{
    struct mu_site_keys *site = malloc(sizeof *site);
    bool on;

    if (!site || st->arguments.code) {
        free(site);
        return false;
    }
    /* A login node may have another site file, or none: the step's node decides. */
    if (mu_site_load(st, st->step.partition, NULL, site, NULL) < 0)
        memset(site, 0, sizeof *site);
    on = mu_srun_is_on(st, site);
    if (st->option_given && site->installed == MU_FLAG_NO && is_wanted(st, site))
        slurm_spank_log("muster: warning: --muster has no effect in partition %s: its "
                        "nodes have no plugin (installed = no in %s)",
                        st->step.partition, st->conf);
    free(site);
    return on;
}

/* Slurm marks the masks that it made itself with SLURM_CPU_BIND_TYPE. */
void mu_srun_inherited(const struct mu_state *st)
{
    const char *type = getenv("SLURM_CPU_BIND_TYPE");
    const char *mask = getenv("SLURM_CPU_BIND");

    if (type && *type && mask && *mask && will_be_on(st))
        slurm_spank_log(
            "muster: warning: SLURM_CPU_BIND=%.200s is inherited from the outer step "
            "and may not fit the new one; first run `unset SLURM_CPU_BIND "
            "SLURM_CPU_BIND_TYPE SLURM_CPU_BIND_LIST SLURM_CPU_BIND_VERBOSE`",
            mask);
}

static bool counts_from_zero(const char *list)
{
    char want[256] = "";
    size_t at = 0;

    for (int i = 0; i < 64 && strcmp(want, list) != 0; i++)
        at += (size_t)snprintf(want + at, sizeof want - at, "%s%d", i ? "," : "", i);
    return strcmp(want, list) == 0;
}

/* Slurm overwrites CUDA_VISIBLE_DEVICES in every step with GPUs: warn a user who set it
 * for this srun. */
static void warn_visible(void)
{
    static const char *const slurms[] = { "SLURM_JOB_GPUS", "SLURM_STEP_GPUS" };
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    bool in_job = false;

    if (!visible || counts_from_zero(visible) ||
        mu_env_set_has(getenv("MUSTER_SET"), "CUDA_VISIBLE_DEVICES", visible))
        return;
    for (int i = 0; i < 2; i++) {
        const char *own = getenv(slurms[i]);

        in_job |= own != NULL;
        if (own && strcmp(own, visible) == 0)
            return;
    }
    if (in_job)
        slurm_spank_log(
            "muster: warning: CUDA_VISIBLE_DEVICES=%.200s in srun's environment "
            "is replaced in the step; to choose GPUs use "
            "--muster=gpu-bind=map_gpu:A+B+...",
            visible);
}

/* Slurm got the neutral request, and --muster the binding: an srun inside the step
 * inherits the request, as it inherits a binding of Slurm's.
 */
static void keep_binding(const struct mu_state *st, struct mu_bind_request *request)
{
    struct mu_opts opts = { 0 };

    request->own_option = st->own_option;
    if (st->option_given && mu_opts_parse(st->option, &opts, NULL) == 0 &&
        opts.gpu_bind[0])
        mu_copy(request->gpu_bind, sizeof request->gpu_bind, opts.gpu_bind);
}

void mu_srun_send_request(const struct mu_bind_request *request)
{
    char encoded[MU_TAKEOVER_TEXT];

    if (request->gpu_bind[0] || request->cpu_bind || request->cpu_bind_inherited) {
        mu_takeover_encode(request, encoded);
        setenv(MU_TAKEOVER_VARIABLE, encoded, 1);
    } else {
        unsetenv(MU_TAKEOVER_VARIABLE);
    }
}

void mu_srun_init(struct mu_state *st)
{
    struct mu_takeover_change changes[MU_TAKEOVER_CHANGES];
    struct mu_takeover_input input = { 0 };
    struct mu_bind_request request;
    struct mu_words line = { 0 };
    int n;
    bool on;

    mu_words_read("/proc/self/cmdline", &line, NULL);
    find_option(st, line.n, line.word);
    find_partition(st, line.n, line.word);
    /* Of an outer --pty step. srun sets it later for its own --pty. */
    unsetenv("SLURM_PTY_PORT");
    mu_srun_takeover_input(line.n, line.word, &input);
    mu_srun_send_rank0_host(line.n, line.word);
    mu_srun_send_ports();
    mu_srun_send_secrets();
    on = will_be_on(st);
    mu_takeover_decide(&input, &mu_this_slurm, &request, changes, &n);
    if (on) {
        for (int i = 0; i < n; i++)
            setenv(changes[i].name, changes[i].value, 1);
        if (mu_takeover_repeats_cpus(&input, getenv("SLURM_CPUS_PER_TASK")))
            unsetenv("SLURM_TRES_PER_TASK");
        if (!st->restarted)
            warn_visible();
    } else if (n > 0) {
        request.slurm_binds = true;
    }
    if (st->restarted)
        keep_binding(st, &request);
    mu_srun_send_request(&request);
    /* srun parses the option later and calls on_option. */
    st->option_given = false;
    mu_words_clear(&line);
}
