/* SPDX-License-Identifier: BSD-3-Clause */
/* test_doctor.c - what the doctor finds in given facts; case numbers of the case log */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "spank/core/doctor.h"
#include "spank/core/gres_conf.h"

static struct mu_findings found;

static int clear(void **state)
{
    mu_findings_clear(&found);
    return 0;
}

/* The finding that holds `part`, or a failure that lists what there is. */
static const struct mu_finding *finding(const char *part)
{
    for (int i = 0; i < found.n; i++)
        if (strstr(found.item[i].what, part) || strstr(found.item[i].todo, part))
            return &found.item[i];
    for (int i = 0; i < found.n; i++)
        print_message("found: %s | %s\n", found.item[i].what, found.item[i].todo);
    fail_msg("no finding says '%s'", part);
    return NULL;
}

static void nothing_above(enum mu_severity severity)
{
    for (int i = 0; i < found.n; i++)
        if (found.item[i].severity > severity)
            fail_msg("unexpected: %s", found.item[i].what);
}

/* Two packages of four cores with two threads, NUMA 0: 0-3,8-11, NUMA 1: 4-7,12-15. */
struct machine {
    struct mu_core cores[8];
    struct mu_numa numas[2];
    struct mu_gpu gpus[2];
    struct mu_node node;
};

static void machine(struct machine *m)
{
    *m = (struct machine){ 0 };
    for (int i = 0; i < 8; i++)
        m->cores[i] = (struct mu_core){
            .ncpus = 2, .cpu = { i, i + 8 }, .numa = i / 4, .package = i / 4
        };
    for (int n = 0; n < 2; n++) {
        m->numas[n].os_index = n;
        mu_cpuset_add_range(&m->numas[n].cpus, 4 * n, 4 * n + 3);
        mu_cpuset_add_range(&m->numas[n].cpus, 4 * n + 8, 4 * n + 11);
        m->gpus[n] = (struct mu_gpu){
            .minor = n, .numa = n, .local_known = true, .local = m->numas[n].cpus
        };
    }
    m->node = (struct mu_node){ .core_data = true,
                                .ncores = 8,
                                .cores = m->cores,
                                .nnumas = 2,
                                .numas = m->numas,
                                .ngpus = 2,
                                .gpus = m->gpus };
}

static void c005_cpus_per_task_counts_threads(void **state)
{
    char *env[] = { "SLURM_CPUS_PER_TASK=16", NULL };
    struct machine m;
    struct mu_facts facts = { .env = env, .node = &m.node };

    machine(&m);
    mu_doctor_step(&facts, &found);
    finding("-c 16 on a 2-thread machine is 8 cores per task");
}

static void c015_an_inherited_mask_is_decoded_and_named(void **state)
{
    char *env[] = { "SLURM_CPU_BIND=quiet,mask_cpu:0x200000",
                    "SLURM_CPU_BIND_LIST=0x200000", NULL };
    char *task[] = { "SLURM_PROCID=0", "SLURM_CPU_BIND_LIST=0x1", NULL };
    struct mu_facts facts = { .env = env };
    char text[256];

    mu_doctor_step(&facts, &found);
    finding("0x200000 is CPUs 21");
    finding("unset SLURM_CPU_BIND");
    mu_findings_clear(&found);
    facts.env = task;
    mu_doctor_step(&facts, &found);
    nothing_above(MU_OK);
    assert_int_equal(
        mu_doctor_explain_mask("0x00000000000003000000000000070000000000000300"
                               "000000000007",
                               NULL, text, sizeof text, NULL),
        0);
    assert_non_null(strstr(text, "CPUs 0-2,56-57,112-114,168-169"));
    assert_int_equal(
        mu_doctor_explain_mask("0x0000000000000FFF80000000000000000000000FFF800"
                               "0000000",
                               NULL, text, sizeof text, NULL),
        0);
    assert_non_null(strstr(text, "CPUs 39-51,143-155"));
}

static void c018_nccl_masks_are_explained_with_their_numa_nodes(void **state)
{
    struct machine m;
    char text[256];

    machine(&m);
    assert_int_equal(mu_doctor_explain_mask("f0f", &m.node, text, sizeof text, NULL),
                     0);
    assert_string_equal(text, "f0f is CPUs 0-3,8-11, on NUMA nodes 0 of this machine");
    assert_int_equal(mu_doctor_explain_mask("ffff,ffffffff,ffffffff,ff000000,00000000,"
                                            "00000000",
                                            NULL, text, sizeof text, NULL),
                     0);
    assert_non_null(strstr(text, "CPUs 88-175"));
}

