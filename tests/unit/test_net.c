/* SPDX-License-Identifier: BSD-3-Clause */
/* test_net.c - which interface, which RDMA devices, whose variable wins */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "spank/core/node/gid.h"
#include "spank/core/network/hca.h"
#include "spank/core/nccl/nccl_variables.h"
#include "spank/core/network/interface.h"

/* One interface per line: "name speed flags addr addr ..." with flags of U (up),
 * C (carrier), L (loopback) or '-'.
 */
static void build(struct mu_net *net, const char *const *lines)
{
    for (int i = 0; lines[i]; i++) {
        char copy[256], *rest = copy, *word;
        struct mu_iface *iface;

        snprintf(copy, sizeof copy, "%s", lines[i]);
        word = strsep(&rest, " ");
        iface = mu_net_add_iface(net, word);
        iface->mbits = atol(strsep(&rest, " "));
        word = strsep(&rest, " ");
        iface->up = strchr(word, 'U') != NULL;
        iface->carrier = strchr(word, 'C') != NULL;
        iface->loopback = strchr(word, 'L') != NULL;
        while ((word = strsep(&rest, " "))) {
            struct mu_addr addr;

            assert_int_equal(mu_addr_parse(word, &addr, NULL), 0);
            assert_int_equal(mu_iface_add_addr(iface, &addr), 0);
        }
    }
}

#define LO "lo 0 UCL 127.0.0.1/8 ::1/128"

static const struct choice_case {
    const char *name;
    const char *ifaces[8];
    const char *networks[3];
    const char *peers[4]; /* one address each; "" does not resolve */
    const char *iface;    /* NULL: none */
    const char *addr;
    bool needed;
    const char *reason; /* a part of it */
} choices[] = {
    { "027 docker0 has one address on every node: the shared network is taken",
      { LO, "docker0 0 UC 172.17.0.1/16", "enp159s0 10000 UC 10.5.160.6/20",
        "enp35s0d1 10000 UC 10.6.0.6/20" },
      { NULL },
      { "10.5.160.6", "10.5.160.7" },
      "enp159s0",
      "10.5.160.6",
      true,
      "all 2 nodes" },
    { "027 docker0 alone beside one network: NCCL finds that itself",
      { LO, "docker0 0 UC 172.17.0.1/16", "eno1 1000 UC 10.5.160.6/20" },
      { NULL },
      { "10.5.160.7" },
      "eno1",
      "10.5.160.6",
      false,
      "" },
    { "027 a bridge that NCCL does not know as private makes the variable needed",
      { LO, "br-12ab 0 UC 172.18.0.1/16", "eno1 1000 UC 10.5.160.6/20" },
      { NULL },
      { "10.5.160.7" },
      "eno1",
      "10.5.160.6",
      true,
      "" },
    { "a tunnel comes behind a real network, faster or not",
      { LO, "wg0 10000 UC 10.8.0.5/24", "eno1 1000 UC 10.1.0.5/16" },
      { "10.0.0.0/8" },
      { "10.1.0.6" },
      "eno1",
      "10.1.0.5",
      true,
      "" },
    { "NCCL goes by beginnings: lom1 counts as lo to it",
      { LO, "lom1 1000 UC 10.5.160.6/20" },
      { NULL },
      { "10.5.160.7" },
      "lom1",
      "10.5.160.6",
      true,
      "" },
    { "029 two ports in one subnet: the faster, dead ports skipped",
      { LO, "eno1 1000 UC 10.9.3.15/20", "eno2 0 U", "enp37s0f0 10000 UC 10.9.5.15/20",
        "enp37s0f1 0 U 10.9.6.15/20" },
      { NULL },
      { "10.9.5.16" },
      "enp37s0f0",
      "10.9.5.15",
      true,
      "fastest" },
    { "031 the only routable address is on lo: an address but no interface",
      { "lo 0 UCL 127.0.0.1/8 203.0.113.17/32", "lan0 100000 UC", "lan1 100000 UC" },
      { NULL },
      { "203.0.113.17", "203.0.113.18" },
      NULL,
      "203.0.113.17",
      false,
      "on lo" },
    { "the site's first network wins over the peers' addresses",
      { LO, "eno1 1000 UC 10.1.0.5/16", "ib0 100000 UC 10.2.0.5/16" },
      { "10.9.0.0/16", "10.2.0.0/16" },
      { "10.1.0.6" },
      "ib0",
      "10.2.0.5",
      false,
      "entry 2 of networks= in muster.conf" },
    { "the same by an interface that NCCL would not prefer",
      { LO, "eno1 1000 UC 10.1.0.5/16", "ib0 100000 UC 10.2.0.5/16" },
      { "10.1.0.0/16" },
      { "10.1.0.6" },
      "eno1",
      "10.1.0.5",
      true,
      "entry 1 of networks=" },
    { "one node elsewhere: nothing is guessed",
      { LO, "eno1 1000 UC 10.1.0.5/16" },
      { NULL },
      { "10.1.0.6", "192.0.2.9" },
      NULL,
      NULL,
      false,
      "networks=" },
    { "a name without address is named",
      { LO, "eno1 1000 UC 10.1.0.5/16" },
      { NULL },
      { "10.1.0.6", "" },
      NULL,
      NULL,
      false,
      "peer1 does not resolve" },
    { "an interface without carrier is no candidate",
      { LO, "eno1 1000 U 10.1.0.5/16" },
      { NULL },
      { "10.1.0.6" },
      NULL,
      NULL,
      false,
      "" },
    { "IPv6 with a link local address in the way",
      { LO, "eno1 1000 UC fe80::1/64 fd00:1::5/64" },
      { NULL },
      { "fd00:1::6" },
      "eno1",
      "fd00:1::5",
      false,
      "" },
};

