/* SPDX-License-Identifier: BSD-3-Clause */
/* plugin.c - the hooks of muster.so, by context.
 *
 *   srun            init: checks the option; takes over the GPU binding
 *                   init_post_opt: starts srun anew for a binding of its command line
 *   sbatch, salloc  init: checks the option; marks a job with parts of GPUs
 *   slurmstepd      init (option)   user_init (plan)   task_init (apply)   task_exit
 *                   exit
 *
 * Each returns 0 or -1: the meaning of other values differs between Slurm releases.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/parse.h"
#include "spank/core/options/plugstack.h"
#include "spank/hw/machine/machine.h"
#include "spank/plugin/plugin.h"

SPANK_PLUGIN(muster, 1);

int slurm_spank_init(spank_t sp, int ac, char *av[]);
int slurm_spank_init_post_opt(spank_t sp, int ac, char *av[]);
int slurm_spank_user_init(spank_t sp, int ac, char *av[]);
int slurm_spank_task_init(spank_t sp, int ac, char *av[]);
int slurm_spank_task_exit(spank_t sp, int ac, char *av[]);
int slurm_spank_exit(spank_t sp, int ac, char *av[]);

static struct mu_state state;

/* Slurm calls each hook once for each line of plugstack.conf that loads this file, in
 * their order. The first alone counts.
 */
static bool first_line(int *calls)
{
    return (*calls)++ % state.lines == 0;
}

/* In slurmstepd, root calls this with the user's string and only copies it. srun,
 * sbatch and salloc check it at once.
 */
static int on_option(int val, const char *optarg, int remote)
{
    state.option_given = true;
    state.option_too_long =
        !mu_copy(state.option, sizeof state.option, optarg ? optarg : "");
    return remote ? 0 : mu_srun_check(&state);
}

static struct spank_option option = {
    "muster",
    "KEY[=VALUE],...",
    "Give each task its CPUs, memory and GPU together (muster(7)): on, off, dry-run, "
    "verbose, strict, bind=, cpus=, mem=, gpu-bind=, visible=, share=, nccl=, rdzv=, "
    "omp=, topo=, profile, accelerate, tuner=",
    2,
    0,
    on_option,
};

/* Reads the arguments in plugstack.conf. The installed line names the default site
 * file, which may be absent; any other named file must exist. A word that is no
 * argument may be a misspelled site file, so that steps then run without Muster.
 */
static void read_arguments(int ac, char *av[])
{
    mu_copy(state.conf, sizeof state.conf, MU_SITE_FILE);
    state.arguments = (struct mu_err){ 0 };
    if (mu_plugin_arguments(ac, av, state.conf, sizeof state.conf, &state.arguments) <
        0) {
        mu_err_context(&state.arguments, "plugstack.conf");
        slurm_error("muster: %s", state.arguments.text);
    }
    state.conf_needed = strcmp(state.conf, MU_SITE_FILE) != 0;
}

/* Does this srun, inside of a step, ignore that step's job? */
static bool starts_job(void)
{
    return getenv("MUSTER_SET") && !getenv("SLURM_JOB_ID") && !getenv("SLURM_JOBID");
}

int slurm_spank_init(spank_t sp, int ac, char *av[])
{
    spank_context_t context = state.context = spank_context();

    if (context == S_CTX_ERROR)
        slurm_error("muster: off: Slurm does not report what loads the plugin");
    if (context != S_CTX_LOCAL && context != S_CTX_ALLOCATOR && context != S_CTX_REMOTE)
        return 0;
    if (++state.lines > 1) {
        mu_second_line_report(state.lines);
        return 0;
    }
    read_arguments(ac, av);
    if (spank_option_register(sp, &option) != ESPANK_SUCCESS)
        slurm_error("muster: the option --muster could not be registered");
    /* A new job starts with nothing of the step from which it was submitted. */
    if (context == S_CTX_ALLOCATOR || (context == S_CTX_LOCAL && starts_job()))
        mu_inherited_drop_own();
    if (context == S_CTX_ALLOCATOR)
        mu_srun_mark_parts();
    if (context == S_CTX_LOCAL) {
        mu_restart_init(&state);
        mu_srun_init(&state);
    }
    if (context == S_CTX_REMOTE)
        state.held_hwloc = mu_hwloc_hold();
    if (context != S_CTX_REMOTE && !state.restarted)
        mu_srun_inherited(&state);
    return 0;
}

int slurm_spank_init_post_opt(spank_t sp, int ac, char *av[])
{
    if (state.context == S_CTX_LOCAL && first_line(&state.calls.init_post_opt))
        mu_restart_hook(&state);
    return 0;
}

static void release_hwloc(void)
{
    mu_hwloc_release(state.held_hwloc);
    state.held_hwloc = NULL;
}

int slurm_spank_user_init(spank_t sp, int ac, char *av[])
{
    if (state.context == S_CTX_REMOTE && first_line(&state.calls.user_init))
        mu_stepd_user_init(&state, sp);
    release_hwloc();
    return 0; /* a failure is reported, or fails the task, in task_init */
}

/* Runs in the task's process, between fork and exec. -1 fails the task only with a
 * `required` line in plugstack.conf. With the shipped `optional` line Slurm would start
 * the program anyway, so the process exits as after a failed exec.
 */
int slurm_spank_task_init(spank_t sp, int ac, char *av[])
{
    if (state.context == S_CTX_REMOTE && first_line(&state.calls.task_init) &&
        mu_stepd_task_init(&state, sp) < 0)
        _exit(EXIT_FAILURE);
    return 0;
}

int slurm_spank_task_exit(spank_t sp, int ac, char *av[])
{
    if (state.context == S_CTX_REMOTE && first_line(&state.calls.task_exit))
        mu_stepd_task_exit(&state);
    return 0;
}

int slurm_spank_exit(spank_t sp, int ac, char *av[])
{
    release_hwloc(); /* of a step without user_init */
    if (state.context == S_CTX_REMOTE && first_line(&state.calls.exit))
        mu_stepd_exit(&state);
    return 0;
}
