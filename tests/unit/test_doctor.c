/* SPDX-License-Identifier: BSD-3-Clause */
/* test_doctor.c - what the doctor finds about GPUs, networks and the platform, in given
 * facts; case numbers of tests/CASES.md */
#include "tests/unit/doctor_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const struct count_case {
    const char *name;
    struct mu_gpu_counts counts;
    enum mu_severity severity;
    const char *part;
} counts[] = {
    { "all agree", { 4, 4, 4, 4, 4 }, MU_OK, "number of GPUs: Slurm 4" },
    { "narrowed by environment alone",
      { 4, 1, 4, 4, 4 },
      MU_OK,
      "CUDA_VISIBLE_DEVICES 1" },
    { "020 peers hidden by the task's device cgroup",
      { 4, 1, 1, 1, 4 },
      MU_WARNING,
      "makes P2P over NVLink impossible" },
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

        mu_findings_clear(&doctor_found);
        mu_doctor_gpu(&facts, &doctor_found);
        if (doctor_finding(counts[i].part)->severity != counts[i].severity)
            fail_msg("%s", counts[i].name);
    }
}

static void c026_c038_order_and_models(void **state)
{
    char *env[] = { "CUDA_VISIBLE_DEVICES=1,0", NULL };
    char *fine[] = { "CUDA_VISIBLE_DEVICES=0,2,3", NULL };
    struct doctor_machine m;
    struct mu_facts facts = { .env = env,
                              .node = &m.node,
                              .gpus = { -1, -1, -1, -1, -1 } };

    doctor_machine(&m);
    mu_doctor_gpu(&facts, &doctor_found);
    doctor_finding("CUDA_VISIBLE_DEVICES=1,0 is not ascending");
    mu_findings_clear(&doctor_found);
    facts.env = fine;
    strcpy(m.gpus[0].model, "GTX 750");
    strcpy(m.gpus[1].model, "GTX 750 Ti");
    mu_doctor_gpu(&facts, &doctor_found);
    assert_int_equal(doctor_found.n, 1);
    doctor_finding("different GPU models (GTX 750, GTX 750 Ti)");
}

static void c024_mig_slices_need_a_new_nccl(void **state)
{
    char *env[] = { "CUDA_VISIBLE_DEVICES=MIG-1234", "NCCL_NVLS_ENABLE=1", NULL };
    struct mu_library old = { "/usr/lib/libnccl.so.2.27.7", "2.27.7" };
    struct mu_facts facts = {
        .env = env, .nccl = &old, .nnccl = 1, .gpus = { -1, -1, -1, -1, -1 }
    };

    mu_doctor_gpu(&facts, &doctor_found);
    doctor_finding("NCCL 2.27.7");
    doctor_finding("unset NCCL_NVLS_ENABLE");
    mu_findings_clear(&doctor_found);
    strcpy(old.version, "2.31.2");
    env[1] = NULL;
    mu_doctor_gpu(&facts, &doctor_found);
    assert_int_equal(doctor_found.n, 0);
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
    for (int i = 1; i <= 2; i++) { /* one finding for two ports, whatever they hold */
        struct mu_addr more = { 0 };

        mu_addr_parse(i == 1 ? "fd00:9::1/64" : "fd00:9::2/64", &more, NULL);
        mu_iface_add_addr(&net.iface[i], &more);
    }
    assert_int_equal(mu_addr_parse("172.17.0.1", &peer.addr[0], NULL), 0);
    mu_doctor_network(&facts, &doctor_found);
    doctor_finding(
        "eno1 (10.9.3.15/20) and enp37s0f0 (10.9.5.15/20) are in one subnet");
    doctor_finding("NCCL_SOCKET_IFNAME=^docker0 allows lo");
    doctor_finding("172.17.0.1 on docker0 is also an address of node n2");
    assert_int_equal(doctor_found.n, 3);
    mu_findings_clear(&doctor_found);
    add(&lo, "lo", "203.0.113.17/32", true);
    add(&lo, "lan0", NULL, false);
    facts = (struct mu_facts){ .net = &lo };
    mu_doctor_network(&facts, &doctor_found);
    assert_int_equal(doctor_finding("203.0.113.17, is on lo")->severity, MU_ERROR);
    mu_net_clear(&net);
    mu_net_clear(&lo);
}

