/* SPDX-License-Identifier: BSD-3-Clause */
/* test_plan_gpu_bind.c - GPUs to tasks, under every binding and without one */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/unit/machines.h"
#include "tests/unit/synth.h"

static void four_gpus(struct mu_node *node, const int *numa)
{
    static const char *const busid[] = { "01:00.0", "02:00.0", "03:00.0", "04:00.0" };

    for (int i = 0; i < 4; i++)
        synth_gpu(node, busid[i], numa[i]);
}

/* Four GPUs of one NUMA node with NVLink between 0-2 and 1-3. */
static void bridged_across(struct mu_node *node)
{
    synth_cpus(node, 1, 1, 8, 1);
    four_gpus(node, (const int[]){ 0, 0, 0, 0 });
    synth_links(node);
    synth_nvlink(node, 0, 2, 4);
    synth_nvlink(node, 1, 3, 4);
}

/* The first GPU is linked to the next two alike, but only one way leaves a pair. */
static void bridged_greedily(struct mu_node *node)
{
    bridged_across(node);
    memset(node->nvlinks, 0, 16 * sizeof *node->nvlinks);
    synth_nvlink(node, 0, 1, 2);
    synth_nvlink(node, 0, 2, 2);
    synth_nvlink(node, 1, 3, 2);
}

/* A NUMA node for each GPU, NVLink between 0-3 and 1-2. */
static void bridged_over_numa(struct mu_node *node)
{
    synth_cpus(node, 1, 4, 4, 1);
    four_gpus(node, (const int[]){ 0, 1, 2, 3 });
    synth_links(node);
    synth_nvlink(node, 0, 3, 12);
    synth_nvlink(node, 1, 2, 12);
}

/* Pairs below one PCIe switch: 0-3 and 1-2. */
static void switched(struct mu_node *node)
{
    bridged_across(node);
    memset(node->nvlinks, 0, 16 * sizeof *node->nvlinks);
    node->gpu_gpu[3] = node->gpu_gpu[12] = MU_NEAR_PIX;
    node->gpu_gpu[6] = node->gpu_gpu[9] = MU_NEAR_PIX;
}

/* Two NUMA nodes of one package in turn. */
static void alternating_numa(struct mu_node *node)
{
    synth_cpus(node, 1, 2, 4, 1);
    four_gpus(node, (const int[]){ 0, 1, 0, 1 });
}

/* A NUMA node for each GPU, packages in turn. */
static void alternating_package(struct mu_node *node)
{
    synth_cpus(node, 2, 2, 4, 1);
    four_gpus(node, (const int[]){ 0, 2, 1, 3 });
}

static void alternating(struct mu_node *node)
{
    synth_cpus(node, 2, 1, 8, 1);
    four_gpus(node, (const int[]){ 0, 1, 0, 1 });
}

/* MIG_: the step's GPUs are MIG devices. */
enum visible { ALL, OWN, MIG_ALL, MIG_OWN };

