/* SPDX-License-Identifier: BSD-3-Clause */
/* test_node.c - a machine's normal form, GPU names and distances */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "runtime/base/parse.h"
#include "tests/unit/synth.h"

static const struct busid_case {
    const char *name, *text, *normal; /* normal NULL: no PCI address */
} busids[] = {
    { "as plans write it", "0000:07:00.0", "0000:07:00.0" },
    { "without a domain", "07:00.0", "0000:07:00.0" },
    { "nvidia-smi's eight digits", "00000000:07:00.0", "0000:07:00.0" },
    { "upper case", "0000:C1:00.0", "0000:c1:00.0" },
    { "a domain above 0", "0039:01:00.0", "0039:01:00.0" },
    { "a domain of VMD", "10000:01:00.0", "10000:01:00.0" },
    { "a function", "0000:07:1f.7", "0000:07:1f.7" },
    { "NCCL's form has no colons", "3000", NULL },
    { "no function", "0000:07:00", NULL },
    { "a device above 1f", "0000:07:20.0", NULL },
    { "a function above 7", "0000:07:00.8", NULL },
    { "text after it", "0000:07:00.0x", NULL },
    { "a fourth part", "0:0000:07:00.0", NULL },
    { "nine digits of domain", "000000000:07:00.0", NULL },
    { "nothing", "", NULL },
};

static void bus_ids_have_one_form(void **state)
{
    for (size_t i = 0; i < sizeof busids / sizeof busids[0]; i++) {
        char out[MU_BUSID_LEN] = "untouched";
        int rc = mu_busid_normal(busids[i].text, out, NULL);

        if (rc != (busids[i].normal ? 0 : -1) ||
            strcmp(out, busids[i].normal ? busids[i].normal : "untouched") != 0)
            fail_msg("%s: %d, %s", busids[i].name, rc, out);
    }
}

/* Everything in the wrong order: numas[] descending, cores and CPUs, GPUs, NICs. */
static void backwards(struct mu_node *node)
{
    struct mu_numa swap;

    synth_cpus(node, 2, 1, 2, 2);
    swap = node->numas[0];
    node->numas[0] = node->numas[1];
    node->numas[1] = swap;
    node->numas[0].os_index = 8;
    synth_distances(node, 11, 40);
    node->numa_distance[1] = 33; /* from node 8 to node 0 */
    for (int c = 0; c < 4; c++) {
        node->cores[c].numa = 1 - node->cores[c].numa;
        node->cores[c].cpu[0] = c + 4;
        node->cores[c].cpu[1] = c;
    }
    node->cores[3].cpu[1] = 0; /* the last core has the lowest CPU */
    node->cores[0].cpu[1] = 3;
    synth_gpu(node, "00000000:C1:00.0", 0);
    synth_gpu(node, "07:00.0", 1);
    synth_nic(node, "b", "0000:c2:00.0", 0);
    synth_nic(node, "a", "0000:08:00.0", 1);
    synth_links(node);
    synth_path(node, 0, 0, MU_NEAR_PIX);
    synth_path(node, 1, 0, MU_NEAR_PHB);
    node->nvlinks[1] = 6; /* from c1 to 07 */
}

static void finish_sorts_all_arrays_and_their_matrices(void **state)
{
    struct mu_node node = { 0 };
    struct mu_err err = { 0 };

    backwards(&node);
    assert_int_equal(mu_node_finish(&node, &err), 0);
    assert_int_equal(node.numas[0].os_index, 0);
    assert_int_equal(node.numas[1].os_index, 8);
    assert_int_equal(mu_node_distance(&node, 1, 0), 33);
    assert_int_equal(mu_node_distance(&node, 0, 1), 40);
    assert_int_equal(node.cores[0].cpu[0], 0);
    assert_int_equal(node.cores[0].cpu[1], 7);
    assert_int_equal(node.cores[0].numa, 1);
    assert_int_equal(node.cores[3].cpu[0], 3);
    assert_int_equal(node.cores[3].numa, 0);
    assert_string_equal(node.gpus[0].busid, "0000:07:00.0");
    assert_string_equal(node.gpus[0].label, "0000:07:00.0");
    assert_int_equal(node.gpus[0].numa, 0);
    assert_string_equal(node.gpus[1].busid, "0000:c1:00.0");
    assert_int_equal(node.gpus[1].numa, 1);
    assert_string_equal(node.nics[0].name, "a");
    assert_int_equal(node.nics[1].numa, 1);
    assert_int_equal(node.gpu_nic[0 * 2 + 1], MU_NEAR_PHB);
    assert_int_equal(node.gpu_nic[1 * 2 + 1], MU_NEAR_PIX);
    assert_int_equal(node.nvlinks[1 * 2 + 0], 6);
    assert_int_equal(node.nvlinks[0 * 2 + 1], 0);
    mu_node_clear(&node);
    mu_node_clear(&node); /* once more is fine */
}