static const struct list_case {
    const char *name, *variable;
    const char *want; /* NULL: nothing is wrong with it */
} lists[] = {
    { "a beginning", "NCCL_SOCKET_IFNAME=eno", NULL },
    { "a whole name", "NCCL_SOCKET_IFNAME==eno1", NULL },
    { "all but some, lo among them", "NCCL_SOCKET_IFNAME=^docker,lo", NULL },
    { "lo is not in flannel", "NCCL_SOCKET_IFNAME=^docker,flannel",
      "NCCL_SOCKET_IFNAME=^docker,flannel allows lo" },
    { "a beginning as a whole name", "NCCL_SOCKET_IFNAME==eno",
      "NCCL_SOCKET_IFNAME==eno (the environment) names no interface that can be used "
      "here: " },
    { "another machine's name", "NCCL_SOCKET_IFNAME=ens,bond0",
      "names no interface that can be used here: " },
    { "an interface without an address", "NCCL_SOCKET_IFNAME=ib0",
      "names no interface that can be used here (ib0 is down or has no address)" },
    { "too short to count for NCCL", "NCCL_SOCKET_IFNAME=x", NULL },
    { "devices by their beginning", "NCCL_IB_HCA=mlx5", NULL },
    { "a device and its port", "NCCL_IB_HCA==mlx5_0:1", NULL },
    { "all but another one", "NCCL_IB_HCA=^mlx5_7", NULL },
    { "another machine's devices", "NCCL_IB_HCA==rocep4s0f0,rocep4s0f1",
      "selects none of the 1 active RDMA devices" },
    { "a device that is down", "NCCL_IB_HCA=mlx5_1",
      "selects none of the 1 active RDMA devices" },
};

static const struct list_case surplus[] = {
    { "a beginning of another name", "NCCL_SOCKET_IFNAME=eth1",
      "NCCL_SOCKET_IFNAME=eth1 (the environment) also selects eth10, eth1.100: " },
    { "the second of a list", "NCCL_SOCKET_IFNAME=eth2,bond0",
      "also selects bond0.7: " },
    { "a name that is not here, and a longer one", "NCCL_SOCKET_IFNAME=eth2,eno1",
      "also selects eno16: " },
    { "excluded with its neighbours", "NCCL_SOCKET_IFNAME=^lo,eth1",
      "also excludes eth10, eth1.100: " },
    { "whole names", "NCCL_SOCKET_IFNAME==eth1,bond0", NULL },
    { "whole names excluded", "NCCL_SOCKET_IFNAME=^=lo,eth1", NULL },
    { "a meant beginning", "NCCL_SOCKET_IFNAME=eth,bond", NULL },
    { "an operator before each name", "NCCL_SOCKET_IFNAME=^lo,^docker",
      "NCCL_SOCKET_IFNAME=^lo,^docker (the environment): NCCL takes '^docker' for a "
      "name" },
    { "two equals signs", "NCCL_SOCKET_IFNAME==eth1,=bond0", "takes '=bond0' for" },
    { "a list of which one item excludes", "NCCL_SOCKET_IFNAME==eth1,^lo",
      "takes '^lo' for" },
    { "a blank in a list", "NCCL_SOCKET_IFNAME==eth1, bond0", "takes ' bond0' for" },
    { "a blank behind a list of devices", "NCCL_IB_HCA==mlx5_1,mlx5_10 ",
      "NCCL takes 'mlx5_10 ' for a name" },
    { "loopback with other nodes", "NCCL_SOCKET_IFNAME=lo", "selects loopback alone" },
    { "a beginning with a digit", "NCCL_SOCKET_IFNAME=ens1", NULL },
    { "devices with one digit and two", "NCCL_IB_HCA=mlx5_1:1",
      "NCCL_IB_HCA=mlx5_1:1 (the environment) also selects mlx5_10: " },
    { "all devices", "NCCL_IB_HCA=mlx5", NULL },
    { "gloo with NCCL's operator", "GLOO_SOCKET_IFNAME=^lo",
      "GLOO_SOCKET_IFNAME=^lo: '^lo' is written for NCCL" },
    { "gloo with an equals sign", "GLOO_SOCKET_IFNAME==eth1",
      "'=eth1' is written for" },
    { "gloo and an absent name", "GLOO_SOCKET_IFNAME=eth9", "'eth9' is no interface" },
    { "gloo and a beginning", "GLOO_SOCKET_IFNAME=eth", "'eth' is no interface" },
    { "gloo and a list with a blank", "GLOO_SOCKET_IFNAME=eth1, bond0",
      "' bond0' is no interface" },
    { "gloo and an interface without address", "GLOO_SOCKET_IFNAME=eth1,ib0",
      "'ib0' has no address" },
    { "gloo and a cable that is out", "GLOO_SOCKET_IFNAME=eth3", "'eth3' is down" },
    { "gloo and loopback with other nodes", "GLOO_SOCKET_IFNAME=lo",
      "'lo' is loopback" },
    { "gloo and two plain names", "GLOO_SOCKET_IFNAME=eth1,bond0", NULL },
    { "gloo and a comma behind the last name", "GLOO_SOCKET_IFNAME=eth1,", NULL },
    { "gloo and a comma before the first", "GLOO_SOCKET_IFNAME=,eth1",
      "an empty name (two commas, or one in front)" },
    { "gloo and two commas", "GLOO_SOCKET_IFNAME=eth1,,bond0", "an empty name" },
};