static void c016_one_cpu_while_the_job_owns_many(void **state)
{
    char *env[] = { "SLURM_PROCID=0", "SLURM_CPUS_ON_NODE=32",
                    "SLURM_STEP_TASKS_PER_NODE=4", NULL };
    char *all[] = { "SLURM_PROCID=0", "SLURM_CPUS_ON_NODE=4",
                    "SLURM_STEP_TASKS_PER_NODE=4", NULL };
    char *both[] = { "SLURM_CPUS_PER_TASK=4", "SRUN_CPUS_PER_TASK=8", NULL };
    struct mu_facts facts = { .env = env };

    mu_cpuset_add(&facts.affinity, 3);
    mu_doctor_step(&facts, &found);
    finding("1 CPU while the job owns 32");
    finding("export SRUN_CPUS_PER_TASK");
    mu_findings_clear(&found);
    facts.env = all;
    mu_doctor_step(&facts, &found);
    nothing_above(MU_OK);
    facts.env = both;
    mu_doctor_step(&facts, &found);
    finding("differ: srun refuses to start");
}

static void c013_the_mask_before_and_after_is_shown(void **state)
{
    char *env[] = { "SLURM_PROCID=0", "SLURM_CPU_BIND_LIST=0x3",
                    "MUSTER_PLAN=v=1;task=0;gpus=-;cpus=4-5;mems=-;nics=-;path=-",
                    NULL };
    struct mu_facts facts = { .env = env };

    mu_cpuset_add_range(&facts.affinity, 4, 5);
    mu_doctor_step(&facts, &found);
    finding("runs on CPUs 4-5 as Muster placed it; Slurm's own mask was 0x3");
    mu_cpuset_add(&facts.affinity, 6);
    mu_doctor_step(&facts, &found);
    finding("placed this task on CPUs 4-5, but it runs on 4-6");
}

static void c044_a_launcher_per_task_is_found(void **state)
{
    char *env[] = { "SLURM_PROCID=0", "SLURM_STEP_TASKS_PER_NODE=8(x16)", NULL };
    char *one[] = { "SLURM_PROCID=0", "SLURM_STEP_TASKS_PER_NODE=1(x16)", NULL };
    struct mu_facts facts = { .env = env,
                              .command_line = "torchrun --nproc_per_node=8 t" };

    mu_doctor_step(&facts, &found);
    finding("8 copies of torchrun run on each node");
    finding("8 x 8 = 64");
    mu_findings_clear(&found);
    facts.env = one;
    mu_doctor_step(&facts, &found);
    nothing_above(MU_OK);
    facts.command_tasks = 4; /* counted, whatever the doctor's own step has */
    mu_doctor_step(&facts, &found);
    finding("4 copies of torchrun run on each node");
}

static const struct count_case {
    const char *name;
    struct mu_gpu_counts counts;
    enum mu_severity severity;
    const char *part;
} counts[] = {
    { "all agree", { 4, 4, 4, 4, 4 }, MU_OK, "by Slurm 4" },
    { "narrowed by environment alone",
      { 4, 1, 4, 4, 4 },
      MU_OK,
      "CUDA_VISIBLE_DEVICES 1" },
    { "020 peers hidden by the task's device cgroup",
      { 4, 1, 1, 1, 4 },
      MU_WARNING,
      "P2P over NVLink is impossible" },
    { "023b no device constraint",
      { 2, 2, 16, 16, 16 },
      MU_WARNING,
      "ConstrainDevices" },
    { "026c the script's own list", { 4, 8, 4, 4, 4 }, MU_WARNING, "do not set it" },
    { "023a hidden a second time by the container",
      { -1, -1, 0, 4, 4 },
      MU_WARNING,
      "container hook" },
};

static void c020_c023_gpus_are_counted_four_ways(void **state)
{
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        struct mu_facts facts = { .gpus = counts[i].counts };

        mu_findings_clear(&found);
        mu_doctor_gpu(&facts, &found);
        if (finding(counts[i].part)->severity != counts[i].severity)
            fail_msg("%s", counts[i].name);
    }
}

