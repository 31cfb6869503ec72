/* SPDX-License-Identifier: BSD-3-Clause */
/* test_hca.c - which RDMA devices a step uses */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "spank/core/network/hca.h"
#include "spank/core/node/gid.h"
#include "tests/unit/net_lines.h"

/* A node of n GPUs and m NICs for the RDMA choice. paths: a row per GPU, a digit per
 * NIC (0 PIX .. 5 SYS).
 */
static const struct hca_case {
    const char *name;
    const char *nics[6]; /* "name layer gbits state", layer I, E, S (Slingshot) or A
                            (EFA), state U, D, V (a virtual function) or the number of
                            the only port that counts */
    const char *paths[4];
    const char *exclude;
    int gpus[4], ngpus;
    const char *value;
    bool needed;
} hcas[] = {
    { "038 two GPUs of a reversed VM: their two NICs",
      { "mlx5_bond_0 E 400 U", "mlx5_bond_5 E 400 U", "mlx5_bond_6 E 400 U",
        "mlx5_bond_7 E 400 U" },
      { "5550", "5505", "5055", "0555" },
      "",
      { 0, 1 },
      2,
      "=mlx5_bond_6,mlx5_bond_7",
      true },
    { "034 an Ethernet port among InfiniBand ports is left out",
      { "mlx5_0 I 200 U", "mlx5_1 I 200 U", "mlx5_2 E 200 U" },
      { "000", "000" },
      "",
      { 0, 1 },
      2,
      "=mlx5_0,mlx5_1",
      true },
    { "001 NICs that belong to no GPU are left out",
      { "mlx5_0 I 200 U", "mlx5_1 I 200 U", "mlx5_4 I 200 U", "mlx5_5 I 100 U" },
      { "1144", "1144" },
      "",
      { 0, 1 },
      2,
      "=mlx5_0,mlx5_1",
      true },
    { "a slower class is left out even when it is nearer",
      { "mlx5_0 I 400 U", "mlx5_1 I 25 U" },
      { "50", "50" },
      "",
      { 0, 1 },
      2,
      "=mlx5_0",
      true },
    { "none is nearer than another: all stay, NCCL needs no list",
      { "mlx5_0 I 400 U", "mlx5_1 I 400 U" },
      { "55", "55" },
      "",
      { 0, 1 },
      2,
      "=mlx5_0,mlx5_1",
      false },
    { "a port that is down does not make a list necessary",
      { "mlx5_0 I 400 U", "mlx5_1 I 400 D" },
      { "50", "50" },
      "",
      { 0 },
      1,
      "=mlx5_0",
      false },
    { "the site's pattern leaves storage out",
      { "mlx5_0 I 400 U", "mlx5_st0 I 400 U" },
      { "00", "00" },
      "mlx5_s*,bnxt*",
      { 0, 1 },
      2,
      "=mlx5_0",
      true },
    { "one port of a card with two kinds of ports is named by its number",
      { "mlx4_0 I 56 1" },
      { "0" },
      "",
      { 0 },
      1,
      "=mlx4_0:1",
      true },
    { "virtual functions are left to the guests",
      { "mlx5_0 I 200 U", "mlx5_2 I 200 V", "mlx5_3 I 200 V" },
      { "000" },
      "",
      { 0 },
      1,
      "=mlx5_0",
      true },
    { "virtual functions alone are used",
      { "mlx5_0 I 200 D", "mlx5_2 I 200 V", "mlx5_3 I 200 V" },
      { "000" },
      "",
      { 0 },
      1,
      "=mlx5_2,mlx5_3",
      false },
    { "Slingshot has no list: NCCL does not drive it by verbs",
      { "hsn0 S 200 U", "hsn1 S 200 U" },
      { "05", "50" },
      "",
      { 0 },
      1,
      "",
      true },
    { "nor has EFA",
      { "rdmap79s0 A 100 U", "rdmap80s0 A 100 U" },
      { "05", "50" },
      "",
      { 0 },
      1,
      "",
      true },
    { "no active device: no list",
      { "mlx5_0 I 400 D" },
      { "0" },
      "",
      { 0 },
      1,
      "",
      false },
};