static void c067_names_that_select_more_or_nothing(void **state)
{
    struct mu_nic nics[] = { { .name = "mlx5_1", .active = true, .numa = -1 },
                             { .name = "mlx5_10", .active = true, .numa = -1 } };
    struct mu_node node = { .nnics = 2, .nics = nics };
    struct mu_peer peer = { .host = "n2" };
    struct mu_net net = { 0 };

    add(&net, "lo", "127.0.0.1/8", true);
    add(&net, "eth1", "10.1.0.1/24", false);
    add(&net, "eth10", "10.2.0.1/24", false);
    add(&net, "eth1.100", "10.3.0.1/24", false);
    add(&net, "bond0", "10.4.0.1/24", false);
    add(&net, "bond0.7", "10.5.0.1/24", false);
    add(&net, "eno16", "10.6.0.1/24", false);
    add(&net, "ens1f0", "10.7.0.1/24", false);
    add(&net, "ib0", NULL, false);
    add(&net, "eth3", "10.8.0.1/24", false);
    net.iface[net.nifaces - 1].carrier = false;
    for (size_t i = 0; i < sizeof surplus / sizeof surplus[0]; i++) {
        char *env[] = { (char *)(uintptr_t)surplus[i].variable, NULL };
        struct mu_facts facts = {
            .env = env, .net = &net, .node = &node, .peers = &peer, .npeers = 1
        };

        mu_doctor_network(&facts, &doctor_found);
        if (!surplus[i].want && mu_findings_worst(&doctor_found) > MU_HINT)
            fail_msg("%s: %s", surplus[i].name, doctor_found.item[0].what);
        if (surplus[i].want)
            doctor_finding(surplus[i].want);
        mu_findings_clear(&doctor_found);
    }
    mu_net_clear(&net);
}

static void a_list_that_names_nothing_here_is_found(void **state)
{
    struct mu_nic nics[] = { { .name = "mlx5_0", .active = true, .numa = -1 },
                             { .name = "mlx5_1", .numa = -1 } };
    struct mu_node node = { .nnics = 2, .nics = nics };
    struct mu_net net = { 0 };

    add(&net, "lo", "127.0.0.1/8", true);
    add(&net, "eno1", "10.9.3.15/20", false);
    add(&net, "ib0", NULL, false);
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        char *env[] = { (char *)(uintptr_t)lists[i].variable, NULL };
        struct mu_facts facts = { .env = env, .net = &net, .node = &node };

        mu_doctor_network(&facts, &doctor_found);
        if (!lists[i].want && mu_findings_worst(&doctor_found) > MU_HINT)
            fail_msg("%s: %s", lists[i].name, doctor_found.item[0].what);
        if (lists[i].want)
            doctor_finding(lists[i].want);
        mu_findings_clear(&doctor_found);
    }
    mu_net_clear(&net);
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
    enum mu_nearness paths[6] = { 0 };
    struct doctor_machine m;
    struct mu_facts facts = { .env = env, .node = &m.node };

    doctor_machine(&m);
    m.node.nnics = 3;
    m.node.nics = nics;
    m.node.gpu_nic = paths;
    mu_doctor_network(&facts, &doctor_found);
    doctor_finding("mlx5_0: InfiniBand, active, 200 Gb/s, NUMA 0, used");
    doctor_finding("mlx5_2: Ethernet, active, 200 Gb/s, NUMA 1, different link layer");
    doctor_finding("mlx5_0 and mlx5_1 are ports of one card");
    doctor_finding(
        "NCCL_NET=Socket makes NCCL use sockets, although 3 RDMA devices of up to 200");
}