static const struct bind_case {
    const char *name;
    void (*machine)(struct mu_node *node);
    int first, ngpus; /* owned; ngpus 0: all */
    int ntasks;
    const char *options;
    const char *want; /* node's GPU numbers, tasks apart by '|' */
    enum visible visible;
    const char *warning;
} cases[] = {
    { "one GPU per task: task i has GPU i", machine_dgx_a100, 0, 0, 8, "",
      "0|1|2|3|4|5|6|7", ALL, NULL },
    { "one GPU per task in a part of the node", machine_dgx_a100, 4, 4, 4, "",
      "4|5|6|7", ALL, NULL },
    { "none is as without a binding", machine_perlmutter, 0, 0, 4, "gpu-bind=none",
      "0|1|2|3", ALL, NULL },
    { "MIG devices: a task sees its own alone", machine_perlmutter, 0, 0, 4, "",
      "0|1|2|3", MIG_OWN, NULL },
    { "MIG devices: visible=all shows them all", machine_perlmutter, 0, 0, 4,
      "visible=all", "0|1|2|3", MIG_ALL, NULL },
    { "one task has them all", machine_perlmutter, 0, 0, 1, "", "0,1,2,3", ALL, NULL },
    { "4 tasks, 8 GPUs: pairs of a NUMA node", machine_dgx_a100, 0, 0, 4, "",
      "0,1|2,3|4,5|6,7", ALL, NULL },
    { "2 tasks, 8 GPUs on 4 NUMA nodes: a package each", machine_dgx_a100, 0, 0, 2, "",
      "0,1,2,3|4,5,6,7", ALL, NULL },
    { "3 tasks, 4 + 4 GPUs: only one spans the sockets", machine_p4d, 0, 0, 3, "",
      "0,1,2|3,7|4,5,6", ALL, NULL },
    { "alternating localities: groups stay in theirs", alternating, 0, 0, 2, "",
      "0,2|1,3", ALL, NULL },
    { "NUMA nodes of one package in turn: groups stay in theirs", alternating_numa, 0,
      0, 2, "", "0,2|1,3", ALL, NULL },
    { "packages in turn, a NUMA node each: groups stay in a package",
      alternating_package, 0, 0, 2, "", "0,2|1,3", ALL, NULL },
    { "1 + 3 GPUs, two tasks: one pair is whole", machine_lopsided_1_3, 0, 0, 2, "",
      "0,3|1,2", ALL, NULL },
    { "5 tasks, 8 GPUs: sizes differ by one", machine_p4d, 0, 0, 5, "",
      "0,1|2|3|4,5|6,7", ALL, NULL },
    { "NVLink neighbours stay together", bridged_across, 0, 0, 2, "", "0,2|1,3", ALL,
      NULL },
    { "the best pairs in all, not the first one's best", bridged_greedily, 0, 0, 2, "",
      "0,2|1,3", ALL, NULL },
    { "NVLink decides where no locality does", bridged_over_numa, 0, 0, 2, "",
      "0,3|1,2", ALL, NULL },
    { "PCIe switches decide where no NVLink does", switched, 0, 0, 2, "", "0,3|1,2",
      ALL, NULL },
    { "share=yes goes round, so that LOCAL_RANK modulo GPUs fits", machine_perlmutter,
      0, 0, 6, "share=yes", "0|1|2|3|0|1", ALL, NULL },

    { "single:1 is one each, and device 0", machine_perlmutter, 0, 0, 4,
      "gpu-bind=single:1", "0|1|2|3", OWN, NULL },
    { "single:2 puts two tasks on each", machine_perlmutter, 0, 0, 8,
      "gpu-bind=single:2", "0|0|1|1|2|2|3|3", OWN, NULL },
    { "single:1 with fewer tasks leaves GPUs", machine_perlmutter, 0, 0, 2,
      "gpu-bind=single:1", "0|1", OWN, NULL },
    { "single:1 with more tasks goes round", machine_perlmutter, 0, 0, 6,
      "gpu-bind=single:1", "0|1|2|3|0|1", OWN, NULL },
    { "per_task:1", machine_perlmutter, 0, 0, 4, "gpu-bind=per_task:1", "0|1|2|3", OWN,
      NULL },
    { "per_task:2 takes near ones", machine_lopsided_1_4, 0, 0, 2,
      "gpu-bind=per_task:2", "1,2|3,4", OWN, NULL },
    { "per_task:3 of 4 GPUs for two tasks goes round", machine_perlmutter, 0, 0, 2,
      "gpu-bind=per_task:3", "0,1,2|3,0,1", OWN, NULL },
    { "per_task:9 of 4 GPUs is all of them, and said", machine_perlmutter, 0, 0, 1,
      "gpu-bind=per_task:9", "0,1,2,3", OWN, "asks for 9 GPUs per task" },
    { "map_gpu turned round", machine_perlmutter, 0, 0, 4, "gpu-bind=map_gpu:3+2+1+0",
      "3|2|1|0", OWN, NULL },
    { "map_gpu counts the step's GPUs", machine_dgx_a100, 4, 4, 2, "gpu-bind=map:2+0",
      "6|4", OWN, NULL },
    { "map_gpu is a ring", machine_perlmutter, 0, 0, 5, "gpu-bind=map_gpu:1+3",
      "1|3|1|3|1", OWN, NULL },
    { "map_gpu beyond the step is refused", machine_dgx_a100, 4, 2, 2,
      "gpu-bind=map_gpu:0+2",
      "error: gpu-bind 'map_gpu:0,2' names GPU 2 for task 1, but the step owns 2 on "
      "this "
      "node (0 to 1)",
      ALL, NULL },
    { "an entry that no task uses does not matter", machine_dgx_a100, 4, 2, 1,
      "gpu-bind=map_gpu:0+2", "4", OWN, NULL },
    { "mask_gpu", machine_perlmutter, 0, 0, 2, "gpu-bind=mask_gpu:0xc+0x3", "2,3|0,1",
      OWN, NULL },
    { "mask_gpu is a ring and may share", machine_perlmutter, 0, 0, 3,
      "gpu-bind=mask:0x5+0x1", "0,2|0|0,2", OWN, NULL },
    { "mask_gpu beyond the step is refused", machine_perlmutter, 0, 0, 1,
      "gpu-bind=mask_gpu:0x1f",
      "error: gpu-bind 'mask_gpu:0x1f' names GPU 4 for task 0, but the step owns 4 on "
      "this "
      "node (0 to 3)",
      ALL, NULL },
    { "closest among several localities: its own alone, so device 0 is nobody else's",
      machine_dgx_a100, 0, 0, 8, "gpu-bind=closest", "0|1|2|3|4|5|6|7", OWN, NULL },
    { "closest, a task per NUMA node", machine_dgx_a100, 0, 0, 4, "gpu-bind=closest",
      "0,1|2,3|4,5|6,7", OWN, NULL },
    { "closest where all are equally close is as no binding: counted by LOCAL_RANK",
      machine_kvm_unknown, 0, 0, 2, "gpu-bind=closest", "0|1", ALL,
      "PCI locality unknown" },
    { "closest with more tasks than GPUs", machine_pair_64, 0, 0, 4, "gpu-bind=closest",
      "0|1|0|1", OWN, NULL },

    { "visible=own without a binding", machine_perlmutter, 0, 0, 4, "visible=own",
      "0|1|2|3", OWN, NULL },
    { "visible=all beats a binding", machine_perlmutter, 0, 0, 4,
      "visible=all,gpu-bind=single:1", "0|1|2|3", ALL, NULL },
    { "bind=none still knows whose GPU is whose", machine_perlmutter, 0, 0, 4,
      "bind=none,gpu-bind=map_gpu:3+2+1+0", "3|2|1|0", OWN, NULL },
    { "share=no refuses single:2 as well", machine_perlmutter, 0, 0, 8,
      "share=no,gpu-bind=single:2",
      "error: 8 tasks on this node but 4 GPUs, and share=no: start 4 tasks per node "
      "(--ntasks-per-node=4), ask for more GPUs, or set share=yes",
      ALL, NULL },
};

