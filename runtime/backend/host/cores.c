/* SPDX-License-Identifier: BSD-3-Clause */
#include "runtime/backend/host/cores.h"

#include <stdio.h>

/* The first hardware thread of the core of `cpu`; cpu itself when that is unknown. */
static int first_thread(int cpu)
{
    char path[96];
    int first = cpu;
    FILE *f;

    snprintf(path, sizeof path,
             "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    f = fopen(path, "re");
    if (!f)
        return cpu;
    if (fscanf(f, "%d", &first) != 1)
        first = cpu;
    fclose(f);
    return first;
}

void mu_cores_own(struct mu_cpuset *out)
{
    struct mu_cpuset cpus = { 0 };

    *out = (struct mu_cpuset){ 0 };
    if (mu_cpuset_of_process(0, &cpus) < 0)
        return;
    for (int cpu = mu_cpuset_next(&cpus, -1); cpu >= 0;
         cpu = mu_cpuset_next(&cpus, cpu))
        mu_cpuset_add(out, first_thread(cpu));
}

bool mu_cores_take(struct mu_cpuset *taken, const struct mu_cpuset *cores)
{
    if (mu_cpuset_empty(cores) || mu_cpuset_intersects(cores, taken))
        return false;
    mu_cpuset_or(taken, cores);
    return true;
}