static void c036_a_flat_virtual_machine(void **state)
{
    struct mu_link links[] = {
        { "0000:05:00.0", 16, 32, 16, 16, false, true },
        { "0000:06:00.0", 32, 32, 16, 16, false, true },
        { "0000:00:01.0", 2.5, 2.5, 1, 1, true, false },
    };
    struct doctor_machine m;
    struct mu_facts facts = { .node = &m.node, .link = links, .nlinks = 3 };

    doctor_machine(&m);
    m.node.virtual_machine = true;
    m.gpus[0].local_known = m.gpus[1].local_known = false;
    m.cores[1].cpu[1] = 12; /* its second thread is on the other NUMA cell */
    mu_doctor_platform(&facts, &doctor_found);
    doctor_finding("2 of 2 GPUs without a known NUMA node (numa_node is -1) in this "
                   "virtual machine");
    doctor_finding("2 GPUs and NICs are on the root bus");
    doctor_finding("0000:05:00.0 runs at 16 GT/s x16, the card supports 32 GT/s x16");
    doctor_finding("the uplink of switch 0000:00:01.0 reports 0.25 GB/s");
    doctor_finding("the NUMA nodes split cores");
}

static void c042_acs_and_two_nccls(void **state)
{
    struct mu_acs acs[] = { { "0000:16:00.0", true, true },
                            { "0000:17:00.0", false, false } };
    struct mu_library libs[] = { { "/a/libnccl.so.2.28.9", "2.28.9" },
                                 { "/b/libnccl.so.2.30.0", "2.30.0" } };
    struct doctor_machine m;
    struct mu_facts facts = {
        .node = &m.node, .acs = acs, .nacs = 2, .iommu = true, .nccl = libs, .nnccl = 2
    };

    doctor_machine(&m);
    mu_doctor_platform(&facts, &doctor_found);
    doctor_finding(
        "bridge 0000:16:00.0 above a GPU redirects peer requests (ACS) and the IOMMU");
    doctor_finding("the ACS bits of 1 bridge above GPUs cannot be read");
    doctor_finding("the program can load two NCCL versions: 2.28.9");
    mu_findings_clear(&doctor_found);
    /* in a guest the opposite bits are wanted */
    m.node.virtual_machine = true;
    facts.nnccl = 0;
    facts.nacs = 1;
    mu_doctor_platform(&facts, &doctor_found);
    assert_int_equal(doctor_found.n, 0);
}

static void c039_who_names_the_topology_file(void **state)
{
    static const char text[] = "\nNCCL_TOPO_FILE=/opt/ncv4-topo.xml\n"
                               "NCCL_GRAPH_FILE=/opt/ncv4-graph.xml\n";
    char *env[] = { "NCCL_TOPO_FILE=/home/u/t.xml", NULL };
    struct mu_conf conf = { 0 };
    struct mu_facts facts = { .env = env, .nccl_conf = &conf };

    assert_int_equal(mu_conf_add(&conf, "/etc/nccl.conf", text, strlen(text), NULL), 0);
    mu_doctor_platform(&facts, &doctor_found);
    doctor_finding(
        "NCCL_TOPO_FILE=/home/u/t.xml is set in the environment and overrides "
        "/etc/nccl.conf");
    doctor_finding(
        "NCCL_GRAPH_FILE=/opt/ncv4-graph.xml is set in /etc/nccl.conf line 3");
    mu_conf_clear(&conf);
}

static void a_blank_before_the_equals_sign_sets_nothing(void **state)
{
    static const char text[] =
        "NCCL_DEBUG=INFO\nNCCL_IB_HCA =mlx5_0\n\tNCCL_ALGO=Ring\n";
    struct mu_conf conf = { 0 };
    struct mu_facts facts = { .nccl_conf = &conf };

    assert_int_equal(mu_conf_add(&conf, "/etc/nccl.conf", text, strlen(text), NULL), 0);
    mu_doctor_platform(&facts, &doctor_found);
    doctor_finding("/etc/nccl.conf line 2 sets 'NCCL_IB_HCA '");
    doctor_finding("/etc/nccl.conf line 3 sets '\tNCCL_ALGO'");
    assert_int_equal(doctor_found.n, 2);
    mu_conf_clear(&conf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DOCTOR_TEST(c020_c023_gpus_are_counted_four_ways),
        DOCTOR_TEST(c026_c038_order_and_models),
        DOCTOR_TEST(c024_mig_slices_need_a_new_nccl),
        DOCTOR_TEST(c027_c029_c031_misleading_interfaces),
        DOCTOR_TEST(c067_names_that_select_more_or_nothing),
        DOCTOR_TEST(a_list_that_names_nothing_here_is_found),
        DOCTOR_TEST(c034_c035_each_hca_is_judged),
        DOCTOR_TEST(c036_a_flat_virtual_machine),
        DOCTOR_TEST(c042_acs_and_two_nccls),
        DOCTOR_TEST(c039_who_names_the_topology_file),
        DOCTOR_TEST(a_blank_before_the_equals_sign_sets_nothing),
    };

    return cmocka_run_group_tests_name("doctor", tests, NULL, NULL);
}
