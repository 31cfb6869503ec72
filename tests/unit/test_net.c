/* SPDX-License-Identifier: BSD-3-Clause */
/* test_net.c - which interface, and whose variable wins */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "spank/core/nccl/nccl_variables.h"
#include "spank/core/network/interface.h"
#include "tests/unit/net_lines.h"

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
      { NET_LO, "docker0 0 UC 172.17.0.1/16", "enp159s0 10000 UC 10.5.160.6/20",
        "enp35s0d1 10000 UC 10.6.0.6/20" },
      { NULL },
      { "10.5.160.6", "10.5.160.7" },
      "enp159s0",
      "10.5.160.6",
      true,
      "all 2 nodes" },
    { "027 docker0 alone beside one network: NCCL finds that itself",
      { NET_LO, "docker0 0 UC 172.17.0.1/16", "eno1 1000 UC 10.5.160.6/20" },
      { NULL },
      { "10.5.160.7" },
      "eno1",
      "10.5.160.6",
      false,
      "" },
    { "027 a bridge that NCCL does not know as private makes the variable needed",
      { NET_LO, "br-12ab 0 UC 172.18.0.1/16", "eno1 1000 UC 10.5.160.6/20" },
      { NULL },
      { "10.5.160.7" },
      "eno1",
      "10.5.160.6",
      true,
      "" },
    { "a tunnel comes behind a real network, faster or not",
      { NET_LO, "wg0 10000 UC 10.8.0.5/24", "eno1 1000 UC 10.1.0.5/16" },
      { "10.0.0.0/8" },
      { "10.1.0.6" },
      "eno1",
      "10.1.0.5",
      true,
      "" },
    { "NCCL goes by beginnings: lom1 counts as lo to it",
      { NET_LO, "lom1 1000 UC 10.5.160.6/20" },
      { NULL },
      { "10.5.160.7" },
      "lom1",
      "10.5.160.6",
      true,
      "" },
    { "029 two ports in one subnet: the faster, dead ports skipped",
      { NET_LO, "eno1 1000 UC 10.9.3.15/20", "eno2 0 U",
        "enp37s0f0 10000 UC 10.9.5.15/20", "enp37s0f1 0 U 10.9.6.15/20" },
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
      { NET_LO, "eno1 1000 UC 10.1.0.5/16", "ib0 100000 UC 10.2.0.5/16" },
      { "10.9.0.0/16", "10.2.0.0/16" },
      { "10.1.0.6" },
      "ib0",
      "10.2.0.5",
      false,
      "entry 2 of networks= in muster.conf" },
    { "the same by an interface that NCCL would not prefer",
      { NET_LO, "eno1 1000 UC 10.1.0.5/16", "ib0 100000 UC 10.2.0.5/16" },
      { "10.1.0.0/16" },
      { "10.1.0.6" },
      "eno1",
      "10.1.0.5",
      true,
      "entry 1 of networks=" },
    { "one node elsewhere: nothing is guessed",
      { NET_LO, "eno1 1000 UC 10.1.0.5/16" },
      { NULL },
      { "10.1.0.6", "192.0.2.9" },
      NULL,
      NULL,
      false,
      "networks=" },
    { "a name without address is named",
      { NET_LO, "eno1 1000 UC 10.1.0.5/16" },
      { NULL },
      { "10.1.0.6", "" },
      NULL,
      NULL,
      false,
      "peer1 does not resolve" },
    { "an interface without carrier is no candidate",
      { NET_LO, "eno1 1000 U 10.1.0.5/16" },
      { NULL },
      { "10.1.0.6" },
      NULL,
      NULL,
      false,
      "" },
    { "IPv6 with a link local address in the way",
      { NET_LO, "eno1 1000 UC fe80::1/64 fd00:1::5/64" },
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

    net_build(&net, c->ifaces);
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

static const char conf_text[] = "# a comment\n"
                                "NCCL_IB_HCA =blank\n"
                                " NCCL_IB_HCA=blank\n"
                                "NCCL_IB_HCA=mlx5_0\r\n"
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
    assert_int_equal(line->line, 4);
    /* Two other variables, as NCCL takes them. */
    assert_string_equal(mu_conf_find(&conf, "NCCL_IB_HCA ")->value, "blank");
    assert_string_equal(mu_conf_find(&conf, " NCCL_IB_HCA")->value, "blank");
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
        "NCCL_IB_HCA stays mlx5_0 from /etc/nccl.conf line 4 (Muster would set "
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
        cmocka_unit_test(configuration_files_keep_line_and_order),
        cmocka_unit_test(the_user_beats_the_file_and_the_file_beats_muster),
        cmocka_unit_test(one_node_gets_no_network_variable),
    };

    return cmocka_run_group_tests_name("net", tests, NULL, NULL);
}
