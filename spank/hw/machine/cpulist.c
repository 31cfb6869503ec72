/* SPDX-License-Identifier: BSD-3-Clause */
/* cpulist.c - cores from NCCL's files and nvidia-smi's text, which list CPUs only */
#include "spank/hw/machine/cpulist.h"

#include "spank/hw/machine/machine.h"

/* The number of runs in the list; 0 when they are not equal and equally spaced. */
static int equal_runs(const struct mu_cpuset *cpus, int *length, int *spacing)
{
    int runs = 0, first = -1, start = -1, prev = -2, cpu = -1;

    *length = *spacing = 0;
    do {
        cpu = mu_cpuset_next(cpus, cpu);
        if (cpu == prev + 1) {
            prev = cpu;
            continue;
        }
        if (start >= 0) { /* a run has ended: start..prev */
            if (runs == 1)
                *length = prev - start + 1;
            else if (prev - start + 1 != *length)
                return 0;
        }
        if (cpu < 0)
            break;
        if (runs == 1)
            *spacing = cpu - first;
        else if (runs > 1 && cpu - start != *spacing)
            return 0;
        if (runs == 0)
            first = cpu;
        runs++;
        start = prev = cpu;
    } while (cpu >= 0);
    return runs;
}

static int add_core(struct mu_node *node, const int *cpu, int ncpus, int numa,
                    int package, struct mu_err *err)
{
    struct mu_core *core = mu_add_core(node, err);

    if (!core)
        return -1;
    core->ncpus = ncpus;
    for (int i = 0; i < ncpus; i++)
        core->cpu[i] = cpu[i];
    core->numa = numa;
    core->package = package;
    return 0;
}

static void without_cores(const struct mu_node *node, struct mu_cpuset *cpus)
{
    struct mu_cpuset taken;

    mu_node_cpus(node, &taken);
    mu_cpuset_andnot(cpus, &taken);
}

int mu_cores_add_group(struct mu_node *node, const struct mu_cpuset *cpus, int numa,
                       int package, struct mu_err *err)
{
    struct mu_cpuset left = *cpus;
    int cpu[MU_CORE_CPUS], n = 0;

    without_cores(node, &left);
    for (int i = -1; (i = mu_cpuset_next(&left, i)) >= 0 && n < MU_CORE_CPUS;)
        cpu[n++] = i;
    return n > 0 ? add_core(node, cpu, n, numa, package, err) : 0;
}

int mu_cores_add_strided(struct mu_node *node, const struct mu_cpuset *cpus,
                         int threads, int stride, int numa, int package,
                         struct mu_err *err)
{
    struct mu_cpuset left = *cpus;

    without_cores(node, &left);
    for (int first = -1; (first = mu_cpuset_next(&left, first)) >= 0;) {
        int cpu[MU_CORE_CPUS], n = 0;

        for (int t = 0; t < threads && t < MU_CORE_CPUS; t++)
            if (mu_cpuset_has(&left, first + t * stride)) {
                cpu[n++] = first + t * stride;
                mu_cpuset_remove(&left, first + t * stride);
            }
        if (add_core(node, cpu, n, numa, package, err) < 0)
            return -1;
    }
    return 0;
}

int mu_cores_add_list(struct mu_node *node, const struct mu_cpuset *cpus, int numa,
                      int package, struct mu_err *err)
{
    struct mu_cpuset left = *cpus;
    int runs, length, spacing;

    without_cores(node, &left);
    if (mu_cpuset_empty(&left))
        return 0;
    runs = equal_runs(&left, &length, &spacing);
    /* Many runs of one CPU: probably the sockets are numbered in turn (0,2,4,...). */
    if (runs < 1 || runs > MU_CORE_CPUS || (length == 1 && runs > 2)) {
        node->smt_guess = true;
        runs = 1;
    }
    return mu_cores_add_strided(node, &left, runs, runs > 1 ? spacing : 1, numa,
                                package, err);
}