static void rdma_devices_are_of_one_kind_and_near(void **state)
{
    for (size_t i = 0; i < sizeof hcas / sizeof hcas[0]; i++) {
        const struct hca_case *c = &hcas[i];
        struct mu_nic nics[6] = { 0 };
        enum mu_nearness paths[24];
        struct mu_node node = { .nics = nics, .gpu_nic = paths };
        struct mu_alloc alloc = { .ngpus = c->ngpus };
        struct mu_hca_choice out;

        for (; node.nnics < 6 && c->nics[node.nnics]; node.nnics++) {
            struct mu_nic *nic = &nics[node.nnics];
            char layer, up;

            assert_int_equal(sscanf(c->nics[node.nnics], "%63s %c %lf %c", nic->name,
                                    &layer, &nic->gbits, &up),
                             4);
            nic->layer = layer == 'I'   ? MU_LINK_IB
                         : layer == 'S' ? MU_LINK_SLINGSHOT
                         : layer == 'A' ? MU_LINK_EFA
                                        : MU_LINK_ETHERNET;
            nic->active = up != 'D';
            nic->virtual_fn = up == 'V';
            nic->port = up >= '1' && up <= '4' ? up - '0' : 0;
        }
        for (; node.ngpus < 4 && c->paths[node.ngpus]; node.ngpus++)
            for (int k = 0; k < node.nnics; k++)
                paths[node.ngpus * node.nnics + k] = c->paths[node.ngpus][k] - '0';
        memcpy(alloc.gpu_node, c->gpus, sizeof c->gpus);
        mu_hca_choose(&node, &alloc, c->exclude, NULL, &out);
        if (strcmp(out.value, c->value) != 0 || out.needed != c->needed)
            fail_msg("%s: '%s' needed %d", c->name, out.value, out.needed);
    }
}

/* RoCE ports of one speed on a node of the networks 10.1.0.0/16 (chosen) and others.
 * gids: "index address" of RoCE v2; NULL: the table cannot be read.
 */
static const struct roce_case {
    const char *name;
    const char *gids[4][3]; /* of mlx5_0 to mlx5_3; {""}: a table without RoCE v2 */
    double gbits[4];
    bool no_network;
    const char *value;
} roce[] = {
    { "link-local GIDs do not count",
      { { "1 fe80::1", "3 ::ffff:10.1.0.5" },
        { "1 fe80::2" },
        { "1 fe80::3", "3 ::ffff:169.254.1.2" },
        { "" } },
      { 400, 400, 400, 400 },
      false,
      "=mlx5_0" },
    { "a cable to the other node does not count beside the network",
      { { "3 ::ffff:10.1.0.5" }, { "3 ::ffff:192.168.7.1" }, { "3 ::ffff:10.1.0.6" } },
      { 400, 400, 400 },
      false,
      "=mlx5_0,mlx5_2" },
    { "one of several addresses is on the network",
      { { "3 ::ffff:192.168.7.1", "5 ::ffff:10.1.0.5" }, { "3 ::ffff:192.168.8.1" } },
      { 400, 400 },
      false,
      "=mlx5_0" },
    { "none is on the network: rails of their own, without the cable",
      { { "3 ::ffff:10.20.0.5" },
        { "3 ::ffff:10.21.0.5" },
        { "3 ::ffff:192.168.7.1" } },
      { 400, 400, 400 },
      false,
      "=mlx5_0,mlx5_1" },
    { "a slower port on the network leaves the rails in use",
      { { "3 ::ffff:10.1.0.5" }, { "3 ::ffff:10.20.0.5" }, { "3 ::ffff:10.21.0.5" } },
      { 100, 400, 400 },
      false,
      "=mlx5_1,mlx5_2" },
    { "cables alone are used",
      { { "3 ::ffff:192.168.7.1" }, { "3 ::ffff:192.168.8.1" } },
      { 400, 400 },
      false,
      "=mlx5_0,mlx5_1" },
    { "a table that cannot be read counts as before",
      { { "3 ::ffff:10.1.0.5" }, { NULL }, { "1 fe80::1" } },
      { 400, 400, 400 },
      false,
      "=mlx5_0,mlx5_1" },
    { "IPv6, in no known network",
      { { "1 fe80::1", "3 fd00:1::5" }, { "1 fe80::2" } },
      { 400, 400 },
      true,
      "=mlx5_0" },
    { "no port has an address: none is named",
      { { "1 fe80::1" }, { "1 fe80::2" } },
      { 400, 400 },
      false,
      "" },
    { "a fast port without an address does not set the speed",
      { { "1 fe80::1" }, { "3 ::ffff:10.1.0.5" } },
      { 400, 100 },
      false,
      "=mlx5_1" },
};

static void add_gids(struct mu_nic *nic, const char *const gids[3])
{
    nic->gids_known = gids[0] != NULL;
    for (int i = 0; i < 3 && gids[i] && gids[i][0]; i++) {
        struct mu_gid *gid = &nic->gid[nic->ngids++];

        gid->index = atoi(gids[i]);
        assert_true(mu_gid_parse(strchr(gids[i], ' ') + 1, gid->byte));
    }
}

