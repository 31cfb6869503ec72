/* SPDX-License-Identifier: BSD-3-Clause */
/* doctor_gpu.c - GPUs that a task sees: four counts, the order, the models */
#include "spank/core/doctor/doctor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/parse.h"

#define AREA "gpu"

static const char *count_text(int n, char *buf, size_t len)
{
    if (n < 0)
        return "?";
    snprintf(buf, len, "%d", n);
    return buf;
}

static const char *count_cause(const struct mu_gpu_counts *c)
{
    if (c->slurm >= 0 && c->openable >= 0 && c->openable < c->slurm)
        return "--gpu-bind, --gpus-per-task or --ntasks-per-gpu put each task into a "
               "separate device cgroup, which hides the other GPUs and makes P2P over "
               "NVLink impossible; write the request as #SBATCH lines with Muster on, "
               "or use srun --gpu-bind=none --muster=gpu-bind=...";
    if (c->slurm >= 0 && c->openable > c->slurm)
        return "ConstrainDevices is off in cgroup.conf: tasks can open GPUs of other "
               "jobs";
    if (c->visible >= 0 && c->openable >= 0 && c->visible > c->openable)
        return "CUDA_VISIBLE_DEVICES names GPUs that the task may not open; do not set "
               "it in "
               "the job script";
    if (c->openable == 0 || c->nvml == 0)
        return "a container hook or ENROOT_RESTRICT_DEV hides the devices a second "
               "time";
    return "";
}

/* CUDA_VISIBLE_DEVICES may correctly name fewer: only the GPUs of this task. */
static void check_counts(const struct mu_facts *facts, struct mu_findings *out)
{
    const struct mu_gpu_counts *c = &facts->gpus;
    char a[16], b[16], d[16], e[16];
    bool differ = (c->slurm >= 0 && c->openable >= 0 && c->slurm != c->openable) ||
                  (c->nvml >= 0 && c->openable >= 0 && c->nvml != c->openable) ||
                  (c->visible > c->openable && c->openable >= 0);

    if (c->slurm < 0 && c->visible < 0 && c->openable <= 0 && c->nvml <= 0)
        return;
    mu_findings_add(
        out, differ ? MU_WARNING : MU_OK, AREA, differ ? count_cause(c) : "",
        "number of GPUs: Slurm %s, CUDA_VISIBLE_DEVICES %s, can be opened %s, NVML %s",
        count_text(c->slurm, a, sizeof a), count_text(c->visible, b, sizeof b),
        count_text(c->openable, d, sizeof d), count_text(c->nvml, e, sizeof e));
}

static void check_order(const struct mu_facts *facts, struct mu_findings *out)
{
    const char *list = mu_facts_env(facts, "CUDA_VISIBLE_DEVICES");
    char copy[1024], *rest = copy, *item;
    long last = -1;

    if (!list || !mu_copy(copy, sizeof copy, list))
        return;
    while ((item = mu_parse_next(&rest, ','))) {
        char *end;
        long n = strtol(item, &end, 10);

        if (end == item || *end)
            return; /* UUIDs have no order */
        if (n <= last) {
            mu_findings_add(
                out, MU_WARNING, AREA,
                "leave the order to Muster: NICs are matched to GPUs by PCI "
                "path, not by position",
                "CUDA_VISIBLE_DEVICES=%s is not ascending; the order is kept", list);
            return;
        }
        last = n;
    }
}

static void check_models(const struct mu_facts *facts, struct mu_findings *out)
{
    const struct mu_node *node = facts->node;
    const char *order = mu_facts_env(facts, "CUDA_DEVICE_ORDER");

    for (int i = 1; node && i < node->ngpus; i++)
        if (node->gpus[i].model[0] && node->gpus[0].model[0] &&
            strcmp(node->gpus[i].model, node->gpus[0].model) != 0) {
            bool pci = order && strcmp(order, "PCI_BUS_ID") == 0;

            mu_findings_add(
                out, pci ? MU_OK : MU_WARNING, AREA,
                pci ? "" : "export CUDA_DEVICE_ORDER=PCI_BUS_ID (Muster sets it)",
                "this node has different GPU models (%s, %s): CUDA numbers the fastest "
                "GPU first, nvidia-smi numbers GPUs by PCI address",
                node->gpus[0].model, node->gpus[i].model);
            return;
        }
}

static void check_nic_distance(const struct mu_facts *facts, struct mu_findings *out)
{
    const struct mu_node *node = facts->node;
    enum mu_nearness best = MU_NEAR_NONE;

    if (!node || !node->gpu_nic || !node->ngpus || !node->nnics)
        return;
    for (int i = 0; i < node->ngpus * node->nnics; i++)
        if (node->gpu_nic[i] < best)
            best = node->gpu_nic[i];
    if (best == MU_NEAR_SYS)
        mu_findings_add(out, MU_HINT, AREA, "",
                        "no RDMA NIC is local to any GPU: every path from a GPU to a "
                        "NIC crosses between packages (SYS)");
}

/* Case 024: NCCL before 2.30 refuses several ranks on one GPU. */
static void check_slices(const struct mu_facts *facts, struct mu_findings *out)
{
    const char *list = mu_facts_env(facts, "CUDA_VISIBLE_DEVICES");
    const char *nvls = mu_facts_env(facts, "NCCL_NVLS_ENABLE");

    if (!list || strncmp(list, "MIG-", 4) != 0)
        return;
    for (int i = 0; i < facts->nnccl; i++) {
        long major = 0, minor = 0;

        if (sscanf(facts->nccl[i].version, "%ld.%ld", &major, &minor) == 2 &&
            major * 100 + minor < 230)
            mu_findings_add(
                out, MU_WARNING, AREA,
                "use NCCL 2.30 or newer, or give each rank a whole GPU",
                "NCCL %s (%s) cannot run several ranks on one GPU, and this "
                "task has a MIG slice",
                facts->nccl[i].version, facts->nccl[i].path);
    }
    if (nvls && strcmp(nvls, "1") == 0)
        mu_findings_add(out, MU_WARNING, AREA, "unset NCCL_NVLS_ENABLE",
                        "NCCL_NVLS_ENABLE=1 makes NCCL abort on MIG slices");
}

void mu_doctor_gpu(const struct mu_facts *facts, struct mu_findings *out)
{
    check_counts(facts, out);
    check_order(facts, out);
    check_models(facts, out);
    check_nic_distance(facts, out);
    check_slices(facts, out);
}
