/* SPDX-License-Identifier: BSD-3-Clause */
/* node_locality.c - takes GPU locality from a topology file where the system reports
 * none
 *
 * Vendors' files had wrong masks for years (one mask for all NUMA nodes, masks
 * exchanged). So a file is used only if it contradicts neither itself nor the system.
 */
#include <errno.h>
#include <string.h>

#include "spank/core/node/node.h"

static int check_file(const struct mu_node *file, struct mu_err *err)
{
    for (int a = 0; a < file->nnumas; a++)
        for (int b = a + 1; b < file->nnumas; b++)
            if (mu_cpuset_intersects(&file->numas[a].cpus, &file->numas[b].cpus))
                return mu_err_set(
                    err, EINVAL,
                    "the topology file gives NUMA nodes %d and %d the same "
                    "CPUs: it is not used",
                    file->numas[a].os_index, file->numas[b].os_index);
    return 0;
}

static int find_busid(const struct mu_node *file, const char *busid)
{
    for (int i = 0; i < file->ngpus && busid[0]; i++)
        if (strcmp(file->gpus[i].busid, busid) == 0)
            return i;
    return -1;
}

/* Set the locality of the GPU from the file, in terms of this machine's NUMA nodes. */
static int locate(const struct mu_node *node, const struct mu_gpu *from,
                  struct mu_gpu *gpu, struct mu_err *err)
{
    struct mu_gpu out = *gpu;
    bool several = false;

    mu_node_cpus(node, &out.local);
    mu_cpuset_and(&out.local, &from->local);
    if (!from->local_known || mu_cpuset_empty(&out.local))
        return mu_err_set(err, EINVAL,
                          "the topology file names no CPU of this machine "
                          "near GPU %s: it is not used",
                          gpu->label);
    out.numa = out.package = -1;
    for (int i = 0; i < node->nnumas; i++) {
        const struct mu_numa *numa = &node->numas[i];

        if (!mu_cpuset_intersects(&numa->cpus, &out.local))
            continue;
        if (!mu_cpuset_inside(&numa->cpus, &out.local))
            return mu_err_set(err, EINVAL,
                              "the topology file's CPUs near GPU %s are only a part of "
                              "NUMA node %d: it is not used",
                              gpu->label, numa->os_index);
        several |= out.numa >= 0;
        out.numa = out.numa < 0 ? i : out.numa;
        out.package = numa->package;
    }
    if (several)
        out.numa = out.package = -1;
    out.local_known = out.adopted = true;
    *gpu = out;
    return 0;
}

/* NCCL calls a device that it merged out of several "mlx5_0+mlx5_1". */
static bool has_name(const char *merged, const char *name)
{
    size_t n = strlen(name);

    for (const char *at = merged; at; at = strchr(at, '+') ? strchr(at, '+') + 1 : NULL)
        if (strncmp(at, name, n) == 0 && (at[n] == '+' || at[n] == '\0'))
            return true;
    return false;
}

static int find_nic(const struct mu_node *file, const struct mu_nic *nic)
{
    for (int i = 0; i < file->nnics; i++)
        if ((nic->busid[0] && strcmp(file->nics[i].busid, nic->busid) == 0) ||
            (nic->name[0] && has_name(file->nics[i].name, nic->name)))
            return i;
    return -1;
}

static void adopt_paths(struct mu_node *node, const struct mu_node *file, int gpu,
                        int from)
{
    for (int n = 0; n < node->nnics && node->gpu_nic && file->gpu_nic; n++) {
        int nic = find_nic(file, &node->nics[n]);

        if (nic >= 0 && file->gpu_nic[from * file->nnics + nic] != MU_NEAR_NONE)
            node->gpu_nic[gpu * node->nnics + n] =
                file->gpu_nic[from * file->nnics + nic];
    }
}

int mu_node_adopt(struct mu_node *node, const struct mu_node *file, struct mu_err *err)
{
    int adopted = 0;

    for (int g = 0; g < node->ngpus; g++)
        adopted += !node->gpus[g].local_known;
    if (adopted == 0)
        return 0;
    if (check_file(file, err) < 0)
        return -1;
    /* The first round only checks: nothing changes unless all GPUs pass. */
    for (int change = 0; change < 2; change++)
        for (int g = 0; g < node->ngpus; g++) {
            struct mu_gpu gpu = node->gpus[g];
            int from = find_busid(file, gpu.busid);

            if (gpu.local_known)
                continue;
            if (from < 0)
                return mu_err_set(err, EINVAL,
                                  "the topology file does not name GPU %s: "
                                  "it is not used",
                                  gpu.label);
            if (locate(node, &file->gpus[from], &gpu, err) < 0)
                return -1;
            if (!change)
                continue;
            node->gpus[g] = gpu;
            adopt_paths(node, file, g, from);
        }
    return adopted;
}