static void put_gpus(char *out, size_t size, const struct mu_plan *plan)
{
    size_t n = 0;

    out[0] = '\0';
    for (int t = 0; t < plan->nslots; t++)
        for (int i = 0; i < plan->slots[t].ngpus && n < size; i++)
            n += (size_t)snprintf(out + n, size - n, "%s%d",
                                  i   ? ","
                                  : t ? "|"
                                      : "",
                                  plan->slots[t].gpu_node[i]);
}

static void run_case(void **state)
{
    const struct bind_case *c = *state;
    struct mu_node node = { 0 };
    struct mu_alloc alloc;
    struct mu_plan plan;
    struct mu_err err = { 0 };
    char *rows, *said, got[256];

    c->machine(&node);
    if (mu_node_finish(&node, &err) < 0)
        fail_msg("%s", err.text);
    synth_alloc(&node, c->ntasks, &alloc);
    alloc.mig = c->visible == MIG_OWN || c->visible == MIG_ALL;
    if (c->ngpus) {
        alloc.ngpus = c->ngpus;
        for (int i = 0; i < c->ngpus; i++)
            alloc.gpu_node[i] = c->first + i;
    }
    rows = synth_plan(&node, &alloc, c->options, &plan);
    said = synth_said(&plan);
    put_gpus(got, sizeof got, &plan);
    assert_string_equal(strncmp(rows, "error:", 6) ? got : rows, c->want);
    assert_int_equal(plan.own_visible, c->visible == OWN || c->visible == MIG_OWN);
    assert_int_equal(plan.nwarnings, c->warning ? 1 : 0);
    if (c->warning)
        assert_non_null(strstr(said, c->warning));
    free(rows);
    free(said);
    mu_plan_clear(&plan);
    mu_node_clear(&node);
}

int main(void)
{
    enum { N = sizeof cases / sizeof cases[0] };
    static struct CMUnitTest tests[N];

    for (int i = 0; i < N; i++)
        tests[i] = (struct CMUnitTest){ .name = cases[i].name,
                                        .test_func = run_case,
                                        .initial_state = (void *)&cases[i] };
    return _cmocka_run_group_tests("gpu binding", tests, N, NULL, NULL);
}
