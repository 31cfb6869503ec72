/* SPDX-License-Identifier: BSD-3-Clause */
/* findings_rules.c - names, limits and remedies of the rules */
#include <stdarg.h>

#include "runtime/tools/findings.h"

const struct mu_finding_rule mu_finding_rules[] = {
    /* share of the time, on the rank with the least */
    [COMMUNICATION] = { "communication", 0.20,
                        "send less: bf16 gradients or compression; compare busbw with "
                        "muster bench" },
    /* share of the time in which the others wait for one rank */
    [STRAGGLER] = { "straggler", 0.05,
                    "compare this GPU's clocks, power and temperature (nvidia-smi -q), "
                    "its CPUs and its NIC with the others': muster doctor --nodes" },
    /* waiting over all the time in collectives */
    [SKEW] = { "skew", 0.50,
               "equal work per rank: bucket samples by length, drop the last "
               "incomplete batch, bind CPUs" },
    /* share of the time */
    [LOADER] = { "loader", 0.05,
                 "more num_workers, pin_memory, prefetch_factor; data on local disks" },
    /* share of the time in which the host launches */
    [LAUNCHES] = { "launches", 0.10,
                   "fewer and larger collectives, CUDA graphs, cores of its own for "
                   "each rank" },
    /* bytes of one */
    [SMALL_BUCKETS] = { "small buckets", 1 << 20,
                        "bucket gradients: bucket_cap_mb=25 in DDP, MUSTER_BUCKET_CAP "
                        "in libmuster" },
    /* the slowest percent over the median */
    [LONG_TAIL] = { "long tail", 3,
                    "other jobs on the network or the node; links with errors: muster "
                    "doctor --nodes" },
    /* processes */
    [NUMA] = { "NUMA", 0,
               "bind each rank to CPUs at its GPU: srun --muster=on, and enough CPUs "
               "there with -c; muster verify" },
    /* GPUs of a process */
    [DATA_PARALLEL] = { "pitfall 1: DataParallel instead of DDP", 1,
                        "one process per GPU with DistributedDataParallel: srun "
                        "--muster with one task per GPU" },
    /* busbw, GB/s: NVLink has more, PCIe 4.0 x16 has less */
    [NO_P2P] = { "pitfall 2: no P2P access", 30,
                 "nvidia-smi topo -m: if it shows NV#, look at driver, IOMMU and PCIe "
                 "ACS: muster doctor" },
    /* as communication */
    [SMALL_BATCH] = { "pitfall 3: small batch per GPU", 0.50,
                      "larger batch per GPU, or gradient accumulation with one "
                      "all-reduce for all micro-batches" },
    /* time between first and last launch, over the time on the GPU */
    [NO_OVERLAP] = { "pitfall 4: not overlapping communication", 0.10,
                     "let DDP start buckets in the backward pass: bucket_cap_mb=25, no "
                     "all-reduce by hand after backward()" },
    /* channels of a large collective inside a node */
    [TOPOLOGY] = { "pitfall 5: wrong NCCL topology", 2,
                   "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH shows what NCCL "
                   "found; --muster=topo=FILE sets NCCL_TOPO_FILE" },
    /* share of the time with a kernel, on the GPU with the least */
    [GPU_IDLE] = { "GPU utilization", 0.70,
                   "more num_workers, pin_memory; a larger batch" },
    /* share of its memory */
    [GPU_UNUSED] = { "GPU memory unused", 0.70,
                     "a larger batch per GPU fits, and scales better" },
    [GPU_FULL] = { "GPU memory nearly full", 0.95,
                   "a little more ends the job: a smaller batch with gradient "
                   "accumulation, or activation checkpointing" },
};

void mu_finding_add(struct mu_profile *p, enum mu_rule rule, int file, double value,
                    const char *format, ...)
{
    struct mu_finding f = { mu_finding_rules[rule].name,
                            mu_finding_rules[rule].remedy,
                            file,
                            value,
                            mu_finding_rules[rule].limit,
                            "" };
    va_list args;

    if (p->nfindings == MU_FINDINGS_MOST)
        return;
    va_start(args, format);
    vsnprintf(f.text, sizeof f.text, format, args);
    va_end(args);
    p->findings[p->nfindings++] = f;
}
