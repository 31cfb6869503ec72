/* SPDX-License-Identifier: BSD-3-Clause */
/* machines.c - machines of tests/CASES.md, made up from their descriptions */
#include "tests/unit/machines.h"

#include <stdio.h>
#include <string.h>

#include "runtime/base/parse.h"
#include "tests/unit/synth.h"

/* GPUs 0000:01:00.0, 0000:02:00.0, ... near these NUMA nodes. */
static void gpus(struct mu_node *node, int n, const int *numa)
{
    for (int i = 0; i < n; i++) {
        char busid[MU_BUSID_LEN];

        snprintf(busid, sizeof busid, "0000:%02x:00.0", i + 1);
        synth_gpu(node, busid, numa[i]);
    }
}

void machine_dgx_a100(struct mu_node *node)
{
    static const int numa[] = { 3, 3, 1, 1, 7, 7, 5, 5 };
    static const int nic_numa[] = { 3, 3, 1, 1, 0, 0, 7, 7, 5, 5, 4, 4 };

    synth_cpus(node, 2, 4, 16, 2);
    synth_distances(node, 12, 32);
    gpus(node, 8, numa);
    for (int i = 0; i < 12; i++) {
        char name[16], busid[MU_BUSID_LEN];

        snprintf(name, sizeof name, "mlx5_%d", i);
        snprintf(busid, sizeof busid, "0000:%02x:01.0", i + 1);
        synth_nic(node, name, busid, nic_numa[i]);
    }
    synth_links(node);
    for (int g = 0; g < 8; g++)
        for (int k = 0; k < 12; k++)
            if (nic_numa[k] == numa[g])
                synth_path(node, g, k, MU_NEAR_PXB);
}

/* 8 A100 on PCIe, 2 x 28 cores with SMT. */
void machine_pcie_8(struct mu_node *node)
{
    static const int numa[] = { 0, 0, 0, 0, 1, 1, 1, 1 };

    synth_cpus(node, 2, 1, 28, 2);
    synth_distances(node, 12, 21);
    gpus(node, 8, numa);
}

void machine_pair_64(struct mu_node *node)
{
    synth_cpus(node, 2, 1, 64, 1);
    gpus(node, 2, (const int[]){ 0, 1 });
}

void machine_perlmutter(struct mu_node *node)
{
    synth_cpus(node, 1, 4, 16, 2);
    synth_distances(node, 12, 32);
    gpus(node, 4, (const int[]){ 3, 2, 1, 0 });
}

static const int lumi_numa[] = { 3, 3, 1, 1, 0, 0, 2, 2 };

/* The locality of a GPU is one L3 of 8 cores. */
void machine_lumi_l3(struct mu_node *node)
{
    static const char *const near[] = { "48-55,112-119", "56-63,120-127", "16-23,80-87",
                                        "24-31,88-95",   "0-7,64-71",     "8-15,72-79",
                                        "32-39,96-103",  "40-47,104-111" };

    synth_cpus(node, 1, 4, 16, 2);
    synth_distances(node, 12, 32);
    synth_caches(node, 8);
    for (int i = 0; i < 8; i++) {
        char busid[MU_BUSID_LEN];

        snprintf(busid, sizeof busid, "0000:%02x:00.0", i + 1);
        synth_gpu_near(node, busid, near[i], lumi_numa[i]);
    }
}

void machine_lumi_numa_only(struct mu_node *node)
{
    synth_cpus(node, 1, 4, 16, 2);
    synth_distances(node, 12, 32);
    gpus(node, 8, lumi_numa);
}

void machine_backwards_8(struct mu_node *node)
{
    synth_cpus(node, 2, 4, 16, 1);
    synth_distances(node, 12, 32);
    gpus(node, 8, (const int[]){ 3, 2, 1, 0, 7, 6, 5, 4 });
}

void machine_lopsided_1_3(struct mu_node *node)
{
    synth_cpus(node, 2, 1, 16, 2);
    gpus(node, 4, (const int[]){ 0, 1, 1, 1 });
}

void machine_lopsided_1_4(struct mu_node *node)
{
    synth_cpus(node, 2, 1, 8, 2);
    gpus(node, 5, (const int[]){ 1, 0, 0, 0, 0 });
}

void machine_all_on_socket_1(struct mu_node *node)
{
    synth_cpus(node, 2, 1, 32, 2);
    gpus(node, 4, (const int[]){ 1, 1, 1, 1 });
    synth_nic(node, "mlx5_0", "0000:10:00.0", 0);
    synth_links(node);
}

void machine_lopsided_4_2(struct mu_node *node)
{
    synth_cpus(node, 2, 1, 24, 2);
    gpus(node, 6, (const int[]){ 0, 0, 0, 0, 1, 1 });
}

/* A virtual machine: one NUMA node, every pair of GPUs SYS. */
void machine_flat_vm(struct mu_node *node)
{
    synth_cpus(node, 1, 1, 48, 1);
    gpus(node, 4, (const int[]){ 0, 0, 0, 0 });
    synth_links(node);
    for (int i = 0; i < 16; i++)
        node->gpu_gpu[i] = MU_NEAR_SYS;
}

/* 4 x 72 cores, each with eight memory-only nodes of its GPU. */
void machine_gh200(struct mu_node *node)
{
    static const char *const busid[] = { "0009:01:00.0", "0019:01:00.0", "0029:01:00.0",
                                         "0039:01:00.0" };

    synth_cpus(node, 4, 1, 72, 1);
    for (int i = 0; i < 32; i++)
        synth_memory(node, 4 + i, UINT64_C(12) << 30, true);
    synth_distances(node, 40, 80);
    for (int i = 0; i < 4; i++)
        synth_gpu(node, busid[i], i);
}

