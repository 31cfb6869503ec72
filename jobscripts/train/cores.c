/* SPDX-License-Identifier: BSD-3-Clause */
#include "jobscripts/train/cores.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* What a rank sends: two ranks with equal boot ids share a kernel and its CPU numbers,
 * even when Slurm gives their nodes different names.
 */
struct place {
    char boot_id[40];
    int64_t threads;
    struct mu_cpuset cpus;
};

static void place_here(struct place *place, int threads)
{
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");

    memset(place, 0, sizeof *place);
    place->threads = threads;
    if (!f || !fgets(place->boot_id, sizeof place->boot_id, f))
        gethostname(place->boot_id, sizeof place->boot_id - 1);
    if (f)
        fclose(f);
    mu_cpuset_of_process(0, &place->cpus);
}

static void count(struct cores *cores, const struct place *all, int n)
{
    for (int i = 0; i < n; i++) {
        struct mu_cpuset machine = all[i].cpus;
        int64_t threads = all[i].threads;
        int first = 1, cpus;

        for (int k = 0; k < i && first; k++)
            first = strcmp(all[k].boot_id, all[i].boot_id) != 0;
        if (!first)
            continue;
        for (int k = i + 1; k < n; k++) {
            if (strcmp(all[k].boot_id, all[i].boot_id) != 0)
                continue;
            cores->shared |= mu_cpuset_intersects(&machine, &all[k].cpus);
            mu_cpuset_or(&machine, &all[k].cpus);
            threads += all[k].threads;
        }
        cpus = mu_cpuset_count(&machine);
        cores->machines++;
        cores->allowed += cpus;
        cores->used += threads < cpus ? (int)threads : cpus;
    }
}

int cores_collect(struct muster *m, int threads, struct cores *cores)
{
    int size = muster_size(m), status;
    struct place mine, *all = malloc((size_t)size * sizeof *all);

    _Static_assert(sizeof mine % sizeof(int64_t) == 0, "sent as 64-bit integers");
    if (!all)
        return MUSTER_EMEMORY;
    place_here(&mine, threads);
    status = muster_allgather(m, &mine, all, sizeof mine / sizeof(int64_t), MUSTER_I64,
                              NULL);
    if (status == MUSTER_OK) {
        *cores = (struct cores){ .mine = mine.cpus };
        count(cores, all, size);
    }
    free(all);
    return status;
}

double cores_cpu_seconds(void)
{
    struct rusage use;

    getrusage(RUSAGE_SELF, &use);
    return (double)use.ru_utime.tv_sec + (double)use.ru_stime.tv_sec +
           1e-6 * (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec);
}

const char *cores_devices(int cuda_device)
{
    if (cuda_device >= 0)
        return "GPUs";
    if (access("/dev/nvidiactl", F_OK) == 0)
        return "CPU ranks, GPUs not used";
    if (getenv("CUDA_VISIBLE_DEVICES") || getenv("SLURM_STEP_GPUS") ||
        getenv("SLURM_JOB_GPUS"))
        return "CPU ranks, fake GPUs";
    return "CPU ranks, no GPU";
}