static void c026_c038_order_and_models(void **state)
{
    char *env[] = { "CUDA_VISIBLE_DEVICES=1,0", NULL };
    char *fine[] = { "CUDA_VISIBLE_DEVICES=0,2,3", NULL };
    struct machine m;
    struct mu_facts facts = { .env = env,
                              .node = &m.node,
                              .gpus = { -1, -1, -1, -1, -1 } };

    machine(&m);
    mu_doctor_gpu(&facts, &found);
    finding("CUDA_VISIBLE_DEVICES=1,0 is not ascending");
    mu_findings_clear(&found);
    facts.env = fine;
    strcpy(m.gpus[0].model, "GTX 750");
    strcpy(m.gpus[1].model, "GTX 750 Ti");
    mu_doctor_gpu(&facts, &found);
    assert_int_equal(found.n, 1);
    finding("mixed GPU models (GTX 750, GTX 750 Ti)");
}

static void c024_mig_slices_need_a_new_nccl(void **state)
{
    char *env[] = { "CUDA_VISIBLE_DEVICES=MIG-1234", "NCCL_NVLS_ENABLE=1", NULL };
    struct mu_library old = { "/usr/lib/libnccl.so.2.27.7", "2.27.7" };
    struct mu_facts facts = {
        .env = env, .nccl = &old, .nnccl = 1, .gpus = { -1, -1, -1, -1, -1 }
    };

    mu_doctor_gpu(&facts, &found);
    finding("NCCL 2.27.7");
    finding("unset NCCL_NVLS_ENABLE");
    mu_findings_clear(&found);
    strcpy(old.version, "2.31.2");
    env[1] = NULL;
    mu_doctor_gpu(&facts, &found);
    assert_int_equal(found.n, 0);
}

static void add(struct mu_net *net, const char *name, const char *addr, bool loopback)
{
    struct mu_iface *iface = mu_net_add_iface(net, name);
    struct mu_addr a;

    iface->up = iface->carrier = true;
    iface->loopback = loopback;
    if (addr) {
        assert_int_equal(mu_addr_parse(addr, &a, NULL), 0);
        mu_iface_add_addr(iface, &a);
    }
}

static void c027_c029_c031_misleading_interfaces(void **state)
{
    char *env[] = { "NCCL_SOCKET_IFNAME=^docker0", NULL };
    struct mu_net net = { 0 }, lo = { 0 };
    struct mu_peer peer = { .host = "n2", .naddrs = 1 };
    struct mu_facts facts = { .env = env, .net = &net, .peers = &peer, .npeers = 1 };

    add(&net, "lo", "127.0.0.1/8", true);
    add(&net, "eno1", "10.9.3.15/20", false);
    add(&net, "enp37s0f0", "10.9.5.15/20", false);
    add(&net, "docker0", "172.17.0.1/16", false);
    assert_int_equal(mu_addr_parse("172.17.0.1", &peer.addr[0], NULL), 0);
    mu_doctor_network(&facts, &found);
    finding("eno1 (10.9.3.15/20) and enp37s0f0 (10.9.5.15/20) are in one subnet");
    finding("NCCL_SOCKET_IFNAME=^docker0 lets lo in");
    finding("172.17.0.1 on docker0 is also an address of node n2");
    assert_int_equal(found.n, 3);
    mu_findings_clear(&found);
    add(&lo, "lo", "203.0.113.17/32", true);
    add(&lo, "lan0", NULL, false);
    facts = (struct mu_facts){ .net = &lo };
    mu_doctor_network(&facts, &found);
    assert_int_equal(finding("203.0.113.17, is on lo")->severity, MU_ERROR);
    mu_net_clear(&net);
    mu_net_clear(&lo);
}

static void c034_c035_each_hca_is_judged(void **state)
{
    char *env[] = { "NCCL_NET=Socket", NULL };
    struct mu_nic nics[3] = {
        { .name = "mlx5_0",
          .numa = 0,
          .layer = MU_LINK_IB,
          .active = true,
          .gbits = 200,
          .guid = "a" },
        { .name = "mlx5_1",
          .numa = 0,
          .layer = MU_LINK_IB,
          .active = true,
          .gbits = 200,
          .guid = "a" },
        { .name = "mlx5_2",
          .numa = 1,
          .layer = MU_LINK_ETHERNET,
          .active = true,
          .gbits = 200,
          .guid = "b" },
    };
    enum mu_path paths[6] = { 0 };
    struct machine m;
    struct mu_facts facts = { .env = env, .node = &m.node };

    machine(&m);
    m.node.nnics = 3;
    m.node.nics = nics;
    m.node.gpu_nic = paths;
    mu_doctor_network(&facts, &found);
    finding("mlx5_0: InfiniBand, active, 200 Gb/s, NUMA 0, used");
    finding("mlx5_2: Ethernet, active, 200 Gb/s, NUMA 1, another link layer");
    finding("mlx5_0 and mlx5_1 are one card");
    finding(
        "NCCL_NET=Socket makes NCCL use sockets although 3 RDMA devices of up to 200");
}

