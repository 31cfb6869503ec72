/* SPDX-License-Identifier: BSD-3-Clause */
/* test_plan.c - the rules of the plan, on made-up machines */
#include "tests/unit/machines.h"
#include "tests/unit/plan_case.h"

/* clang-format off */
static const struct plan_case cases[] = {
    { .name = "a locality with fewer cores than tasks joins the nearest",
      .machine = machine_perlmutter, .ntasks = 2,
      .cpus = "0-15,16,32-47,48,64-79,80,96-111,112",
      .gpus = "0-1",
      .want = "0 0000:01:00.0 48,112 3 - - -\n"
              "1 0000:02:00.0 32-47,96-111 2 - - -\n" },
    { .name = "two tasks, one core there: the group shares evenly, first ones more",
      .machine = machine_pcie_8, .ntasks = 3,
      .cpus = "0-3,28",
      .gpus = "0,4-5",
      .want = "0 0000:01:00.0 0-1 0 - - -\n"
              "1 0000:05:00.0 2-3 0 - - remote\n2 0000:06:00.0 28 1 - - -\n",
      .says = { "too few CPUs near GPU 0000:05:00.0 (NUMA node 1: 1 core): task 1 "
                "uses CPUs of NUMA node 0" },
      .not_as_asked = true },
    { .name = "a NUMA node without a GPU is the nearest one",
      .machine = machine_dgx_a100, .ntasks = 4,
      .cpus = "16-47,144-175",
      .gpus = "0-3",
      .want = "0 0000:01:00.0 32-39,160-167 2 mlx5_0,mlx5_1 PXB remote\n"
              "1 0000:02:00.0 40-47,168-175 2 mlx5_0,mlx5_1 PXB remote\n"
              "2 0000:03:00.0 16-23,144-151 1 mlx5_2,mlx5_3 PXB -\n"
              "3 0000:04:00.0 24-31,152-159 1 mlx5_2,mlx5_3 PXB -\n",
      .says = { "no CPU near GPU 0000:01:00.0, 0000:02:00.0 (NUMA node 3)" },
      .not_as_asked = true },
    { .name = "cpus=all deals out every core, nearest first",
      .machine = machine_lopsided_1_3, .ntasks = 4, .options = "cpus=all",
      .want = "0 0000:01:00.0 0-7,32-39 0 - - -\n"
              "1 0000:02:00.0 8-15,40-47 0 - - remote\n"
              "2 0000:03:00.0 16-23,48-55 1 - - -\n"
              "3 0000:04:00.0 24-31,56-63 1 - - -\n" },
    { .name = "-c 3 on two threads is rounded up to two cores",
      .machine = machine_lopsided_1_3, .ntasks = 4, .per_task = 3,
      .want = "0 0000:01:00.0 0-1,32-33 0 - - -\n"
              "1 0000:02:00.0 16-17,48-49 1 - - -\n"
              "2 0000:03:00.0 18-19,50-51 1 - - -\n"
              "3 0000:04:00.0 20-21,52-53 1 - - -\n" },
    { .name = "-c: what is missing near is taken from the nearest",
      .machine = machine_lopsided_1_3, .ntasks = 4, .per_task = 12,
      .want = "0 0000:01:00.0 0-5,32-37 0 - - -\n"
              "1 0000:02:00.0 6-7,16-19,38-39,48-51 0-1 - - remote\n"
              "2 0000:03:00.0 20-25,52-57 1 - - -\n"
              "3 0000:04:00.0 26-31,58-63 1 - - -\n",
      .says = { "too few CPUs near GPU 0000:02:00.0 (NUMA node 1: 16 cores): task 1" },
      .not_as_asked = true },
    { .name = "-c larger than the step: as much as there is, and said",
      .machine = machine_lopsided_1_3, .ntasks = 2, .per_task = 8,
      .options = "share=yes",
      .cpus = "0-3,32-35",
      .gpus = "0",
      .want = "0 0000:01:00.0 0-1,32-33 0 - - shared\n"
              "1 0000:01:00.0 2-3,34-35 0 - - shared\n",
      .says = { "task 0 has 4 of the 8 CPUs that it asked for" },
      .not_as_asked = true },
    { .name = "a core of which the step owns one thread",
      .machine = machine_lopsided_1_3, .ntasks = 1,
      .cpus = "0-3,32,34",
      .gpus = "0",
      .want = "0 0000:01:00.0 0-3,32,34 0 - - -\n" },
    { .name = "-c on half-owned cores takes more of them",
      .machine = machine_lopsided_1_3, .ntasks = 1, .per_task = 4,
      .cpus = "0-3,32",
      .gpus = "0",
      .want = "0 0000:01:00.0 0-2,32 0 - - -\n" },
    { .name = "fewer cores than tasks: shared, never empty",
      .machine = machine_pcie_8, .ntasks = 8,
      .cpus = "0,28",
      .want = "0 0000:01:00.0 0 0 - - shared\n"
              "1 0000:02:00.0 0 0 - - shared\n"
              "2 0000:03:00.0 0 0 - - shared\n"
              "3 0000:04:00.0 0 0 - - shared\n"
              "4 0000:05:00.0 28 1 - - shared\n"
              "5 0000:06:00.0 28 1 - - shared\n"
              "6 0000:07:00.0 28 1 - - shared\n"
              "7 0000:08:00.0 28 1 - - shared\n",
      .says = { "8 tasks on this node but the step owns 2 cores: tasks share cores" },
      .not_as_asked = true },
    { .name = "every core has a task before one has two",
      .machine = machine_pcie_8, .ntasks = 4, .cpus = "0-1,28", .gpus = "0-3",
      .want = "0 0000:01:00.0 0 0 - - shared\n"
              "1 0000:02:00.0 0 0 - - shared\n"
              "2 0000:03:00.0 1 0 - - -\n"
              "3 0000:04:00.0 28 1 - - remote\n",
      .not_as_asked = true },
    { .name = "cores of a NUMA node that nobody is near are one locality",
      .machine = machine_lumi_l3, .ntasks = 1, .cpus = "0-15",
      .options = "gpu-bind=single:1",
      .want = "0 0000:01:00.0 0-15 0 - - remote\n",
      .not_as_asked = true },
    { .name = "of equally near NUMA nodes the one with more cores for each task",
      .machine = machine_perlmutter, .ntasks = 2, .cpus = "0-15,32-43", .gpus = "0,3",
      .want = "0 0000:01:00.0 32-43 2 - - remote\n"
              "1 0000:04:00.0 0-15 0 - - -\n",
      .not_as_asked = true },
    { .name = "a task that asked for less than a cache domain stays in one",
      .machine = machine_two_caches, .ntasks = 2, .per_task = 4, .cpus = "1-7,9-15",
      .want = "0 0000:01:00.0 1-4 0 - - -\n"
              "1 0000:02:00.0 9-12 0 - - -\n" },
    { .name = "cache domains that no size fits are filled in order",
      .machine = machine_two_caches, .ntasks = 2, .cpus = "0-4,8-12",
      .gpus = "0-1", .per_task = 5,
      .want = "0 0000:01:00.0 0-4 0 - - -\n"
              "1 0000:02:00.0 8-12 0 - - -\n" },
    { .name = "three tasks, two cache domains: in order of CPU numbers",
      .machine = machine_two_caches, .ntasks = 3, .options = "share=yes",
      .want = "0 0000:01:00.0 0-5 0 - - shared\n"
              "1 0000:02:00.0 6-10 0 - - -\n"
              "2 0000:01:00.0 11-15 0 - - shared\n" },
    { .name = "tasks without GPUs keep to a NUMA node though its numbers are even",
      .machine = machine_even_and_odd, .ntasks = 2,
      .want = "0 - 0,2,4,6,8,10,12,14 0 - - -\n"
              "1 - 1,3,5,7,9,11,13,15 1 - - -\n" },
    { .name = "a small task takes the NUMA node that it has most of",
      .machine = machine_pair_64, .ntasks = 3, .per_task = 2, .gpus = "",
      .want = "0 - 0-1 0 - - -\n1 - 64-65 1 - - -\n2 - 86-87 1 - - -\n" },
    { .name = "a NIC whose port is down keeps its place, and is noted",
      .machine = machine_port_down, .ntasks = 1,
      .want = "0 0000:01:00.0 0-3 0 mlx5_0 PIX nic-down\n" },
    { .name = "tasks without GPUs have the NICs near their CPUs",
      .machine = machine_port_down, .ntasks = 2, .gpus = "",
      .want = "0 - 0-1 0 mlx5_0,mlx5_1 NODE -\n1 - 2-3 0 mlx5_0,mlx5_1 NODE -\n" },
    { .name = "more tasks than GPUs: left to Slurm, with the counts",
      .machine = machine_pair_64, .ntasks = 3,
      .want = "0 - - - - - unbound\n1 - - - - - unbound\n2 - - - - - unbound\n",
      .says = { "3 tasks on this node but 2 GPUs: Muster leaves the tasks as Slurm placed "
                "them" },
      .not_as_asked = true },
    { .name = "share=yes deals them out, no warning",
      .machine = machine_pair_64, .ntasks = 3, .options = "share=yes",
      .want = "0 0000:01:00.0 0-31 0 - - shared\n"
              "1 0000:02:00.0 64-127 1 - - -\n"
              "2 0000:01:00.0 32-63 0 - - shared\n" },
    { .name = "share=no refuses, with the counts",
      .machine = machine_pair_64, .ntasks = 3, .options = "share=no",
      .want = "error: 3 tasks on this node but 2 GPUs, and share=no: start 2 tasks "
              "per node (--ntasks-per-node=2), ask for more GPUs, or set share=yes" },
    { .name = "strict refuses to share as well",
      .machine = machine_pair_64, .ntasks = 3, .options = "strict",
      .want = "error: 3 tasks on this node but 2 GPUs, and strict: start 2 tasks per "
              "node (--ntasks-per-node=2), ask for more GPUs, or set share=yes" },
    { .name = "bind=none leaves CPUs and memory alone",
      .machine = machine_pair_64, .ntasks = 2, .options = "bind=none",
      .want = "0 0000:01:00.0 - - - - unbound\n"
              "1 0000:02:00.0 - - - - unbound\n" },
    { .name = "mem=none binds CPUs only",
      .machine = machine_pair_64, .ntasks = 2, .options = "mem=none",
      .want = "0 0000:01:00.0 0-63 - - - -\n"
              "1 0000:02:00.0 64-127 - - - -\n" },
    { .name = "no CPU of the node is an error with its list",
      .machine = machine_pair_64, .ntasks = 2,
      .cpus = "500-501",
      .want = "error: the step owns none of the node's CPUs (it owns '500-501', the "
              "node's 128 cores have other numbers)" },
};
/* clang-format on */

int main(void)
{
    return run_plan_cases(cases, sizeof cases / sizeof cases[0]);
}
