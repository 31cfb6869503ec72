/* SPDX-License-Identifier: BSD-3-Clause */
/* step_report.c - the report of a step, once per node: warnings, and with verbose or
 * dry-run the plan and its reasons
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spank/core/env/task_env.h"
#include "spank/core/options/mem_bind.h"
#include "spank/core/plan/plan_text.h"
#include "spank/plugin/plugin.h"

/* Not clear from the table where a task has several GPUs. */
static void show_threads(FILE *out, const struct mu_state *st)
{
    const struct mu_slot *slot = &st->plan.slots[0];
    int cores = slot->bound ? mu_node_core_count(&st->node, &slot->cpus) : 0;

    if (st->opts.omp == MU_AUTO_AUTO && cores > 0 && slot->ngpus > 1 &&
        st->step.launcher != MU_LAUNCHER_MPI)
        fprintf(out,
                "OMP_NUM_THREADS=%d in task 0, for each of the processes that it may "
                "start: %d core%s for %d GPUs\n",
                mu_env_threads(cores, slot->ngpus), cores, mu_plural(cores),
                slot->ngpus);
}

static void show_text(const struct mu_state *st)
{
    char *text = NULL;
    size_t len;
    FILE *out = open_memstream(&text, &len);

    if (!out)
        return;
    fprintf(out, "step %u.%u, %d of %d task%s%s\n", st->step.job, st->step.step,
            st->step.nlocal, st->step.ntasks, mu_plural(st->step.ntasks),
            st->opts.mode == MU_MODE_DRY_RUN ? ", dry run: nothing is changed" : "");
    if (st->simulated)
        fprintf(out, "topology=%s has other CPUs than this node: nothing is bound\n",
                st->site.topology);
    if (st->locality_file[0])
        fprintf(out, "the GPUs' locality is read from %s: the system lacks it\n",
                st->locality_file);
    mu_show_text(out, &st->node, &st->plan);
    for (int i = 0; i < st->plan.ninfos; i++)
        fprintf(out, "%s\n", st->plan.info[i]);
    fprintf(out, "ranks: %s\n", st->role_why);
    show_threads(out, st);
    if (st->have_network) {
        fprintf(out, "network: %s\n", st->network.choice.reason);
        if (st->network.fallback[0])
            fprintf(out, "network: %s\n", st->network.fallback);
        mu_settings_show(out, &st->network.settings);
    }
    if (fclose(out) == 0)
        mu_info_lines(st, text);
    free(text);
}

/* Prints the masks that the plan would use in place of the user's --cpu-bind. */
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
            "the step keeps its --cpu-bind; the CPUs near the GPUs are "
            "--cpu-bind=mask_cpu:%s",
            text);
    mu_plan_clear(&plan);
}

static void show_mem_bind(const struct mu_state *st)
{
    switch (mu_mem_bind_parse(st->step.mem_bind)) {
    case MU_MEM_UNSET:
        return;
    case MU_MEM_NONE:
        mu_info(st, "the step keeps its --mem-bind=%s; CPUs are placed without memory",
                st->step.mem_bind);
        return;
    default:
        mu_info(st,
                "the step keeps its --mem-bind=%s, for the NUMA nodes of the CPUs that "
                "each task gets",
                st->step.mem_bind);
    }
}

static void report_launcher(const struct mu_state *st)
{
    int nproc = st->step.launcher_nproc;
    char each[32] = "";

    if (nproc)
        snprintf(each, sizeof each, " x %d process%s", nproc, nproc == 1 ? "" : "es");
    if (st->step.launcher == MU_LAUNCHER_MPI)
        mu_info(
            st,
            "the step runs mpirun's daemon: its ranks are not Slurm's tasks and are "
            "not placed one by one; start them with `srun --mpi=pmix` instead");
    if (st->step.launcher == MU_LAUNCHER_TORCH && st->step.nlocal > 1)
        mu_warn(st,
                "%d launchers%s on %d GPU%s: each launcher starts ranks; run one "
                "launcher per node (--ntasks-per-node=1)",
                st->step.nlocal, each, st->alloc.ngpus, mu_plural(st->alloc.ngpus));
}

void mu_report(const struct mu_state *st)
{
    bool verbose = st->opts.verbose == MU_FLAG_YES;

    for (int i = 0; i < st->plan.nwarnings; i++)
        mu_warn(st, "%s", st->plan.warning[i]);
    report_launcher(st);
    if (verbose || st->opts.mode == MU_MODE_DRY_RUN)
        show_text(st);
    if (verbose)
        mu_other_steps_report(st);
    if (verbose)
        show_mem_bind(st);
    if (verbose && st->step.request.cpu_bind)
        show_better_masks(st);
}