/* POWER9: NUMA 0 and 8, GPU memory in 252-255, SMT4 with neighbouring numbers. */
void machine_power9(struct mu_node *node)
{
    static const char *const busid[] = { "0004:04:00.0", "0004:05:00.0", "0035:03:00.0",
                                         "0035:04:00.0" };

    synth_cpus(node, 2, 1, 16, 4);
    for (int i = 0; i < 2; i++)
        memset(&node->numas[i].cpus, 0, sizeof node->numas[i].cpus);
    for (int c = 0; c < 32; c++)
        for (int h = 0; h < 4; h++) {
            node->cores[c].cpu[h] = 4 * c + h;
            mu_cpuset_add(&node->numas[c / 16].cpus, 4 * c + h);
        }
    node->numas[1].os_index = 8;
    for (int i = 0; i < 4; i++)
        synth_memory(node, 255 - i, UINT64_C(16) << 30, true);
    synth_distances(node, 40, 40);
    for (int i = 0; i < 4; i++)
        synth_gpu(node, busid[i], i / 2);
}

/* Threadripper NPS4: nodes 0 and 3 have CPUs but no memory. */
void machine_memoryless(struct mu_node *node)
{
    synth_cpus(node, 1, 4, 6, 2);
    synth_distances(node, 12, 12);
    node->numas[0].memory = node->numas[3].memory = 0;
    gpus(node, 2, (const int[]){ 0, 3 });
}

void machine_rome(struct mu_node *node)
{
    synth_cpus(node, 2, 4, 16, 2);
    synth_distances(node, 12, 32);
}

void machine_p4d(struct mu_node *node)
{
    synth_cpus(node, 2, 1, 24, 2);
    gpus(node, 8, (const int[]){ 0, 0, 0, 0, 1, 1, 1, 1 });
}

void machine_mig_4(struct mu_node *node)
{
    synth_cpus(node, 2, 1, 8, 1);
    for (int i = 0; i < 4; i++) {
        int gpu = synth_gpu(node, "0000:59:00.0", 1);

        node->gpus[gpu].sub = i;
        snprintf(node->gpus[gpu].uuid, sizeof node->gpus[gpu].uuid, "MIG-uuid-%c",
                 'a' + i);
    }
}

void machine_mixed_models(struct mu_node *node)
{
    static const char *const busid[] = { "01:00.0", "02:00.0", "03:00.0", "04:00.0",
                                         "08:00.0" };

    synth_cpus(node, 1, 1, 5, 1);
    /* As CUDA's default order has them: the fastest first. */
    for (int k = 0; k < 5; k++) {
        int i = k == 0 ? 1 : k == 1 ? 0 : k;
        int gpu = synth_gpu(node, busid[i], 0);

        mu_copy(node->gpus[gpu].model, sizeof node->gpus[gpu].model,
                i == 0 || i == 4 ? "GTX 750" : "GTX 750 Ti");
    }
}

/* GPU i belongs to NIC 7 - i. */
void machine_h20_vm(struct mu_node *node)
{
    synth_cpus(node, 2, 1, 64, 1);
    gpus(node, 8, (const int[]){ 0, 0, 0, 0, 1, 1, 1, 1 });
    for (int i = 0; i < 8; i++) {
        char name[16];

        snprintf(name, sizeof name, "mlx5_bond_%d", i);
        synth_nic(node, name, "", i < 4);
    }
    synth_links(node);
    for (int i = 0; i < 8; i++)
        synth_path(node, i, 7 - i, MU_NEAR_PIX);
}

void machine_ndv4(struct mu_node *node)
{
    static const char *const busid[] = { "0001:00:00.0", "0002:00:00.0", "0003:00:00.0",
                                         "0004:00:00.0", "000b:00:00.0", "000c:00:00.0",
                                         "000d:00:00.0", "000e:00:00.0" };
    static const int numa[] = { 1, 1, 0, 0, 3, 3, 2, 2 };

    synth_cpus(node, 4, 1, 24, 1);
    for (int i = 0; i < 8; i++)
        synth_gpu(node, busid[i], numa[i]);
}

void machine_kvm_unknown(struct mu_node *node)
{
    synth_cpus(node, 2, 1, 8, 1);
    gpus(node, 2, (const int[]){ -1, -1 });
    node->virtual_machine = true;
}

/* One NUMA node of two cache domains, its two GPUs near all of it. */
void machine_two_caches(struct mu_node *node)
{
    synth_cpus(node, 1, 1, 16, 1);
    synth_caches(node, 8);
    gpus(node, 2, (const int[]){ 0, 0 });
}

/* Two NUMA nodes, CPU numbers dealt to them in turn; no GPU. */
void machine_even_and_odd(struct mu_node *node)
{
    synth_cpus(node, 2, 1, 8, 1);
    for (int i = 0; i < 2; i++)
        memset(&node->numas[i].cpus, 0, sizeof node->numas[i].cpus);
    for (int c = 0; c < 16; c++) {
        node->cores[c].cpu[0] = 2 * (c % 8) + c / 8;
        mu_cpuset_add(&node->numas[c / 8].cpus, node->cores[c].cpu[0]);
    }
}

/* mlx5_0 is beside the GPU but down, mlx5_1 is a little farther. */
void machine_port_down(struct mu_node *node)
{
    synth_cpus(node, 1, 1, 4, 1);
    gpus(node, 1, (const int[]){ 0 });
    synth_nic(node, "mlx5_0", "0000:02:00.0", 0);
    synth_nic(node, "mlx5_1", "0000:03:00.0", 0);
    node->nics[0].active = false;
    synth_links(node);
    synth_path(node, 0, 0, MU_NEAR_PIX);
}
