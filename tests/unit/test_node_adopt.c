/* SPDX-License-Identifier: BSD-3-Clause */
/* test_node_adopt.c - a topology file where the system does not know the locality */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/unit/synth.h"

static void none(struct mu_node *file)
{
}

static void same_mask_everywhere(struct mu_node *file)
{
    for (int i = 0; i < file->nnumas; i++)
        file->numas[i].cpus = file->numas[0].cpus;
    file->gpus[1].local = file->numas[0].cpus;
}

static void half_a_node(struct mu_node *file)
{
    for (int cpu = 4; cpu < 8; cpu++)
        mu_cpuset_remove(&file->gpus[1].local, cpu);
}

static void other_gpus(struct mu_node *file)
{
    strcpy(file->gpus[0].busid, "0000:77:00.0");
}

static void other_cpus(struct mu_node *file)
{
    memset(&file->gpus[1].local, 0, sizeof file->gpus[1].local);
    mu_cpuset_add_range(&file->gpus[1].local, 100, 107);
}

static void whole_machine(struct mu_node *file)
{
    mu_cpuset_add_range(&file->gpus[0].local, 0, 15);
    mu_cpuset_add_range(&file->gpus[1].local, 0, 15);
}

/* The system: 2 x 8 cores, 2 GPUs, nobody knows where. The file: GPU 0 near 8-15, GPU 1
 * near 0-7, beside mlx5_1 and mlx5_0.
 */
static const struct adopt_case {
    const char *name;
    void (*spoil)(struct mu_node *file);
    int rc;
    const char *want; /* rows, or the sentence */
} cases[] = {
    { "a consistent file gives places and paths", none, 2,
      "0 0000:01:00.0 8-15 1 mlx5_1 PIX topofile\n"
      "1 0000:02:00.0 0-7 0 mlx5_0 PIX topofile\n" },
    { "040: the same mask for all NUMA nodes is refused", same_mask_everywhere, -1,
      "the topology file gives NUMA nodes 0 and 1 the same CPUs: it is not used" },
    { "a mask that cuts a NUMA node in two is refused", half_a_node, -1,
      "the topology file's CPUs near GPU 0000:02:00.0 are only a part of NUMA node 0: "
      "it is "
      "not used" },
    { "039: a file of another machine's GPUs is refused", other_gpus, -1,
      "the topology file does not name GPU 0000:01:00.0: it is not used" },
    { "CPUs that are not here are refused", other_cpus, -1,
      "the topology file names no CPU of this machine near GPU 0000:02:00.0: it is not "
      "used" },
    { "near the whole machine is a place, too", whole_machine, 2,
      "0 0000:01:00.0 0-7 0 mlx5_1 PIX topofile\n"
      "1 0000:02:00.0 8-15 1 mlx5_0 PIX topofile\n" },
};

static void machine(struct mu_node *node, bool known)
{
    struct mu_err err = { 0 };

    synth_cpus(node, 2, 1, 8, 1);
    synth_gpu(node, "0000:01:00.0", known ? 1 : -1);
    synth_gpu(node, "0000:02:00.0", known ? 0 : -1);
    synth_nic(node, "mlx5_0", "0000:03:00.0", known ? 0 : -1);
    synth_nic(node, "mlx5_1", "0000:04:00.0", known ? 1 : -1);
    synth_links(node);
    if (known) {
        synth_path(node, 0, 1, MU_NEAR_PIX);
        synth_path(node, 1, 0, MU_NEAR_PIX);
    }
    assert_int_equal(mu_node_finish(node, &err), 0);
}

static void run_case(void **state)
{
    const struct adopt_case *c = *state;
    struct mu_node node = { 0 }, file = { 0 };
    struct mu_alloc alloc;
    struct mu_plan plan;
    struct mu_err err = { 0 };
    char *rows;

    machine(&node, false);
    machine(&file, true);
    c->spoil(&file);
    assert_int_equal(mu_node_adopt(&node, &file, &err), c->rc);
    synth_alloc(&node, 2, &alloc);
    rows = synth_plan(&node, &alloc, "", &plan);
    assert_string_equal(c->rc < 0 ? err.text : rows, c->want);
    if (c->rc < 0)
        assert_string_equal(rows, "0 0000:01:00.0 0-7 - mlx5_0,mlx5_1 SYS unknown\n"
                                  "1 0000:02:00.0 8-15 - mlx5_0,mlx5_1 SYS unknown\n");
    else
        assert_int_equal(mu_node_adopt(&node, &file, &err), 0);
    free(rows);
    mu_plan_clear(&plan);
    mu_node_clear(&node);
    mu_node_clear(&file);
}

int main(void)
{
    enum { N = sizeof cases / sizeof cases[0] };
    static struct CMUnitTest tests[N];

    for (int i = 0; i < N; i++)
        tests[i] = (struct CMUnitTest){ .name = cases[i].name,
                                        .test_func = run_case,
                                        .initial_state = (void *)&cases[i] };
    return _cmocka_run_group_tests("adopt", tests, N, NULL, NULL);
}
