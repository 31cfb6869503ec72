/* SPDX-License-Identifier: BSD-3-Clause */
/* test_plan_cases.c - plans of tests/CASES.md, by case number */
#include "tests/unit/machines.h"
#include "tests/unit/plan_case.h"

/* clang-format off */
static const struct plan_case cases[] = {
    { .name = "001: a DGX A100 splits by locality, not by rank",
      .machine = machine_dgx_a100, .ntasks = 8,
      .want = "0 0000:01:00.0 48-55,176-183 3 mlx5_0,mlx5_1 PXB -\n"
              "1 0000:02:00.0 56-63,184-191 3 mlx5_0,mlx5_1 PXB -\n"
              "2 0000:03:00.0 16-23,144-151 1 mlx5_2,mlx5_3 PXB -\n"
              "3 0000:04:00.0 24-31,152-159 1 mlx5_2,mlx5_3 PXB -\n"
              "4 0000:05:00.0 112-119,240-247 7 mlx5_6,mlx5_7 PXB -\n"
              "5 0000:06:00.0 120-127,248-255 7 mlx5_6,mlx5_7 PXB -\n"
              "6 0000:07:00.0 80-87,208-215 5 mlx5_8,mlx5_9 PXB -\n"
              "7 0000:08:00.0 88-95,216-223 5 mlx5_8,mlx5_9 PXB -\n",
      .says = { "NUMA nodes 0,2,4,6: no GPU of this step is near" } },
    { .name = "002a: 8 GPUs, CPUs on one socket only: shared evenly, and said",
      .machine = machine_pcie_8, .ntasks = 8,
      .cpus = "0-15,56-71",
      .want = "0 0000:01:00.0 0-1,56-57 0 - - -\n"
              "1 0000:02:00.0 2-3,58-59 0 - - -\n"
              "2 0000:03:00.0 4-5,60-61 0 - - -\n"
              "3 0000:04:00.0 6-7,62-63 0 - - -\n"
              "4 0000:05:00.0 8-9,64-65 0 - - remote\n"
              "5 0000:06:00.0 10-11,66-67 0 - - remote\n"
              "6 0000:07:00.0 12-13,68-69 0 - - remote\n"
              "7 0000:08:00.0 14-15,70-71 0 - - remote\n",
      .says = { "no CPU near GPU 0000:05:00.0, 0000:06:00.0, 0000:07:00.0, "
                "0000:08:00.0 (NUMA node 1): tasks 4-7 use CPUs of NUMA node 0",
                "--exclusive, a larger -c, --cpus-per-gpu, or "
                "--distribution=block:block" },
      .not_as_asked = true },
    { .name = "002a: one task with all GPUs is told as well",
      .machine = machine_pcie_8, .ntasks = 1, .per_task = 32,
      .cpus = "0-15,56-71",
      .want = "0 0000:01:00.0,0000:02:00.0,0000:03:00.0,0000:04:00.0,0000:05:00.0,"
              "0000:06:00.0,0000:07:00.0,0000:08:00.0 0-15,56-71 0 - - split\n",
      .says = { "no CPU near GPU 0000:05:00.0, 0000:06:00.0, 0000:07:00.0, "
                "0000:08:00.0 (NUMA node 1): task 0 uses CPUs of NUMA node 0" },
      .not_as_asked = true },
    { .name = "002b: the far GPU's task stays inside the step's CPUs",
      .machine = machine_pair_64, .ntasks = 2, .per_task = 32,
      .cpus = "0-63",
      .want = "0 0000:01:00.0 0-31 0 - - -\n"
              "1 0000:02:00.0 32-63 0 - - remote\n",
      .says = { "no CPU near GPU 0000:02:00.0 (NUMA node 1)" },
      .not_as_asked = true },
    { .name = "005: GPU numbers run against CPU numbers",
      .machine = machine_perlmutter, .ntasks = 4,
      .want = "0 0000:01:00.0 48-63,112-127 3 - - -\n"
              "1 0000:02:00.0 32-47,96-111 2 - - -\n"
              "2 0000:03:00.0 16-31,80-95 1 - - -\n"
              "3 0000:04:00.0 0-15,64-79 0 - - -\n" },
    { .name = "005: -c 16 is 8 cores, and two GPUs are without",
      .machine = machine_perlmutter, .ntasks = 4, .per_task = 16,
      .cpus = "0-31,64-95",
      .want = "0 0000:01:00.0 0-7,64-71 0 - - remote\n"
              "1 0000:02:00.0 16-23,80-87 1 - - remote\n"
              "2 0000:03:00.0 24-31,88-95 1 - - -\n"
              "3 0000:04:00.0 8-15,72-79 0 - - -\n",
      .says = { "no CPU near GPU 0000:01:00.0 (NUMA node 3); 0000:02:00.0 (NUMA "
                "node 2): tasks 0-1 use CPUs of NUMA nodes 0-1" },
      .not_as_asked = true },
    { .name = "006: reserved cores and an L3 for each GPU",
      .machine = machine_lumi_l3, .ntasks = 8,
      .cpus = "1-7,9-15,17-23,25-31,33-39,41-47,49-55,57-63",
      .want = "0 0000:01:00.0 49-55 3 - - -\n"
              "1 0000:02:00.0 57-63 3 - - -\n"
              "2 0000:03:00.0 17-23 1 - - -\n"
              "3 0000:04:00.0 25-31 1 - - -\n"
              "4 0000:05:00.0 1-7 0 - - -\n"
              "5 0000:06:00.0 9-15 0 - - -\n"
              "6 0000:07:00.0 33-39 2 - - -\n"
              "7 0000:08:00.0 41-47 2 - - -\n" },
    { .name = "006: reserved cores, NUMA known only: 7 + 7 whole cores",
      .machine = machine_lumi_numa_only, .ntasks = 8,
      .cpus = "1-7,9-15,17-23,25-31,33-39,41-47,49-55,57-63,65-71,73-79,81-87,89-95,"
              "97-103,105-111,113-119,121-127",
      .want = "0 0000:01:00.0 49-55,113-119 3 - - -\n"
              "1 0000:02:00.0 57-63,121-127 3 - - -\n"
              "2 0000:03:00.0 17-23,81-87 1 - - -\n"
              "3 0000:04:00.0 25-31,89-95 1 - - -\n"
              "4 0000:05:00.0 1-7,65-71 0 - - -\n"
              "5 0000:06:00.0 9-15,73-79 0 - - -\n"
              "6 0000:07:00.0 33-39,97-103 2 - - -\n"
              "7 0000:08:00.0 41-47,105-111 2 - - -\n" },
    { .name = "008: eight NUMA nodes, GPUs backwards inside each socket",
      .machine = machine_backwards_8, .ntasks = 8,
      .want = "0 0000:01:00.0 48-63 3 - - -\n"
              "1 0000:02:00.0 32-47 2 - - -\n"
              "2 0000:03:00.0 16-31 1 - - -\n"
              "3 0000:04:00.0 0-15 0 - - -\n"
              "4 0000:05:00.0 112-127 7 - - -\n"
              "5 0000:06:00.0 96-111 6 - - -\n"
              "6 0000:07:00.0 80-95 5 - - -\n"
              "7 0000:08:00.0 64-79 4 - - -\n" },
    { .name = "009a: one GPU on one socket, three on the other: 16 and 6/5/5",
      .machine = machine_lopsided_1_3, .ntasks = 4,
      .want = "0 0000:01:00.0 0-15,32-47 0 - - -\n"
              "1 0000:02:00.0 16-21,48-53 1 - - -\n"
              "2 0000:03:00.0 22-26,54-58 1 - - -\n"
              "3 0000:04:00.0 27-31,59-63 1 - - -\n" },
    { .name = "009b: GPU0 on NUMA 1, the others share NUMA 0",
      .machine = machine_lopsided_1_4, .ntasks = 5,
      .want = "0 0000:01:00.0 8-15,24-31 1 - - -\n"
              "1 0000:02:00.0 0-1,16-17 0 - - -\n"
              "2 0000:03:00.0 2-3,18-19 0 - - -\n"
              "3 0000:04:00.0 4-5,20-21 0 - - -\n"
              "4 0000:05:00.0 6-7,22-23 0 - - -\n" },
    { .name = "009c: all GPUs on socket 1, the NIC on the other",
      .machine = machine_all_on_socket_1, .ntasks = 4,
      .want = "0 0000:01:00.0 32-39,96-103 1 mlx5_0 SYS -\n"
              "1 0000:02:00.0 40-47,104-111 1 mlx5_0 SYS -\n"
              "2 0000:03:00.0 48-55,112-119 1 mlx5_0 SYS -\n"
              "3 0000:04:00.0 56-63,120-127 1 mlx5_0 SYS -\n",
      .says = { "NUMA node 0: no GPU of this step is near" } },
    { .name = "009d: 4 + 2 cards",
      .machine = machine_lopsided_4_2, .ntasks = 6,
      .want = "0 0000:01:00.0 0-5,48-53 0 - - -\n"
              "1 0000:02:00.0 6-11,54-59 0 - - -\n"
              "2 0000:03:00.0 12-17,60-65 0 - - -\n"
              "3 0000:04:00.0 18-23,66-71 0 - - -\n"
              "4 0000:05:00.0 24-35,72-83 1 - - -\n"
              "5 0000:06:00.0 36-47,84-95 1 - - -\n" },
    { .name = "009e: SYS between all pairs says nothing about sockets",
      .machine = machine_flat_vm, .ntasks = 4,
      .want = "0 0000:01:00.0 0-11 0 - - -\n"
              "1 0000:02:00.0 12-23 0 - - -\n"
              "2 0000:03:00.0 24-35 0 - - -\n"
              "3 0000:04:00.0 36-47 0 - - -\n" },
    { .name = "010: GH200: 72 cores each, never a GPU's memory",
      .machine = machine_gh200, .ntasks = 4,
      .want = "0 0009:01:00.0 0-71 0 - - -\n"
              "1 0019:01:00.0 72-143 1 - - -\n"
              "2 0029:01:00.0 144-215 2 - - -\n"
              "3 0039:01:00.0 216-287 3 - - -\n",
      .says = { "NUMA nodes 4-35: memory of a GPU" } },
    { .name = "010: GH200 with one core of each module reserved",
      .machine = machine_gh200, .ntasks = 4, .options = "mem=strict",
      .cpus = "1-71,73-143,145-215,217-287",
      .want = "0 0009:01:00.0 1-71 0 - - -\n"
              "1 0019:01:00.0 73-143 1 - - -\n"
              "2 0029:01:00.0 145-215 2 - - -\n"
              "3 0039:01:00.0 217-287 3 - - -\n" },
    { .name = "012a: POWER9's nodes are 0 and 8",
      .machine = machine_power9, .ntasks = 4,
      .want = "0 0004:04:00.0 0-31 0 - - -\n"
              "1 0004:05:00.0 32-63 0 - - -\n"
              "2 0035:03:00.0 64-95 8 - - -\n"
              "3 0035:04:00.0 96-127 8 - - -\n",
      .says = { "NUMA nodes 252-255: memory of a GPU" } },
    { .name = "012b: a NUMA node without memory gives way to a near one",
      .machine = machine_memoryless, .ntasks = 2, .options = "mem=strict",
      .want = "0 0000:01:00.0 0-5,24-29 1 - - memless\n"
              "1 0000:02:00.0 18-23,42-47 1 - - memless\n",
      .says = { "NUMA nodes 0,3: no memory" } },
    { .name = "cpuset.mems: a task whose node's memory is not the step's takes the nearest",
      .machine = machine_lopsided_1_3, .ntasks = 4, .mems = "1",
      .want = "0 0000:01:00.0 0-15,32-47 1 - - mem-away\n"
              "1 0000:02:00.0 16-21,48-53 1 - - -\n"
              "2 0000:03:00.0 22-26,54-58 1 - - -\n"
              "3 0000:04:00.0 27-31,59-63 1 - - -\n",
      .says = { "NUMA node 0: not in the step's cpuset.mems" } },
    { .name = "cpuset.mems: mem=strict says so and is not as asked",
      .machine = machine_lopsided_1_3, .ntasks = 1, .gpus = "0", .mems = "1",
      .options = "mem=strict", .not_as_asked = true,
      .want = "0 0000:01:00.0 0-15,32-47 1 - - mem-away\n",
      .says = { "mem=strict: tasks run on NUMA node 0, but the step may use memory of NUMA node 1" } },
    { .name = "cpuset.mems: of several others the nearest by NUMA distance",
      .machine = machine_memoryless, .ntasks = 2, .mems = "2",
      .want = "0 0000:01:00.0 0-5,24-29 2 - - memless\n"
              "1 0000:02:00.0 18-23,42-47 2 - - memless\n" },
    { .name = "cpuset.mems: nothing that the machine has: memory is not bound",
      .machine = machine_lopsided_1_3, .ntasks = 1, .gpus = "0", .mems = "5",
      .want = "0 0000:01:00.0 0-15,32-47 - - - mem-away\n" },
    { .name = "013: tasks without GPUs fill NUMA nodes, whatever the distribution",
      .machine = machine_rome, .ntasks = 8,
      .want = "0 - 0-15,128-143 0 - - -\n1 - 16-31,144-159 1 - - -\n"
              "2 - 32-47,160-175 2 - - -\n3 - 48-63,176-191 3 - - -\n"
              "4 - 64-79,192-207 4 - - -\n5 - 80-95,208-223 5 - - -\n"
              "6 - 96-111,224-239 6 - - -\n"
              "7 - 112-127,240-255 7 - - -\n" },
    { .name = "013: small tasks without GPUs spread over the machine",
      .machine = machine_rome, .ntasks = 4, .per_task = 32,
      .want = "0 - 0-15,128-143 0 - - -\n1 - 32-47,160-175 2 - - -\n"
              "2 - 64-79,192-207 4 - - -\n"
              "3 - 96-111,224-239 6 - - -\n" },
    { .name = "018: the first p4d tasks stay inside NCCL's mask 0-23,48-71",
      .machine = machine_p4d, .ntasks = 8,
      .want = "0 0000:01:00.0 0-5,48-53 0 - - -\n"
              "1 0000:02:00.0 6-11,54-59 0 - - -\n"
              "2 0000:03:00.0 12-17,60-65 0 - - -\n"
              "3 0000:04:00.0 18-23,66-71 0 - - -\n"
              "4 0000:05:00.0 24-29,72-77 1 - - -\n"
              "5 0000:06:00.0 30-35,78-83 1 - - -\n"
              "6 0000:07:00.0 36-41,84-89 1 - - -\n"
              "7 0000:08:00.0 42-47,90-95 1 - - -\n" },
    { .name = "024: four MIG devices of one GPU, by UUID, near their parent",
      .machine = machine_mig_4, .ntasks = 4,
      .want = "0 MIG-uuid-a 8-9 1 - - -\n"
              "1 MIG-uuid-b 10-11 1 - - -\n"
              "2 MIG-uuid-c 12-13 1 - - -\n"
              "3 MIG-uuid-d 14-15 1 - - -\n" },
    { .name = "026a: local rank 0 is 01:00.0 though CUDA puts the fastest first",
      .machine = machine_mixed_models, .ntasks = 5,
      .want = "0 0000:01:00.0 0 0 - - -\n1 0000:02:00.0 1 0 - - -\n"
              "2 0000:03:00.0 2 0 - - -\n3 0000:04:00.0 3 0 - - -\n"
              "4 0000:08:00.0 4 0 - - -\n",
      .says = { "GPU models differ (GTX 750, GTX 750 Ti)" } },
    { .name = "026b: a job that owns physical GPU 3 gets the CPUs near it",
      .machine = machine_lopsided_1_3, .ntasks = 1,
      .gpus = "3",
      .want = "0 0000:04:00.0 16-31,48-63 1 - - -\n" },
    { .name = "036: locality unknown: even, memory not bound, one line",
      .machine = machine_kvm_unknown, .ntasks = 2, .options = "mem=strict",
      .not_as_asked = true,
      .want = "0 0000:01:00.0 0-7 - - - unknown\n"
              "1 0000:02:00.0 8-15 - - - unknown\n",
      .says = { "PCI locality unknown (virtual machine)" } },
    { .name = "038: NIC i belongs to GPU 7-i, in a two-GPU job",
      .machine = machine_h20_vm, .ntasks = 2,
      .cpus = "0-63",
      .gpus = "0-1",
      .want = "0 0000:01:00.0 0-31 0 mlx5_bond_7 PIX -\n"
              "1 0000:02:00.0 32-63 0 mlx5_bond_6 PIX -\n" },
    { .name = "040: ND v4 binds by the system's NUMA nodes",
      .machine = machine_ndv4, .ntasks = 8,
      .want = "0 0001:00:00.0 24-35 1 - - -\n"
              "1 0002:00:00.0 36-47 1 - - -\n"
              "2 0003:00:00.0 0-11 0 - - -\n"
              "3 0004:00:00.0 12-23 0 - - -\n"
              "4 000b:00:00.0 72-83 3 - - -\n"
              "5 000c:00:00.0 84-95 3 - - -\n"
              "6 000d:00:00.0 48-59 2 - - -\n"
              "7 000e:00:00.0 60-71 2 - - -\n" },
};
/* clang-format on */

int main(void)
{
    return run_plan_cases(cases, sizeof cases / sizeof cases[0]);
}