static void c096_roce_ports_count_by_their_addresses(void **state)
{
    static const char *const ifaces[] = { NET_LO,
                                          "eth0 1000 UC 10.1.0.5/16 10.1.0.6/16",
                                          "eth1 400000 UC 10.20.0.5/24",
                                          "eth2 400000 UC 10.21.0.5/24",
                                          "eth3 400000 UC 192.168.7.1/30",
                                          "eth4 400000 UC 192.168.8.1/31",
                                          NULL };
    struct mu_net net = { 0 };
    struct mu_addr chosen;

    net_build(&net, ifaces);
    assert_int_equal(mu_addr_parse("10.1.0.5/16", &chosen, NULL), 0);
    for (size_t i = 0; i < sizeof roce / sizeof roce[0]; i++) {
        const struct roce_case *c = &roce[i];
        struct mu_nic nics[4] = { 0 };
        struct mu_node node = { .nics = nics };
        struct mu_alloc alloc = { 0 };
        struct mu_hca_where where = { &chosen, !c->no_network,
                                      c->no_network ? NULL : &net };
        struct mu_hca_choice out;

        for (; node.nnics < 4 && c->gbits[node.nnics] > 0; node.nnics++) {
            struct mu_nic *nic = &nics[node.nnics];

            snprintf(nic->name, sizeof nic->name, "mlx5_%d", node.nnics);
            nic->layer = MU_LINK_ETHERNET;
            nic->active = true;
            nic->gbits = c->gbits[node.nnics];
            add_gids(nic, c->gids[node.nnics]);
        }
        mu_hca_choose(&node, &alloc, "", &where, &out);
        if (strcmp(out.value, c->value) != 0)
            fail_msg("%s: '%s'", c->name, out.value);
    }
    mu_net_clear(&net);
}

/* A NIC beside GPU 0 is software: the tree shows it below the Ethernet card's function,
 * or nowhere.
 */
static void c077_software_is_no_nic_and_makes_the_list_needed(void **state)
{
    static const char *const names[] = { "siw_eth0", "rxe0", "siw0", "iwp1s0" };

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct mu_node node = { .ngpus = 2, .nnics = 3 };
        struct mu_alloc alloc = { .ngpus = 2, .gpu_node = { 0, 1 } };
        struct mu_hca_choice out;

        node.gpus = calloc(2, sizeof *node.gpus);
        node.nics = calloc(3, sizeof *node.nics);
        node.gpu_nic = calloc(6, sizeof *node.gpu_nic);
        for (int n = 0; n < 3; n++)
            node.nics[n] = (struct mu_nic){
                .layer = MU_LINK_ETHERNET, .active = true, .gbits = 400, .numa = -1
            };
        strcpy(node.nics[0].name, "mlx5_0");
        strcpy(node.nics[1].name, names[i]);
        node.nics[1].software = i == 3;
        strcpy(node.nics[2].name, "mlx5_1");
        node.gpu_nic[2] = node.gpu_nic[3] = MU_NEAR_SYS;
        assert_int_equal(mu_node_finish(&node, NULL), 0);
        assert_int_equal(node.nnics, 2);
        assert_int_equal(node.nsoft, 1);
        assert_string_equal(node.soft[0].name, names[i]);
        assert_string_equal(node.nics[1].name, "mlx5_1");
        assert_int_equal(node.gpu_nic[1], MU_NEAR_SYS);
        assert_int_equal(node.gpu_nic[2], MU_NEAR_SYS);
        assert_int_equal(node.gpu_nic[3], MU_NEAR_PIX);
        mu_hca_choose(&node, &alloc, "", NULL, &out);
        assert_string_equal(out.value, "=mlx5_0,mlx5_1");
        assert_true(out.needed);
        node.soft[0].active = false;
        mu_hca_choose(&node, &alloc, "", NULL, &out);
        assert_false(out.needed);
        mu_node_clear(&node);
    }
    assert_false(mu_nic_soft_name("rxenet0"));
    assert_false(mu_nic_soft_name("mlx5_0"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rdma_devices_are_of_one_kind_and_near),
        cmocka_unit_test(c096_roce_ports_count_by_their_addresses),
        cmocka_unit_test(c077_software_is_no_nic_and_makes_the_list_needed),
    };

    return cmocka_run_group_tests_name("hca", tests, NULL, NULL);
}
