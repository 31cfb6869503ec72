/* SPDX-License-Identifier: BSD-3-Clause */
/* place_report.c - reports the assignment of cores to the user: notes and warnings
 *
 * One sentence for each kind of problem, even if many GPUs have it: the GPUs, the NUMA
 * node, the tasks, and what to request from Slurm.
 */
#include <stdio.h>
#include <stdlib.h>

#include "spank/core/plan/place.h"
#include "spank/core/plan/place_cpu.h"

#define HOW_SLURM                                                                      \
    "ask Slurm for CPUs there: --exclusive, a larger -c, --cpus-per-gpu, or "          \
    "--distribution=block:block"
#define HOW_ALONE "give the ranks CPUs there (--cpus)"

/* Owned cores local to a GPU. */
static int near_cores(const struct mu_node *node, const struct mu_spread *s, int gpu)
{
    int n = 0;

    for (int k = 0; k < s->nclasses; k++)
        if (mu_node_core_distance(node, gpu, s->classes[k].example) == 0)
            n += s->classes[k].ncores;
    return n;
}

/* Read from the slot, because a shared core has several tasks. */
static bool has_core(const struct mu_spread *s, int task, int core)
{
    return mu_cpuset_has(&s->plan->slots[task].cpus, s->own.cores[core].first);
}

static bool has_remote(const struct mu_spread *s, int task)
{
    for (int c = 0; c < s->own.n; c++)
        if (has_core(s, task, c) &&
            s->distance[task * s->nclasses + s->class_of[c]] > 0)
            return true;
    return false;
}

static void put_list(FILE *out, const struct mu_cpuset *set)
{
    char text[256];

    mu_cpuset_format(set, text, sizeof text);
    fputs(text, out);
}

/* What is printed about GPUs that have a problem in common. */
struct problem {
    bool gpu[MU_GPUS_MAX];
    struct mu_cpuset tasks;
    int ngpus;
};

static void problem_add(struct problem *problem, int gpu, int task)
{
    problem->ngpus += !problem->gpu[gpu];
    problem->gpu[gpu] = true;
    mu_cpuset_add(&problem->tasks, task);
}

/* "0000:85:00.0, 0000:86:00.0 (NUMA node 1)", by locality in PCI order, with the
 * number of owned cores there if `count`.
 */
static void put_gpus(FILE *out, const struct mu_node *node, const struct mu_spread *s,
                     const struct problem *problem, bool count)
{
    bool printed[MU_GPUS_MAX] = { false };
    const char *sep = "";

    for (int g = 0; g < node->ngpus; g++) {
        int numa = node->gpus[g].numa;

        if (!problem->gpu[g] || printed[g])
            continue;
        fputs(sep, out);
        for (int o = g; o < node->ngpus; o++)
            if (problem->gpu[o] &&
                (o == g || mu_gpu_same_locality(&node->gpus[g], &node->gpus[o]))) {
                fprintf(out, "%s%s", o > g ? ", " : "", node->gpus[o].label);
                printed[o] = true;
            }
        if (numa >= 0)
            fprintf(out, " (NUMA node %d", node->numas[numa].os_index);
        if (count) {
            int cores = near_cores(node, s, g);

            fprintf(out, "%s%d core%s", numa >= 0 ? ": " : " (", cores,
                    mu_plural(cores));
        }
        fputs(numa >= 0 || count ? ")" : "", out);
        sep = "; ";
    }
}

/* The NUMA nodes of the CPUs that these tasks got. */
static void put_used_numas(FILE *out, const struct mu_node *node,
                           const struct mu_spread *s, const struct mu_cpuset *tasks)
{
    struct mu_cpuset numas = { 0 };

    for (int c = 0; c < s->own.n; c++) {
        int numa = s->own.cores[c].numa;

        for (int t = mu_cpuset_next(tasks, -1); t >= 0 && numa >= 0;
             t = mu_cpuset_next(tasks, t))
            if (has_core(s, t, c))
                mu_cpuset_add(&numas, node->numas[numa].os_index);
    }
    if (mu_cpuset_empty(&numas)) {
        fputs("other CPUs", out);
        return;
    }
    fprintf(out, "CPUs of NUMA node%s ", mu_plural(mu_cpuset_count(&numas)));
    put_list(out, &numas);
}

static void warn_few_cores(const struct mu_node *node, struct mu_spread *s,
                           const struct problem *problem, bool none, const char *how)
{
    char *text = NULL;
    size_t len;
    FILE *out;
    int ntasks = mu_cpuset_count(&problem->tasks);

    if (problem->ngpus == 0)
        return;
    out = open_memstream(&text, &len);
    if (!out)
        return;
    fputs(none ? "the step owns no CPU near GPU "
               : "the step owns too few CPUs near GPU ",
          out);
    put_gpus(out, node, s, problem, !none);
    fprintf(out, ": task%s ", mu_plural(ntasks));
    put_list(out, &problem->tasks);
    fprintf(out, " %s ", ntasks > 1 ? "use" : "uses");
    put_used_numas(out, node, s, &problem->tasks);
    fprintf(out, "; %s", how);
    if (fclose(out) == 0)
        mu_plan_warn(s->plan, "%s", text);
    free(text);
}

