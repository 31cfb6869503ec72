/* SPDX-License-Identifier: BSD-3-Clause */
/* test_net_live.c - interfaces in a network namespace of our own; names of hosts */
#include <dlfcn.h>
#include <errno.h>
#include <netdb.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "runtime/base/clock.h"
#include "spank/hw/live/net_live.h"
#include "spank/hw/live/network.h"
#include "tests/unit/hang.h"

/* The name service of the child that looks names up. For "forged" it writes what only a
 * hostile child would: answers about peers and addresses that do not exist.
 */
int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                struct addrinfo **list)
{
    static const int index[] = { 1 << 24, -5, 0 };
    int (*real)(const char *, const char *, const struct addrinfo *,
                struct addrinfo **);
    struct {
        int index;
        struct mu_peer peer;
    } answer = { 0 };

    if (strcmp(node, "forged") == 0) {
        for (int i = 0; i < 3; i++) {
            answer.index = index[i];
            answer.peer.naddrs = 1 << 20;
            if (write(3, &answer, sizeof answer) < 0)
                return EAI_SYSTEM;
        }
        return EAI_NONAME;
    }
    *(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
    return real(node, service, hints, list);
}

/* A namespace of this test's own; skips where it may not be made. */
static void own_namespace(void)
{
    if (unshare(CLONE_NEWNET) < 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0) {
        print_message("no network namespaces here: %s\n", strerror(errno));
        skip();
    }
}

static void ip(const char *script)
{
    if (system(script) != 0) {
        print_message("ip cannot make these links here: %s\n", script);
        skip();
    }
}

/* The kernel tells a new link's carrier late (up to a second): look until `name` has
 * it.
 */
static void load_with_carrier(struct mu_net *net, const char *name)
{
    struct mu_err err = { 0 };

    for (int tries = 0; tries < 100; tries++) {
        mu_net_clear(net);
        if (mu_net_load_live(net, &err) < 0)
            fail_msg("%s", err.text);
        for (int i = 0; i < net->nifaces; i++)
            if (strcmp(net->iface[i].name, name) == 0 && net->iface[i].carrier)
                return;
        usleep(50000);
    }
    fail_msg("%s has no carrier", name);
}

static const char *chosen(const struct mu_net *net, const char *peer,
                          struct mu_net_choice *out)
{
    struct mu_peer peers[1] = { { .host = "peer", .naddrs = 1 } };

    assert_int_equal(mu_addr_parse(peer, &peers[0].addr[0], NULL), 0);
    mu_net_choose(net, NULL, 0, peers, 1, out);
    return out->iface < 0 ? NULL : net->iface[out->iface].name;
}

static void bridges_027_and_dead_ports_029_are_seen_as_they_are(void **state)
{
    struct mu_net net = { 0 };
    struct mu_net_choice choice;

    own_namespace();
    ip("set -e; ip link set lo up; ip link add docker0 type bridge;"
       "ip addr add 10.9.0.1/20 dev docker0; ip link set docker0 up;"
       "ip link add slow type ifb; ip addr add 10.9.3.15/20 dev slow; ip link set slow "
       "up;"
       "ip link add fast type veth peer name other; ip addr add 10.9.5.15/20 dev fast;"
       "ip addr add 10.9.5.99/20 dev fast label fast:1;"
       "ip link set fast up; ip link set other up;"
       "ip link add dead type veth peer name gone; ip addr add 10.9.6.15/20 dev dead;"
       "ip link set dead up");
    load_with_carrier(&net, "fast");
    assert_string_equal(chosen(&net, "10.9.5.16", &choice), "fast");
    for (int i = 0; i < net.nifaces; i++) {
        const struct mu_iface *iface = &net.iface[i];

        assert_null(strchr(iface->name, ':'));
        if (strcmp(iface->name, "dead") == 0)
            assert_false(iface->carrier);
        if (strcmp(iface->name, "fast") == 0) {
            assert_true(iface->up && iface->carrier);
            assert_int_equal(iface->mbits, 10000);
            assert_string_equal(iface->kind, "veth");
            assert_int_equal(iface->addr[0].prefix, 20);
            assert_int_equal(iface->addr[1].byte[3], 99); /* the labelled one */
        }
        if (strcmp(iface->name, "docker0") == 0)
            assert_string_equal(iface->kind, "bridge");
        if (strcmp(iface->name, "lo") == 0)
            assert_true(iface->loopback);
    }
    mu_net_clear(&net);
}

static void an_address_on_lo_only_031_serves_the_rendezvous(void **state)
{
    struct mu_net net = { 0 };
    struct mu_net_choice choice;
    char text[MU_ADDR_TEXT];

    own_namespace();
    ip("set -e; ip link set lo up; ip addr add 203.0.113.17/32 dev lo;"
       "ip link add lan0 type veth peer name lan1; ip link set lan0 up; ip link set "
       "lan1 "
       "up");
    load_with_carrier(&net, "lan0");
    assert_null(chosen(&net, "203.0.113.18", &choice));
    mu_addr_format(&choice.addr, text, sizeof text);
    assert_string_equal(text, "203.0.113.17");
    assert_non_null(strstr(choice.reason, "but NCCL's sockets cannot;"));
    mu_net_clear(&net);
}

static void names_resolve_and_a_silent_name_service_ends(void **state)
{
    struct mu_peer peers[2] = { { .host = "localhost" }, { .host = "127.0.0.9" } };
    struct mu_err err = { 0 };
    double start;

    assert_int_equal(mu_net_resolve(peers, 2, 5, &err), 0);
    assert_true(peers[0].naddrs >= 1);
    assert_int_equal(peers[1].naddrs, 1);
    start = mu_clock_s();
    assert_int_equal(mu_net_resolve(peers, 2, 0, &err), -1);
    assert_non_null(strstr(err.text, "localhost was not resolved"));
    assert_true(mu_clock_s() - start < 2);
}

/* More names than one child is given: each peer gets its own answer all the same. */
static void many_names_are_looked_up_side_by_side(void **state)
{
    enum { N = 200 };
    struct mu_peer *peers = calloc(N, sizeof *peers);
    struct mu_err err = { 0 };

    for (int i = 0; i < N; i++)
        snprintf(peers[i].host, sizeof peers[i].host, "%s",
                 i % 3 ? "localhost" : "0x7f000102"); /* an address to getaddrinfo */
    if (mu_net_resolve(peers, N, 20, &err) < 0)
        fail_msg("%s", err.text);
    for (int i = 0; i < N; i++) {
        assert_true(peers[i].naddrs >= 1);
        if (i % 3 == 0)
            assert_int_equal(peers[i].addr[0].byte[3], 2);
        else
            assert_string_equal(peers[i].host, "localhost");
    }
    free(peers);
}

/* Eight children wait for a file of the name service, and none of them can be killed.
 */
static void look_ups_that_the_kernel_waits_for_are_left_at_the_deadline(void **state)
{
    enum { N = 200 };
    struct mu_peer *peers = calloc(N, sizeof *peers);
    struct mu_err err = { 0 };
    double start;
    int rc;

    for (int i = 0; i < N; i++)
        snprintf(peers[i].host, sizeof peers[i].host, "node%d", i);
    if (!hang_alone() || !hang_begin("/etc/hosts"))
        skip();
    start = mu_clock_s();
    rc = mu_net_resolve(peers, N, 0.5, &err);
    hang_end();
    free(peers);
    assert_int_equal(rc, -1);
    assert_non_null(strstr(err.text, "node0 was not resolved within 0.5 s"));
    assert_true(mu_clock_s() - start < 5);
}

/* With no time at all: no name service is asked. */
static void an_address_is_its_own_look_up(void **state)
{
    struct mu_peer peers[2] = { { .host = "127.0.0.9" }, { .host = "2001:db8::7" } };
    char text[MU_ADDR_TEXT];

    assert_int_equal(mu_net_resolve(peers, 2, 0, NULL), 0);
    assert_int_equal(peers[0].naddrs, 1);
    assert_int_equal(peers[1].naddrs, 1);
    assert_false(peers[0].addr[0].global);
    mu_addr_format(&peers[1].addr[0], text, sizeof text);
    assert_string_equal(text, "2001:db8::7");
}

static void forged_answers_about_names_are_dropped(void **state)
{
    struct mu_peer peers[2] = { { .host = "forged" }, { .host = "10.1.2.3" } };

    assert_int_equal(mu_net_resolve(peers, 2, 30, NULL), 0);
    assert_int_equal(peers[0].naddrs, 0);
    assert_string_equal(peers[0].host, "forged");
    assert_int_equal(peers[1].naddrs, 1);
}

static const char *no_user(void *arg, const char *name)
{
    return NULL;
}

/* A namespace with a bridge of containers or guests and, beside it, the nodes' network
 * 10.9.0.0/20 at `data`.
 */
static void bridge_beside_data(const char *bridge, const char *address)
{
    char script[1024];

    own_namespace();
    snprintf(script, sizeof script,
             "set -e; ip link set lo up; ip link add %s type bridge;"
             "ip addr add %s dev %s; ip link set %s up;"
             "ip link add veth0 type veth peer name veth1; ip link set veth0 up;"
             "ip link set veth1 master %s; ip link set veth1 up;"
             "ip link add data type veth peer name other;"
             "ip addr add 10.9.5.15/20 dev data;"
             "ip link set data up; ip link set other up",
             bridge, address, bridge, bridge, bridge);
    ip(script);
}

static void a_step_of_two_nodes_gets_interface_and_address(void **state)
{
    char *hosts[] = { "10.9.5.16", "10.9.5.15" };
    struct mu_node node = { 0 };
    struct mu_alloc alloc = { 0 };
    struct mu_network_request request = { .node = &node,
                                          .alloc = &alloc,
                                          .hosts = hosts,
                                          .nhosts = 2,
                                          .nccl = true,
                                          .timeout = 5,
                                          .ras_port = 25001,
                                          .user = no_user };
    struct mu_network *out = calloc(1, sizeof *out);
    struct mu_err err = { 0 };

    bridge_beside_data("virbr7", "192.168.122.1/24");
    load_with_carrier(&out->net, "data");
    mu_net_clear(&out->net);
    if (mu_network_decide(&request, out, &err) < 0)
        fail_msg("%s", err.text);
    assert_string_equal(out->master_addr, "10.9.5.16");
    assert_string_equal(mu_settings_find(&out->settings, "NCCL_SOCKET_IFNAME")->value,
                        "=data");
    mu_network_clear(out);
    request.networks = "10.9.0.0/20,nonsense";
    assert_int_equal(mu_network_decide(&request, out, &err), -1);
    assert_non_null(strstr(err.text, "networks: 'nonsense'"));
    mu_network_clear(out);
    free(out);
}

static const struct own_case {
    const char *name, *own, *rank0, *addr;
    bool known;
} own_cases[] = {
    { "127.0.1.1 as Debian's installer writes it", "127.0.1.1", NULL, "10.9.5.16",
      true },
    { "the same on rank 0's node", "127.0.1.1", "127.0.1.1", "10.9.5.15", true },
    { "no name at all, on rank 0's node", "here.invalid", "here.invalid", "10.9.5.15",
      true },
};

/* Everybody else knows this node by its address: the network is found all the same. */
static void the_own_name_need_not_resolve_to_an_address_of_the_network(void **state)
{
    struct mu_network *out = calloc(1, sizeof *out);
    struct mu_err err = { 0 };

    bridge_beside_data("br-ff", "172.18.0.1/16");
    load_with_carrier(&out->net, "br-ff");
    load_with_carrier(&out->net, "data");
    mu_net_clear(&out->net);
    for (size_t i = 0; i < sizeof own_cases / sizeof own_cases[0]; i++) {
        const struct own_case *c = &own_cases[i];
        char *hosts[] = { "10.9.5.16", (char *)(uintptr_t)c->own };
        struct mu_network_request request = { .hosts = hosts,
                                              .nhosts = 2,
                                              .rank0_host = c->rank0,
                                              .self = c->own,
                                              .timeout = 5,
                                              .user = no_user };

        if (mu_network_decide(&request, out, &err) < 0)
            fail_msg("%s: %s", c->name, err.text);
        if (out->choice.iface < 0 ||
            strcmp(out->net.iface[out->choice.iface].name, "data") != 0)
            fail_msg("%s: %s", c->name, out->choice.reason);
        if (strcmp(out->master_addr, c->addr) != 0 || out->master_known != c->known)
            fail_msg("%s: MASTER_ADDR %s", c->name, out->master_addr);
        assert_non_null(
            strstr(out->fallback, "the addresses of this node's interfaces are used"));
        mu_network_clear(out);
    }
    free(out);
}

static const struct gloo_case {
    const char *name, *host, *user, *value, *reason;
} gloo_cases[] = {
    { "its name gives an address of the network", "10.9.5.15", NULL, NULL, NULL },
    { "its name gives a loopback address", "127.0.1.1", NULL, "data",
      "resolves to 127.0.1.1" },
    { "its name gives an address of another node", "10.9.5.16", NULL, "data",
      "resolves to no address of this node" },
    { "its name is not known", "nowhere.invalid", NULL, "data",
      "nowhere.invalid resolves to no address of this node" },
    { "the user named an interface", "127.0.1.1", "mine", "data",
      "resolves to 127.0.1.1" },
};

static const char *users_interface(void *arg, const char *name)
{
    const struct gloo_case *c = arg;

    return strcmp(name, "GLOO_SOCKET_IFNAME") == 0 ? c->user : NULL;
}

static void gloo_gets_the_interface_where_it_would_use_loopback(void **state)
{
    char *hosts[] = { "10.9.5.16", "10.9.5.15" };
    struct mu_network *out = calloc(1, sizeof *out);
    struct mu_err err = { 0 };

    own_namespace();
    if (unshare(CLONE_NEWUTS) < 0)
        skip();
    ip("set -e; ip link set lo up; ip link add data type veth peer name other;"
       "ip addr add 10.9.5.15/20 dev data; ip link set data up; ip link set other up");
    load_with_carrier(&out->net, "data");
    mu_net_clear(&out->net);
    for (size_t i = 0; i < sizeof gloo_cases / sizeof gloo_cases[0]; i++) {
        const struct gloo_case *c = &gloo_cases[i];
        struct mu_network_request request = { .hosts = hosts,
                                              .nhosts = 2,
                                              .gloo = true,
                                              .timeout = 5,
                                              .user = users_interface,
                                              .user_arg = (void *)c };
        const struct mu_setting *s;

        if (sethostname(c->host, strlen(c->host)) < 0)
            skip();
        if (mu_network_decide(&request, out, &err) < 0)
            fail_msg("%s: %s", c->name, err.text);
        s = mu_settings_find(&out->settings, "GLOO_SOCKET_IFNAME");
        if ((s ? 1 : 0) != (c->value ? 1 : 0))
            fail_msg("%s: %s", c->name, s ? s->value : "not set");
        if (s && (strcmp(s->value, c->value) != 0 || !strstr(s->reason, c->reason) ||
                  (s->winner == MU_WINNER_USER) != (c->user != NULL)))
            fail_msg("%s: %s: %s", c->name, s->value, s->reason);
        mu_network_clear(out);
    }
    free(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_resolve_and_a_silent_name_service_ends),
        cmocka_unit_test(many_names_are_looked_up_side_by_side),
        cmocka_unit_test(look_ups_that_the_kernel_waits_for_are_left_at_the_deadline),
        cmocka_unit_test(an_address_is_its_own_look_up),
        cmocka_unit_test(forged_answers_about_names_are_dropped),
        cmocka_unit_test(bridges_027_and_dead_ports_029_are_seen_as_they_are),
        cmocka_unit_test(an_address_on_lo_only_031_serves_the_rendezvous),
        cmocka_unit_test(a_step_of_two_nodes_gets_interface_and_address),
        cmocka_unit_test(the_own_name_need_not_resolve_to_an_address_of_the_network),
        cmocka_unit_test(gloo_gets_the_interface_where_it_would_use_loopback),
    };

    return cmocka_run_group_tests_name("net_live", tests, NULL, NULL);
}