static void c014_gres_conf_against_the_hardware(void **state)
{
    struct machine m;
    struct mu_facts facts = { .node = &m.node, .gres_file = "gres.conf" };

    machine(&m);
    facts.gres_conf = "Name=gpu File=/dev/nvidia0 CPUs=0-3,8-11\n"
                      "NodeName=n1 Name=gpu File=/dev/nvidia1 Cores=0-3\n";
    mu_doctor_slurm(&facts, &found);
    finding(
        "gres.conf line 1: Cores=0-3,8-11 are CPU numbers of Linux: this machine has 8 "
        "cores, so core 11 does not exist");
    finding(
        "GPU1: Slurm says 0-3,8-11 (gres.conf line 2), hardware says 4-7,12-15 (NUMA "
        "1)");
    mu_findings_clear(&found);
    facts.gres_conf = "AutoDetect=off\nName=gpu File=/dev/nvidia0 Cores=0-3 # near\n"
                      "Name=gpu File=/dev/nvidia1 COREs=4-7\n";
    mu_doctor_slurm(&facts, &found);
    assert_int_equal(found.n, 0);
    /* one file for many nodes: those of others are not held against this one */
    facts.host = "n7";
    facts.gres_conf = "NodeName=n[1-6] Name=gpu File=/dev/nvidia[0-1] Cores=0-63\n"
                      "NodeName=n[7-8] Name=gpu File=/dev/nvidia0 Cores=0-3\n"
                      "NodeName=n[7-8] Name=gpu File=/dev/nvidia1 Cores=4-7\n";
    mu_doctor_slurm(&facts, &found);
    assert_int_equal(found.n, 0);
    facts.host = NULL;
    /* other files: by position, where they are as many as the GPUs */
    facts.gres_conf = "Name=gpu File=/dev/dri/renderD128 Cores=0-3\n"
                      "Name=gpu File=/dev/dri/renderD129 Cores=0-3\n";
    mu_doctor_slurm(&facts, &found);
    assert_int_equal(found.n, 1);
    finding("GPU1: Slurm says 0-3,8-11 (gres.conf line 2), hardware says 4-7,12-15");
    mu_findings_clear(&found);
    facts.gres_conf = "Name=gpu File=/dev/gpu[0-3] Cores=4-7\n";
    mu_doctor_slurm(&facts, &found);
    assert_int_equal(found.n, 0);
    facts.gres_conf = "Name=gpu File=/dev/nvidia[0-1]\n";
    mu_doctor_slurm(&facts, &found);
    finding("names no Cores=");
    mu_findings_clear(&found);
    facts.gres_conf = "\n\nName=gpu Cores=x\n";
    mu_doctor_slurm(&facts, &found);
    finding("gres.conf: line 3: Cores: 'x'");
}

/* The abstract numbering runs package by package, also where Linux alternates. */
static void c014_interleaved_sockets_are_counted_by_package(void **state)
{
    struct machine m;
    struct mu_facts facts = { .node = &m.node, .gres_file = "gres.conf" };

    machine(&m);
    for (int i = 0; i < 8; i++) {
        m.cores[i].package = m.cores[i].numa = i % 2;
        for (int t = 0; t < 2; t++) {
            mu_cpuset_remove(&m.numas[1 - i % 2].cpus, i + 8 * t);
            mu_cpuset_add(&m.numas[i % 2].cpus, i + 8 * t);
        }
    }
    for (int n = 0; n < 2; n++)
        m.gpus[n].local = m.numas[n].cpus;
    facts.gres_conf = "Name=gpu File=/dev/nvidia0 Cores=0-3\n"
                      "Name=gpu File=/dev/nvidia1 Cores=4-7\n";
    mu_doctor_slurm(&facts, &found);
    assert_int_equal(found.n, 0);
}

static void c048_c051_slurms_plugins(void **state)
{
    struct mu_facts facts = { .slurm_version = "23.11.11",
                              .pmix_plugin = true,
                              .pmix_missing = "libpmix.so.2",
                              .plugin_path = "/usr/lib/muster.so",
                              .plugin_version = "25.05.9" };

    mu_doctor_slurm(&facts, &found);
    finding("libpmix.so.2 cannot be loaded");
    finding(
        "/usr/lib/muster.so was built for Slurm 25.05.9, but this is Slurm 23.11.11");
    mu_findings_clear(&found);
    strcpy(facts.plugin_version, "23.11.0");
    facts.pmix_missing[0] = '\0';
    mu_doctor_slurm(&facts, &found);
    nothing_above(MU_OK);
    facts.pmix_plugin = false;
    mu_doctor_slurm(&facts, &found);
    finding("no mpi_pmix*.so");
}