static void labels_tell_devices_of_one_function_apart(void **state)
{
    struct mu_node node = { 0 };
    struct mu_err err = { 0 };
    int gpu;

    synth_cpus(&node, 1, 1, 2, 1);
    synth_gpu(&node, "0001:02:00.0", 0);
    gpu = synth_gpu(&node, "0000:02:00.0", 0);
    node.gpus[gpu].sub = 1;
    mu_copy(node.gpus[gpu].model, sizeof node.gpus[gpu].model, "second");
    gpu = synth_gpu(&node, "0000:02:00.0", 0);
    node.gpus[gpu].sub = 0;
    gpu = synth_gpu(&node, "0002:00:00.0", 0);
    node.gpus[gpu].sub = 0;
    mu_copy(node.gpus[gpu].uuid, sizeof node.gpus[gpu].uuid, "MIG-1234");
    synth_gpu(&node, "", 0);
    assert_int_equal(mu_node_finish(&node, &err), 0);
    assert_string_equal(node.gpus[0].label, "0000:02:00.0/0");
    assert_string_equal(node.gpus[1].label, "0000:02:00.0/1");
    assert_string_equal(node.gpus[1].model, "second");
    assert_string_equal(node.gpus[2].label, "0001:02:00.0");
    assert_int_equal(node.gpus[2].sub, -1);
    assert_string_equal(node.gpus[3].label, "MIG-1234");
    assert_string_equal(node.gpus[4].label, "GPU4");

    assert_int_equal(mu_node_find_gpu(&node, "0000:02:00.0/1"), 1);
    assert_int_equal(mu_node_find_gpu(&node, "02:00.0"), 0);
    assert_int_equal(mu_node_find_gpu(&node, "00000001:02:00.0"), 2);
    assert_int_equal(mu_node_find_gpu(&node, "mig-1234"), 3);
    assert_int_equal(mu_node_find_gpu(&node, "gpu4"), 4);
    assert_int_equal(mu_node_find_gpu(&node, "0003:00:00.0"), -1);
    assert_int_equal(mu_node_find_gpu(&node, "7"), -1);
    assert_int_equal(mu_node_find_gpu(&node, ""), -1);
    mu_node_clear(&node);
}

static void finish_refuses_what_cannot_be(void **state)
{
    struct mu_node node = { 0 };
    struct mu_err err = { 0 };

    synth_cpus(&node, 1, 1, 2, 2);
    node.cores[1].cpu[1] = 0;
    assert_int_equal(mu_node_finish(&node, &err), -1);
    assert_string_equal(err.text, "CPU 0 belongs to two cores");
    node.cores[1].cpu[0] = 1;
    node.cores[1].cpu[1] = MU_CPUSET_MAX;
    assert_int_equal(mu_node_finish(&node, &err), -1);
    assert_string_equal(err.text, "CPU number 8192 is not within 0..8191");
    node.cores[1].ncpus = 9;
    assert_int_equal(mu_node_finish(&node, &err), -1);
    assert_string_equal(err.text, "a core has 9 CPUs; 1 to 8 are possible");
    mu_node_clear(&node);
    node.ngpus = 129;
    assert_int_equal(mu_node_finish(&node, &err), -1);
    assert_string_equal(err.text, "the machine has 129 GPUs; at most 128 are possible");
}

static void a_source_without_memory_sizes_does_not_tell(void **state)
{
    struct mu_node node = { 0 };
    struct mu_err err = { 0 };

    synth_cpus(&node, 2, 1, 1, 1);
    node.numas[0].memory = node.numas[1].memory = 0;
    assert_int_equal(mu_node_finish(&node, &err), 0);
    assert_true(node.numas[0].memory == UINT64_MAX);
    mu_node_clear(&node);
}

static void cores_are_local_then_by_numa_then_by_package(void **state)
{
    struct mu_node node = { 0 };
    struct mu_err err = { 0 };
    int d[4];

    synth_cpus(&node, 2, 2, 2, 1);
    synth_gpu_near(&node, "01:00.0", "0", 0);
    synth_gpu(&node, "02:00.0", -1);
    assert_int_equal(mu_node_finish(&node, &err), 0);
    for (int i = 0; i < 4; i++)
        d[i] = mu_node_core_distance(&node, 0, (const int[]){ 0, 1, 2, 4 }[i]);
    assert_int_equal(d[0], 0);
    assert_true(d[0] < d[1] && d[1] < d[2] && d[2] < d[3]);
    assert_int_equal(mu_node_core_distance(&node, 1, 4), 0);
    assert_int_equal(mu_node_distance(&node, 0, -1), 20);
    assert_int_equal(mu_node_distance(&node, 0, 0), 10);
    mu_node_clear(&node);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bus_ids_have_one_form),
        cmocka_unit_test(finish_sorts_all_arrays_and_their_matrices),
        cmocka_unit_test(labels_tell_devices_of_one_function_apart),
        cmocka_unit_test(finish_refuses_what_cannot_be),
        cmocka_unit_test(a_source_without_memory_sizes_does_not_tell),
        cmocka_unit_test(cores_are_local_then_by_numa_then_by_package),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
