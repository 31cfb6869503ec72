/* SPDX-License-Identifier: BSD-3-Clause */
/* test_nccl.c - NCCL variables that follow from a recorded machine's paths, and those
 * for slices of one GPU (case 024)
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "spank/core/nccl/nccl_variables.h"
#include "spank/hw/load/node_load.h"

static const struct gdr_case {
    const char *name, *file;
    int nnodes;
    bool direct_dma;
    const char *level; /* NULL: not set */
    bool guest;
} gdrs[] = {
    { "032: each GPU's NICs below its own host bridge", "cases/032-nodeA-topo-m.txt", 2,
      true, "PHB", false },
    { "the same with an IOMMU or Intel's processors", "cases/032-nodeA-topo-m.txt", 2,
      false, NULL, false },
    { "the same on one node: no NIC is used", "cases/032-nodeA-topo-m.txt", 1, true,
      NULL, false },
    { "NICs behind switches: NCCL knows by itself",
      "hwloc-xml/turin-nps4-4xh200-nvml.xml", 2, true, NULL, false },
    { "some GPUs at PHB, others over the packages: NCCL's own level stays",
      "nccl-xml/azure-ndv2.xml", 2, true, NULL, false },
    { "AMD's GPUs: RCCL has its own rules", "hwloc-xml/llnl-tuolumne-4xmi300a-spx.xml",
      2, true, NULL, false },
    { "038: one switch each, in a virtual machine",
      "cases/038-h20-vm-reversed-nics-topo-m.txt", 2, true, NULL, false },
    { "032 as a virtual machine, whose bus is not the real one",
      "cases/032-nodeA-topo-m.txt", 2, true, NULL, true },
};

static void the_gdr_level_follows_from_the_paths(void **state)
{
    struct mu_settings *out = calloc(1, sizeof *out);

    for (size_t i = 0; i < sizeof gdrs / sizeof gdrs[0]; i++) {
        const struct gdr_case *c = &gdrs[i];
        struct mu_node node = { 0 };
        struct mu_alloc alloc = { 0 };
        struct mu_plan plan = { 0 };
        struct mu_opts opts;
        struct mu_err err = { 0 };
        struct mu_nccl_input in = { .node = &node,
                                    .plan = &plan,
                                    .nnodes = c->nnodes,
                                    .direct_dma = c->direct_dma };
        const struct mu_setting *level;
        char path[4200];

        snprintf(path, sizeof path, "%s/tests/data/%s", getenv("MUSTER_SRCDIR"),
                 c->file);
        if (mu_node_load_file(path, &node, &err) < 0)
            fail_msg("%s", err.text);
        node.virtual_machine |= c->guest;
        mu_opts_defaults(&opts);
        mu_node_cpus(&node, &alloc.cpus);
        alloc.ntasks = node.ngpus;
        for (; alloc.ngpus < node.ngpus; alloc.ngpus++)
            alloc.gpu_node[alloc.ngpus] = alloc.ngpus;
        if (mu_plan_make(&node, &alloc, &opts, &plan, &err) < 0)
            fail_msg("%s: %s", c->name, err.text);
        out->n = 0;
        assert_int_equal(mu_nccl_decide(&in, out, &err), 0);
        level = mu_settings_find(out, "NCCL_NET_GDR_LEVEL");
        if ((level != NULL) != (c->level != NULL) ||
            (level && strcmp(level->value, c->level) != 0))
            fail_msg("%s: %s", c->name, level ? level->value : "not set");
        if (level)
            assert_non_null(strstr(level->reason, "below the GPU's host bridge"));
        assert_int_equal(out->n, level != NULL); /* nothing else, no P2P variable */
        mu_plan_clear(&plan);
        mu_node_clear(&node);
    }
    free(out);
}

static const struct share_case {
    const char *version;
    bool known, set;
} shares[] = {
    { "2.27.7", true, false }, { "2.29.3", true, false }, { "2.30.0", true, true },
    { "2.31.2", true, true },  { "3.0.1", true, true },   { "?", true, true },
    { "", false, true },
};

static void case_024_slices_of_one_gpu_need_a_new_nccl(void **state)
{
    struct mu_settings *out = calloc(1, sizeof *out);
    struct mu_gpu gpus[2] = {
        { .busid = "0000:59:00.0", .uuid = "MIG-a", .vendor = MU_VENDOR_NVIDIA },
        { .busid = "0000:59:00.0", .uuid = "MIG-b", .vendor = MU_VENDOR_NVIDIA },
    };
    struct mu_node node = { .ngpus = 2, .gpus = gpus };
    struct mu_slot slots[2] = { { .ngpus = 1, .gpu_node = { 0 } },
                                { .task = 1, .ngpus = 1, .gpu_node = { 1 } } };
    struct mu_plan plan = { .nslots = 2, .slots = slots };
    struct mu_nccl_input in = { .node = &node, .plan = &plan, .nnodes = 1 };
    const struct mu_setting *set;

    for (size_t i = 0; i < sizeof shares / sizeof shares[0]; i++) {
        struct mu_library library = { "/usr/lib/libnccl.so.2", "" };

        snprintf(library.version, sizeof library.version, "%s", shares[i].version);
        in.library = shares[i].known ? &library : NULL;
        out->n = 0;
        assert_int_equal(mu_nccl_decide(&in, out, NULL), 0);
        set = mu_settings_find(out, "NCCL_MULTI_RANK_GPU_ENABLE");
        if ((set != NULL) != shares[i].set)
            fail_msg("NCCL %s", shares[i].version);
        if (set && !strstr(set->reason, "share one GPU")) /* by slices or shards */
            fail_msg("the reason is '%s'", set->reason);
    }
    strcpy(gpus[1].busid, "0000:5a:00.0"); /* slices of two GPUs */
    out->n = 0;
    assert_int_equal(mu_nccl_decide(&in, out, NULL), 0);
    assert_int_equal(out->n, 0);
    free(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_gdr_level_follows_from_the_paths),
        cmocka_unit_test(case_024_slices_of_one_gpu_need_a_new_nccl),
    };

    return cmocka_run_group_tests_name("nccl", tests, NULL, NULL);
}