static void c036_a_flat_virtual_machine(void **state)
{
    struct mu_link links[] = {
        { "0000:05:00.0", 16, 32, 16, 16, false, true },
        { "0000:06:00.0", 32, 32, 16, 16, false, true },
        { "0000:00:01.0", 2.5, 2.5, 1, 1, true, false },
    };
    struct machine m;
    struct mu_facts facts = { .node = &m.node, .link = links, .nlinks = 3 };

    machine(&m);
    m.node.virtual_machine = true;
    m.gpus[0].local_known = m.gpus[1].local_known = false;
    m.cores[1].cpu[1] = 12; /* its second thread is on the other NUMA cell */
    mu_doctor_platform(&facts, &found);
    finding("2 of 2 GPUs have no NUMA node (numa_node is -1) in this virtual machine");
    finding("2 GPUs and NICs sit on the root bus");
    finding("0000:05:00.0 runs at 16 GT/s x16, the card can do 32 GT/s x16");
    finding("the uplink of switch 0000:00:01.0 reports 0.25 GB/s");
    finding("the NUMA cells cut cores in two");
}

static void c042_acs_and_two_nccls(void **state)
{
    struct mu_acs acs[] = { { "0000:16:00.0", true, true },
                            { "0000:17:00.0", false, false } };
    struct mu_library libs[] = { { "/a/libnccl.so.2.28.9", "2.28.9" },
                                 { "/b/libnccl.so.2.30.0", "2.30.0" } };
    struct machine m;
    struct mu_facts facts = {
        .node = &m.node, .acs = acs, .nacs = 2, .iommu = true, .nccl = libs, .nnccl = 2
    };

    machine(&m);
    mu_doctor_platform(&facts, &found);
    finding(
        "bridge 0000:16:00.0 above a GPU redirects peer requests (ACS) and the IOMMU");
    finding("the ACS bits of 1 bridges above GPUs cannot be read");
    finding("two NCCL versions are in reach: 2.28.9");
    mu_findings_clear(&found);
    /* in a guest the opposite bits are wanted */
    m.node.virtual_machine = true;
    facts.nnccl = 0;
    facts.nacs = 1;
    mu_doctor_platform(&facts, &found);
    assert_int_equal(found.n, 0);
}

static void c039_who_names_the_topology_file(void **state)
{
    static const char text[] = "\nNCCL_TOPO_FILE=/opt/ncv4-topo.xml\n"
                               "NCCL_GRAPH_FILE=/opt/ncv4-graph.xml\n";
    char *env[] = { "NCCL_TOPO_FILE=/home/u/t.xml", NULL };
    struct mu_conf conf = { 0 };
    struct mu_facts facts = { .env = env, .nccl_conf = &conf };

    assert_int_equal(mu_conf_add(&conf, "/etc/nccl.conf", text, strlen(text), NULL), 0);
    mu_doctor_platform(&facts, &found);
    finding("NCCL_TOPO_FILE=/home/u/t.xml comes from the environment and wins over "
            "/etc/nccl.conf");
    finding("NCCL_GRAPH_FILE=/opt/ncv4-graph.xml comes from /etc/nccl.conf line 3");
    mu_conf_clear(&conf);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, clear, clear)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(c005_cpus_per_task_counts_threads),
        CASE(c013_the_mask_before_and_after_is_shown),
        CASE(c014_gres_conf_against_the_hardware),
        CASE(c014_interleaved_sockets_are_counted_by_package),
        CASE(c015_an_inherited_mask_is_decoded_and_named),
        CASE(c016_one_cpu_while_the_job_owns_many),
        CASE(c018_nccl_masks_are_explained_with_their_numa_nodes),
        CASE(c020_c023_gpus_are_counted_four_ways),
        CASE(c024_mig_slices_need_a_new_nccl),
        CASE(c026_c038_order_and_models),
        CASE(c027_c029_c031_misleading_interfaces),
        CASE(c034_c035_each_hca_is_judged),
        CASE(c036_a_flat_virtual_machine),
        CASE(c039_who_names_the_topology_file),
        CASE(c042_acs_and_two_nccls),
        CASE(c044_a_launcher_per_task_is_found),
        CASE(c048_c051_slurms_plugins),
    };

    return cmocka_run_group_tests_name("doctor", tests, NULL, NULL);
}
