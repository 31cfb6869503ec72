/* SPDX-License-Identifier: BSD-3-Clause */
/* test_plan_kinds.c - plans on kinds of machines of which no recording is at hand */
#include <string.h>

#include "tests/unit/plan_case.h"
#include "tests/unit/synth.h"

/* Eight performance cores of two threads, then sixteen efficiency cores of one. */
static void hybrid(struct mu_node *node)
{
    synth_cpus(node, 1, 1, 24, 1);
    for (int i = 0; i < 24; i++) {
        struct mu_core *core = &node->cores[i];

        core->ncpus = i < 8 ? 2 : 1;
        core->cpu[0] = i < 8 ? 2 * i : 8 + i;
        core->cpu[1] = 2 * i + 1;
    }
    mu_cpuset_parse("0-31", &node->numas[0].cpus, NULL);
}

static void hybrid_two_gpus(struct mu_node *node)
{
    hybrid(node);
    synth_gpu_near(node, "0000:01:00.0", "0-31", 0);
    synth_gpu_near(node, "0000:02:00.0", "0-31", 0);
    synth_links(node);
}

/* Two packages of four cores, the second threads of some off line. */
static void half_smt(struct mu_node *node)
{
    static const char *const offline = "10-13";
    struct mu_cpuset off;

    synth_cpus(node, 2, 1, 4, 2);
    mu_cpuset_parse(offline, &off, NULL);
    for (int i = 0; i < 8; i++)
        if (mu_cpuset_has(&off, node->cores[i].cpu[1]))
            node->cores[i].ncpus = 1;
    for (int n = 0; n < 2; n++)
        mu_cpuset_andnot(&node->numas[n].cpus, &off);
    for (int g = 0; g < 4; g++) {
        char busid[16] = "0000:01:00.0";

        busid[6] = (char)('1' + g);
        synth_gpu(node, busid, g / 2);
    }
    synth_links(node);
}

/* Two NUMA nodes with two GPUs each, and a GPU that the firmware does not place. */
static void one_unknown(struct mu_node *node)
{
    synth_cpus(node, 2, 1, 8, 1);
    synth_gpu(node, "0000:01:00.0", 0);
    synth_gpu(node, "0000:02:00.0", 0);
    synth_gpu(node, "0000:03:00.0", 1);
    synth_gpu(node, "0000:04:00.0", 1);
    synth_gpu(node, "0000:05:00.0", -1);
    synth_links(node);
}

static void two_unknown(struct mu_node *node)
{
    synth_cpus(node, 2, 1, 8, 1);
    synth_gpu(node, "0000:01:00.0", 0);
    synth_gpu(node, "0000:03:00.0", 1);
    synth_gpu(node, "0000:05:00.0", -1);
    synth_gpu(node, "0000:06:00.0", -1);
    synth_links(node);
}

static void unknown_first(struct mu_node *node)
{
    synth_cpus(node, 2, 1, 8, 1);
    synth_gpu(node, "0000:01:00.0", -1);
    synth_gpu(node, "0000:02:00.0", 0);
    synth_gpu(node, "0000:03:00.0", 1);
    synth_gpu(node, "0000:04:00.0", 0);
    synth_gpu(node, "0000:05:00.0", 1);
}

/* clang-format off */
static const struct plan_case cases[] = {
    { .name = "-c counts CPUs on cores of one and two threads alike",
      .machine = hybrid_two_gpus, .ntasks = 2, .per_task = 16,
      .want = "0 0000:01:00.0 0-15 0 - - -\n"
              "1 0000:02:00.0 16-31 0 - - -\n" },
    { .name = "the same without GPUs",
      .machine = hybrid, .ntasks = 2, .per_task = 16,
      .want = "0 - 0-15 0 - - -\n"
              "1 - 16-31 0 - - -\n" },
    { .name = "a core that turned out wide is not one too many",
      .machine = half_smt, .ntasks = 4, .per_task = 2,
      .want = "0 0000:01:00.0 0,8 0 - - -\n"
              "1 0000:02:00.0 1,9 0 - - -\n"
              "2 0000:03:00.0 4-5 1 - - -\n"
              "3 0000:04:00.0 6,14 1 - - -\n" },
    { .name = "a GPU of unknown place goes where there is most room, the others stay local",
      .machine = one_unknown, .ntasks = 5,
      .want = "0 0000:01:00.0 0-2 0 - - -\n"
              "1 0000:02:00.0 3-5 0 - - -\n"
              "2 0000:03:00.0 8-11 1 - - -\n"
              "3 0000:04:00.0 12-15 1 - - -\n"
              "4 0000:05:00.0 6-7 - - - unknown\n",
      .not_as_asked = true },
    { .name = "two of them spread",
      .machine = two_unknown, .ntasks = 4,
      .want = "0 0000:01:00.0 0-3 0 - - -\n"
              "1 0000:03:00.0 8-11 1 - - -\n"
              "2 0000:05:00.0 4-7 - - - unknown\n"
              "3 0000:06:00.0 12-15 - - - unknown\n",
      .not_as_asked = true },
    { .name = "a GPU of unknown place that is first on the bus does not mix the others",
      .machine = unknown_first, .ntasks = 2, .gpus = "0-4", .options = "gpu-bind=per_task:2",
      .want = "0 0000:02:00.0,0000:04:00.0 0-7 0 - - -\n"
              "1 0000:03:00.0,0000:05:00.0 8-15 1 - - -\n" },
    { .name = "nor does it hide that a task's others are apart",
      .machine = unknown_first, .ntasks = 1,
      .want = "0 0000:01:00.0,0000:02:00.0,0000:03:00.0,0000:04:00.0,0000:05:00.0 0-15 - "
              "- - split+unknown\n",
      .not_as_asked = true },
    { .name = "cores near nobody are theirs",
      .machine = one_unknown, .ntasks = 3, .gpus = "0-1,4",
      .want = "0 0000:01:00.0 0-3 0 - - -\n"
              "1 0000:02:00.0 4-7 0 - - -\n"
              "2 0000:05:00.0 8-15 - - - unknown\n",
      .not_as_asked = true },
    { .name = "beside a known GPU an unknown one does not make the task homeless",
      .machine = one_unknown, .ntasks = 2,
      .want = "0 0000:01:00.0,0000:02:00.0 0-7 0 - - -\n"
              "1 0000:03:00.0,0000:04:00.0,0000:05:00.0 8-15 - - - unknown\n",
      .not_as_asked = true },
    { .name = "one GPU whose place nobody knows: the others keep theirs, and it is named",
      .machine = one_unknown, .ntasks = 5, .per_task = 2,
      .want = "0 0000:01:00.0 0-1 0 - - -\n"
              "1 0000:02:00.0 2-3 0 - - -\n"
              "2 0000:03:00.0 8-9 1 - - -\n"
              "3 0000:04:00.0 10-11 1 - - -\n"
              "4 0000:05:00.0 4-5 - - - unknown\n",
      .says = { "PCI locality unknown for GPU 0000:05:00.0", "task 4 got CPUs without" },
      .not_as_asked = true },
};
/* clang-format on */

int main(void)
{
    return run_plan_cases(cases, sizeof cases / sizeof cases[0]);
}