static void check_choice(const struct choice_case *c)
{
    struct mu_net net = { 0 };
    struct mu_addr networks[3];
    struct mu_peer peers[4] = { 0 };
    struct mu_net_choice out;
    char text[MU_ADDR_TEXT];
    int nn = 0, np = 0;

    build(&net, c->ifaces);
    for (; nn < 3 && c->networks[nn]; nn++)
        assert_int_equal(mu_addr_parse(c->networks[nn], &networks[nn], NULL), 0);
    for (; np < 4 && c->peers[np]; np++) {
        snprintf(peers[np].host, sizeof peers[np].host, "peer%d", np);
        peers[np].naddrs = mu_addr_parse(c->peers[np], &peers[np].addr[0], NULL) == 0;
    }
    mu_net_choose(&net, networks, nn, peers, np, &out);
    if (!c->iface != (out.iface < 0))
        fail_msg("%s: %s", c->name, out.reason);
    if (c->iface)
        assert_string_equal(net.iface[out.iface].name, c->iface);
    mu_addr_format(&out.addr, text, sizeof text);
    assert_string_equal(text, c->addr ? c->addr : "-");
    if (out.needed != c->needed)
        fail_msg("%s: needed is %d", c->name, out.needed);
    if (!strstr(out.reason, c->reason))
        fail_msg("%s: reason '%s'", c->name, out.reason);
    mu_net_clear(&net);
}

static void interfaces_are_chosen_by_subnet(void **state)
{
    for (size_t i = 0; i < sizeof choices / sizeof choices[0]; i++)
        check_choice(&choices[i]);
}

static void subnets_are_read_whole_or_refused(void **state)
{
    static const char *const bad[] = {
        "",    "10.1",       "10.1.0.0/33",  "10.1.0.0/",
        "x/8", "fd00::/129", "10.1.0.0/8/8", "10.1.0.0/-1"
    };
    struct mu_addr addr, list[MU_NETWORKS_MAX];
    struct mu_err err;
    int n;

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (mu_addr_parse(bad[i], &addr, &err) == 0)
            fail_msg("'%s' accepted", bad[i]);
    assert_int_equal(
        mu_networks_parse("10.1.0.0/16, 10.2.0.0/16 ,fd00::/8", list, &n, NULL), 0);
    assert_int_equal(n, 3);
    assert_int_equal(list[1].prefix, 16);
    assert_int_equal(mu_networks_parse("10.1.0.0/16,", list, &n, NULL), -1);
    assert_int_equal(mu_networks_parse("", list, &n, NULL), 0);
    assert_int_equal(n, 0);
    assert_int_equal(mu_addr_parse("10.1.0.0/0", &addr, NULL), 0);
    assert_int_equal(addr.prefix, 0);
}

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
    static const char *const ifaces[] = { LO,
                                          "eth0 1000 UC 10.1.0.5/16 10.1.0.6/16",
                                          "eth1 400000 UC 10.20.0.5/24",
                                          "eth2 400000 UC 10.21.0.5/24",
                                          "eth3 400000 UC 192.168.7.1/30",
                                          "eth4 400000 UC 192.168.8.1/31",
                                          NULL };
    struct mu_net net = { 0 };
    struct mu_addr chosen;

    build(&net, ifaces);
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

