/* SPDX-License-Identifier: BSD-3-Clause */
/* step_cpus.c - the CPUs of a step that no cgroup confines: Slurm then reports core
 * numbers, in Slurm's numbering
 */
#include "spank/core/slurm/core_numbers.h"
#include "spank/plugin/plugin.h"

void mu_step_cpus(const struct mu_state *st, const struct mu_cpuset *machine,
                  struct mu_cpuset *cpus)
{
    const struct mu_cpuset *cores = &st->step.cores;

    *cpus = st->simulated ? *machine : st->step.cpus;
    mu_cpuset_and(cpus, machine);
    if (st->simulated || st->step.confined || mu_cpuset_empty(cores))
        return;
    /* A number beyond the machine's cores: slurm.conf counts threads, or cores that the
     * machine lacks, so its numbers cannot be used. */
    if (mu_cpuset_next(cores, st->node.ncores - 1) >= 0 ||
        !mu_slurm_cores(&st->node, cores, cpus))
        return;
    mu_cpuset_and(cpus, machine);
}

int mu_cpus_of_request(const struct mu_node *node, int cpus_per_task, int threads)
{
    long width = 1, cores;

    for (int i = 0; i < node->ncores; i++)
        if (node->cores[i].ncpus > width)
            width = node->cores[i].ncpus;
    if (threads <= 0 || threads >= width || cpus_per_task <= 0)
        return cpus_per_task;
    cores = ((long)cpus_per_task + threads - 1) / threads;
    return cores < MU_CPUSET_MAX ? (int)(cores * width) : cpus_per_task;
}

bool mu_step_cpus_disputed(const struct mu_state *st)
{
    struct mu_cpuset now = { { 0 } }, online;

    if (st->simulated || st->step.confined || mu_cpuset_empty(&st->step.cores))
        return false;
    mu_cpuset_of_process(0, &now);
    mu_online_cpus(&online);
    return !mu_cpuset_inside(&online, &now) && !mu_cpuset_inside(&now, &st->alloc.cpus);
}