static void report_far(const struct mu_node *node, const struct mu_alloc *alloc,
                       const struct mu_opts *opts, struct mu_spread *s)
{
    const char *how = alloc->without_slurm ? HOW_ALONE : HOW_SLURM;
    struct problem none = { 0 }, few = { 0 };

    for (int t = 0; t < s->plan->nslots; t++) {
        struct mu_slot *slot = &s->plan->slots[t];
        bool remote = has_remote(s, t);

        if (remote)
            mu_slot_note(slot, "remote");
        for (int i = 0; i < slot->ngpus; i++) {
            if (!node->gpus[slot->gpu_node[i]].local_known)
                continue;
            if (near_cores(node, s, slot->gpu_node[i]) == 0)
                problem_add(&none, slot->gpu_node[i], t);
            else if (remote && (s->by_request || opts->cpus != MU_CPUS_ALL))
                problem_add(&few, slot->gpu_node[i], t);
        }
    }
    warn_few_cores(node, s, &none, true, how);
    warn_few_cores(node, s, &few, false, how);
}

/* Warn if there are fewer cores than tasks, or if a task has fewer CPUs than it
 * requested.
 */
static void report_short(const struct mu_alloc *alloc, struct mu_spread *s)
{
    int ntasks = s->plan->nslots, per_task = alloc->cpus_per_task, have = 0;

    for (int c = 0; c < s->own.n; c++)
        have += s->own.cores[c].width;
    if (s->own.n < ntasks) {
        mu_plan_warn(
            s->plan,
            "%d tasks on this node but the step owns %d core%s: tasks share cores; "
            "%s",
            ntasks, s->own.n, mu_plural(s->own.n),
            alloc->without_slurm ? "start fewer ranks, or give them more CPUs (--cpus)"
                                 : "ask Slurm for more CPUs with -c or --exclusive");
        return;
    }
    for (int t = 0; t < ntasks && per_task > 0; t++) {
        int got = mu_cpuset_count(&s->plan->slots[t].cpus);

        if (got >= per_task)
            continue;
        mu_plan_warn(
            s->plan,
            "task %d has %d of the %d CPUs that it asked for: the step owns %d "
            "CPU%s in %d core%s for %d task%s on this node, and cores are not split; "
            "%s",
            t, got, per_task, have, mu_plural(have), s->own.n, mu_plural(s->own.n),
            ntasks, mu_plural(ntasks),
            alloc->without_slurm ? "give them more CPUs (--cpus), or a smaller "
                                   "--cpus-per-task"
                                 : "ask Slurm for --exclusive or a smaller -c");
        return;
    }
}

/* Only some GPUs have a locality: the firmware describes only some PCI slots, or a
 * device was passed through later.
 */
static void report_some_unknown(const struct mu_node *node, struct mu_spread *s,
                                const struct problem *unknown)
{
    char *text = NULL;
    size_t len;
    FILE *out = open_memstream(&text, &len);

    if (!out)
        return;
    fputs("PCI locality unknown for GPU ", out);
    put_gpus(out, node, s, unknown, false);
    fprintf(out, ": the system reports no NUMA node for it; task%s ",
            mu_plural(mu_cpuset_count(&unknown->tasks)));
    put_list(out, &unknown->tasks);
    fputs(" got CPUs without locality and no memory policy; set NCCL_TOPO_FILE in "
          "/etc/nccl.conf to a topology file that describes it",
          out);
    if (fclose(out) == 0)
        mu_plan_warn(s->plan, "%s", text);
    free(text);
}

static void report_unknown(const struct mu_node *node, struct mu_spread *s)
{
    struct problem unknown = { 0 };
    bool all = true;

    for (int t = 0; t < s->plan->nslots; t++)
        for (int i = 0; i < s->plan->slots[t].ngpus; i++) {
            int gpu = s->plan->slots[t].gpu_node[i];

            all &= !node->gpus[gpu].local_known;
            if (!node->gpus[gpu].local_known)
                problem_add(&unknown, gpu, t);
        }
    if (unknown.ngpus > 0 && !all)
        report_some_unknown(node, s, &unknown);
    else if (unknown.ngpus > 0)
        mu_plan_warn(
            s->plan,
            "PCI locality unknown%s: the system reports no NUMA node for the GPUs; "
            "CPUs are divided evenly, memory is not bound; set NCCL_TOPO_FILE in "
            "/etc/nccl.conf to a topology file that describes them",
            node->virtual_machine ? " (virtual machine)" : "");
}

void mu_spread_report(const struct mu_node *node, const struct mu_alloc *alloc,
                      const struct mu_opts *opts, struct mu_spread *s)
{
    report_short(alloc, s);
    report_far(node, alloc, opts, s);
    report_unknown(node, s);
}