static const char conf_text[] = "# a comment\n"
                                "NCCL_IB_HCA = mlx5_0 \n"
                                "no equals sign\n"
                                "NCCL_IB_HCA=later\n"
                                "=nothing\n"
                                "NCCL_DEBUG=WARN";

static void configuration_files_keep_line_and_order(void **state)
{
    struct mu_conf conf = { 0 };
    const struct mu_conf_line *line;

    assert_int_equal(
        mu_conf_add(&conf, "/etc/nccl.conf", conf_text, strlen(conf_text), NULL), 0);
    line = mu_conf_find(&conf, "NCCL_IB_HCA");
    assert_non_null(line);
    assert_string_equal(line->value, "mlx5_0");
    assert_int_equal(line->line, 2);
    assert_string_equal(mu_conf_find(&conf, "NCCL_DEBUG")->value, "WARN");
    assert_null(mu_conf_find(&conf, "NCCL_ALGO"));
    mu_conf_clear(&conf);
}

static const char *user_has_debug(void *arg, const char *name)
{
    return strcmp(name, "NCCL_DEBUG") == 0 ? "INFO" : NULL;
}

static void the_user_beats_the_file_and_the_file_beats_muster(void **state)
{
    struct mu_settings *s = calloc(1, sizeof *s);
    struct mu_conf conf = { 0 };
    char *text = NULL;
    size_t len;
    FILE *out = open_memstream(&text, &len);

    assert_int_equal(
        mu_conf_add(&conf, "/etc/nccl.conf", conf_text, strlen(conf_text), NULL), 0);
    mu_settings_add(s, "NCCL_DEBUG", "ERROR", "r1", NULL);
    mu_settings_add(s, "NCCL_IB_HCA", "=mlx5_9", "r2", NULL);
    mu_settings_add(s, "NCCL_ALGO", "Ring", "r3", NULL);
    mu_settings_add(s, "NCCL_ALGO", "Tree", "later loses", NULL);
    mu_settings_resolve(s, user_has_debug, NULL, &conf);
    mu_settings_show(out, s);
    fclose(out);
    assert_string_equal(
        text,
        "NCCL_DEBUG stays INFO from the environment (Muster would set ERROR: r1)\n"
        "NCCL_IB_HCA stays mlx5_0 from /etc/nccl.conf line 2 (Muster would set "
        "=mlx5_9: r2)\n"
        "NCCL_ALGO=Ring: r3\n");
    free(text);
    free(s);
    mu_conf_clear(&conf);
}

static void one_node_gets_no_network_variable(void **state)
{
    struct mu_settings *s = calloc(1, sizeof *s);
    struct mu_iface iface = { .name = "eno1" };
    struct mu_net net = { .nifaces = 1, .iface = &iface };
    struct mu_net_choice choice = { .iface = 0, .needed = true, .reason = "r" };
    struct mu_hca_choice hca = { .n = 1, .needed = true, .value = "=mlx5_0" };
    struct mu_node node = { .nnics = 2 };
    struct mu_nccl_input in = { .node = &node,
                                .nnodes = 1,
                                .net = &net,
                                .choice = &choice,
                                .hca = &hca,
                                .ras_port = 25001 };

    assert_int_equal(mu_nccl_decide(&in, s, NULL), 0);
    assert_int_equal(s->n, 1);
    assert_string_equal(s->item[0].value, "localhost:25001");
    s->n = 0;
    in.ras_addr = "localhost:29999";
    assert_int_equal(mu_nccl_decide(&in, s, NULL), 0);
    assert_int_equal(s->n, 1);
    assert_string_equal(s->item[0].value, "localhost:29999");
    in.ras_addr = NULL;
    s->n = 0;
    in.nnodes = 2;
    assert_int_equal(mu_nccl_decide(&in, s, NULL), 0);
    assert_string_equal(mu_settings_find(s, "NCCL_SOCKET_IFNAME")->value, "=eno1");
    assert_string_equal(mu_settings_find(s, "NCCL_IB_HCA")->value, "=mlx5_0");
    free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(interfaces_are_chosen_by_subnet),
        cmocka_unit_test(subnets_are_read_whole_or_refused),
        cmocka_unit_test(rdma_devices_are_of_one_kind_and_near),
        cmocka_unit_test(c096_roce_ports_count_by_their_addresses),
        cmocka_unit_test(c077_software_is_no_nic_and_makes_the_list_needed),
        cmocka_unit_test(configuration_files_keep_line_and_order),
        cmocka_unit_test(the_user_beats_the_file_and_the_file_beats_muster),
        cmocka_unit_test(one_node_gets_no_network_variable),
    };

    return cmocka_run_group_tests_name("net", tests, NULL, NULL);
}
