/* SPDX-License-Identifier: BSD-3-Clause */
/* test_net_live.c - real interfaces in a network namespace of our own, recorded trees,
 * NCCL's files, names that never resolve
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "runtime/base/clock.h"
#include "spank/hw/live/nccl_conf_files.h"
#include "spank/hw/live/net_live.h"
#include "spank/hw/live/network.h"
#include "spank/hw/live/platform_live.h"
#include "spank/hw/io/sysfile.h"
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

/* With no time at all: nobody is asked. */
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

static void put(const char *root, const char *path, const char *text)
{
    char full[512], command[600];
    FILE *f;

    snprintf(full, sizeof full, "%s%s", root, path);
    snprintf(command, sizeof command, "mkdir -p $(dirname '%s')", full);
    assert_int_equal(system(command), 0);
    f = fopen(full, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void remove_tree(const char *root)
{
    char command[600];

    snprintf(command, sizeof command, "rm -rf '%s'", root);
    assert_int_equal(system(command), 0);
}

static void a_recorded_tree_shows_dmi_pci_and_files(void **state)
{
    char root[] = "/tmp/muster-test-XXXXXX";
    struct mu_platform platform;

    assert_non_null(mkdtemp(root));
    put(root, "/sys/class/dmi/id/sys_vendor", "Amazon EC2\n");
    put(root, "/sys/bus/pci/devices/0000:53:00.0/vendor", "0x10de\n");
    put(root, "/sys/bus/pci/devices/0000:53:00.0/device", "0x2330\n");
    put(root, "/sys/bus/pci/devices/0000:4f:00.0/vendor", "0x1d0f\n");
    put(root, "/sys/bus/pci/devices/0000:4f:00.0/device", "0xefa1\n");
    put(root, "/opt/aws-ofi-nccl/lib/libnccl-net.so", "");
    assert_int_equal(mu_platform_load(root, &platform, NULL), 0);
    assert_string_equal(platform.dmi(platform.arg, "sys_vendor"), "Amazon EC2");
    assert_null(platform.dmi(platform.arg, "product_name"));
    assert_null(platform.dmi(platform.arg, "../id/sys_vendor"));
    assert_int_equal(platform.pci(platform.arg, "10de:*"), 1);
    assert_int_equal(platform.pci(platform.arg, "*"), 2);
    assert_true(platform.exists(platform.arg, "/opt/aws-ofi-nccl/lib/libnccl-net.so"));
    assert_false(platform.exists(platform.arg, "/opt/other"));
    mu_platform_unload(&platform);
    remove_tree(root);
}

/* pci: "vendor:device*count ...", rdma: a letter per active port, I or E */
static const struct platform_case {
    const char *profile, *vendor, *product, *pci, *rdma, *file, *content;
    const char *name, *value; /* a variable it must set, NULL: none at all */
} platforms[] = {
    { "google-gib", "Google", "Google Compute Engine", "10de:2335*8 15b3:101e*8",
      "EEEEEEEE", "/usr/local/gib/scripts/set_nccl_env.sh",
      "export NCCL_NET=gIB\nexport NCCL_IB_TC=52\n", "NCCL_NET", "gIB" },
    { "google-gib", "Google", "Google Compute Engine", "10de:2901*8 15b3:101e*8",
      "EEEEEEEE", "/usr/local/gib/scripts/set_nccl_env.sh",
      "#!/bin/bash\nexport NCCL_NET=gIB\nexport NCCL_TUNER_CONFIG_PATH=$DIR/t\n",
      "NCCL_NET", "gIB" },
    { "google-a3-mega", "Google", "Google Compute Engine", "10de:2330*8 1ae0:0042*9",
      "", "/var/lib/tcpxo/lib64/nccl-env-profile.sh",
      "export NCCL_FASTRAK_CTRL_DEV=enp0s12\n", "NCCL_FASTRAK_CTRL_DEV", "enp0s12" },
    { "google-a3-high", "Google", "Google Compute Engine", "10de:2330*8 1ae0:0042*5",
      "", "/var/lib/tcpx/lib64/libnccl-net.so", "", "NCCL_CROSS_NIC", "0" },
    { "aws-p4d", "Amazon EC2", "p4d.24xlarge", "10de:20b0*8 1d0f:efa0*4", "", NULL,
      NULL, "FI_EFA_USE_DEVICE_RDMA", "1" },
    { "aws-p4d", "Amazon EC2", "p4de.24xlarge", "10de:20b2*8 1d0f:efa0*4", "", NULL,
      NULL, "FI_EFA_USE_DEVICE_RDMA", "1" },
    { "aws-p5", "Amazon EC2", "p5en.48xlarge", "10de:2335*8 1d0f:efa2*16", "", NULL,
      NULL, NULL, NULL },
    { "aws-efa", "Amazon EC2", "g5.48xlarge", "10de:2237*8 1d0f:efa1*1", "", NULL, NULL,
      NULL, NULL },
    { "aws-p5", "Amazon EC2", "p5.48xlarge", "10de:2330*8 1d0f:efa1*32", "", NULL, NULL,
      NULL, NULL },
    { "aws-p6", "Amazon EC2", "p6-b200.48xlarge", "10de:2901*8 1d0f:efa2*8", "", NULL,
      NULL, NULL, NULL },
    { "azure-ndv4", "Microsoft Corporation", "Virtual Machine",
      "10de:20b2*8 15b3:101c*8", "IIIIIIII", NULL, NULL, "NCCL_IB_PCI_RELAXED_ORDERING",
      "1" },
    { "azure-ndv5", "Microsoft Corporation", "Virtual Machine",
      "10de:2330*8 15b3:101e*8", "IIIIIIII", NULL, NULL, "NCCL_IB_PCI_RELAXED_ORDERING",
      "1" },
    { "azure-ndv5", "Microsoft Corporation", "Virtual Machine",
      "10de:2335*8 15b3:101e*8", "IIIIIIII", NULL, NULL, "NCCL_IB_PCI_RELAXED_ORDERING",
      "1" },
    { "infiniband", "Microsoft Corporation", "Virtual Machine", /* half an ND machine */
      "10de:20b2*4 15b3:101c*4", "IIII", NULL, NULL, NULL, NULL },
    { "slingshot", "HPE", "HPE Cray EX", "10de:2342*4 17db:0501*4", "", NULL, NULL,
      "NCCL_NET_GDR_LEVEL", "PHB" },
    { "infiniband", "NVIDIA", "DGXH100", "10de:2330*8 15b3:1021*10", "IIIIIIIIEE", NULL,
      NULL, NULL, NULL },
    { "roce", "Supermicro", "SYS", "10de:2330*8 15b3:1021*8", "EEEEEEEE", NULL, NULL,
      NULL, NULL },
    { "ethernet", "Google", "Google Compute Engine", "10de:2330*8 1ae0:0042*9", "",
      NULL, NULL, NULL, NULL },
};

/* The shipped ones, with the owner and the mode that an installation gives them. */
static void install_profiles(char *dir)
{
    char command[600];

    assert_non_null(mkdtemp(dir));
    snprintf(command, sizeof command, "install -m 644 '%s'/spank/profiles/*.ini '%s'",
             getenv("MUSTER_SRCDIR"), dir);
    assert_int_equal(system(command), 0);
}

static void write_machine(const char *root, const struct platform_case *c)
{
    char pci[256], *rest = pci, *item, path[256], id[16];
    int slot = 0;

    put(root, "/sys/class/dmi/id/sys_vendor", c->vendor);
    put(root, "/sys/class/dmi/id/product_name", c->product);
    snprintf(pci, sizeof pci, "%s", c->pci);
    while ((item = strsep(&rest, " ")))
        for (int n = atoi(item + 10); n > 0; n--, slot++) {
            snprintf(path, sizeof path, "/sys/bus/pci/devices/%d/vendor", slot);
            snprintf(id, sizeof id, "0x%.4s", item);
            put(root, path, id);
            snprintf(path, sizeof path, "/sys/bus/pci/devices/%d/device", slot);
            snprintf(id, sizeof id, "0x%.4s", item + 5);
            put(root, path, id);
        }
    for (int i = 0; c->rdma[i]; i++) {
        snprintf(path, sizeof path, "/sys/class/infiniband/mlx5_%d/ports/1/state", i);
        put(root, path, "4: ACTIVE");
        snprintf(path, sizeof path, "/sys/class/infiniband/mlx5_%d/ports/1/link_layer",
                 i);
        put(root, path, c->rdma[i] == 'I' ? "InfiniBand" : "Ethernet");
    }
    if (c->file)
        put(root, c->file, c->content);
}

static void the_shipped_profiles_know_their_platforms(void **state)
{
    struct mu_profiles profiles = { 0 };
    struct mu_err err = { 0 };
    char dir[] = "/tmp/muster-test-XXXXXX";

    install_profiles(dir);
    if (mu_profiles_load(dir, &profiles, &err) < 0)
        fail_msg("%s", err.text);
    for (size_t i = 0; i < sizeof platforms / sizeof platforms[0]; i++) {
        const struct platform_case *c = &platforms[i];
        char root[] = "/tmp/muster-test-XXXXXX";
        struct mu_settings *s = calloc(1, sizeof *s);
        const struct mu_setting *set;
        const struct mu_profile *p;
        struct mu_platform platform;

        assert_non_null(mkdtemp(root));
        write_machine(root, c);
        assert_int_equal(mu_platform_load(root, &platform, NULL), 0);
        p = mu_profiles_match(&profiles, &platform);
        if (!p || strcmp(p->name, c->profile) != 0)
            fail_msg("%s taken for %s", c->profile, p ? p->name : "nothing");
        assert_int_equal(mu_profile_apply(p, &platform, s, NULL), 0);
        set = c->name ? mu_settings_find(s, c->name) : NULL;
        if (c->name ? !set || strcmp(set->value, c->value) != 0 : s->n != 0)
            fail_msg("%s: %s is %s", c->profile, c->name ? c->name : s->item[0].name,
                     set ? set->value : "missing or too much");
        mu_platform_unload(&platform);
        remove_tree(root);
        free(s);
    }
    mu_profiles_clear(&profiles);
}

static void nccl_files_are_read_in_its_order(void **state)
{
    char root[] = "/tmp/muster-test-XXXXXX", etc[64], named[64], fifo[64];
    struct mu_conf conf = { 0 };

    assert_non_null(mkdtemp(root));
    put(root, "/etc/nccl.conf", "NCCL_A=etc\nNCCL_B=etc\n");
    put(root, "/.nccl.conf", "NCCL_A=home\n");
    put(root, "/named.conf", "NCCL_A=named\n");
    snprintf(etc, sizeof etc, "%s/etc/nccl.conf", root);
    snprintf(named, sizeof named, "%s/named.conf", root);
    snprintf(fifo, sizeof fifo, "%s/fifo", root);
    assert_int_equal(mu_conf_load_live(NULL, root, etc, &conf, NULL), 0);
    assert_string_equal(mu_conf_find(&conf, "NCCL_A")->value, "home");
    assert_string_equal(mu_conf_find(&conf, "NCCL_B")->value, "etc");
    mu_conf_clear(&conf);
    assert_int_equal(mu_conf_load_live(named, root, etc, &conf, NULL), 0);
    assert_string_equal(mu_conf_find(&conf, "NCCL_A")->value, "named");
    mu_conf_clear(&conf);
    /* a FIFO in place of a file neither blocks nor counts */
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_int_equal(mu_conf_load_live(fifo, root, etc, &conf, NULL), 0);
    assert_string_equal(mu_conf_find(&conf, "NCCL_A")->value, "etc");
    mu_conf_clear(&conf);
    remove_tree(root);
}

/* A file of 64 KiB that costs the parent neither memory nor time. */
static void users_nccl_file_is_parsed_in_a_child_and_bounded(void **state)
{
    char root[] = "/tmp/muster-test-XXXXXX", *text = calloc(1, MU_CONF_TEXT_MAX + 1);
    struct mu_conf conf = { 0 };
    struct mu_err err = { 0 };
    size_t at = 0;

    assert_non_null(mkdtemp(root));
    /* other names and repeated ones are not kept */
    while (at + 20 < MU_CONF_TEXT_MAX - 1)
        at += (size_t)sprintf(text + at, at % 3 ? "=\nA%zu=1\n" : "NCCL_A=1\n", at % 7);
    put(root, "/.nccl.conf", text);
    assert_int_equal(mu_conf_load_live("", root, "/none", &conf, &err), 0);
    assert_int_equal(conf.n, 1);
    mu_conf_clear(&conf);
    /* as many names as there are */
    for (int i = at = 0; i <= MU_CONF_LINES_MAX; i++) {
        if (i == MU_CONF_LINES_MAX) {
            put(root, "/.nccl.conf", text);
            assert_int_equal(mu_conf_load_live(NULL, root, "/none", &conf, &err), 0);
            assert_int_equal(conf.n, MU_CONF_LINES_MAX);
            assert_int_equal(conf.line[i - 1].line, i);
            mu_conf_clear(&conf);
        }
        at += (size_t)sprintf(text + at, "NCCL_N%d=1\n", i);
    }
    put(root, "/.nccl.conf", text);
    assert_int_equal(mu_conf_load_live(NULL, root, "/none", &conf, &err), -1);
    assert_non_null(strstr(err.text, "/.nccl.conf: more than 512 variables"));
    mu_conf_clear(&conf);
    remove_tree(root);
    free(text);
}

static void a_nccl_file_that_answers_nothing_is_given_up(void **state)
{
    char root[] = "/tmp/muster-test-XXXXXX", path[64], etc[64];
    struct mu_conf conf = { 0 };
    struct mu_err err = { 0 };
    double start, took;
    int rc;

    assert_non_null(mkdtemp(root));
    put(root, "/.nccl.conf", "");
    put(root, "/etc.conf", "NCCL_A=etc\n");
    snprintf(path, sizeof path, "%s/.nccl.conf", root);
    snprintf(etc, sizeof etc, "%s/etc.conf", root);
    if (!hang_alone() || !hang_begin(path)) {
        remove_tree(root);
        skip();
    }
    start = mu_clock_s();
    rc = mu_conf_load_live(NULL, root, etc, &conf, &err);
    took = mu_clock_s() - start;
    hang_end();
    remove_tree(root);
    assert_int_equal(rc, -1);
    assert_int_equal(err.code, ETIMEDOUT);
    assert_true(took >= 2 && took < 6);
    assert_string_equal(mu_conf_find(&conf, "NCCL_A")->value, "etc");
    mu_conf_clear(&conf);
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
        cmocka_unit_test(a_recorded_tree_shows_dmi_pci_and_files),
        cmocka_unit_test(the_shipped_profiles_know_their_platforms),
        cmocka_unit_test(forged_answers_about_names_are_dropped),
        cmocka_unit_test(nccl_files_are_read_in_its_order),
        cmocka_unit_test(users_nccl_file_is_parsed_in_a_child_and_bounded),
        cmocka_unit_test(a_nccl_file_that_answers_nothing_is_given_up),
        cmocka_unit_test(bridges_027_and_dead_ports_029_are_seen_as_they_are),
        cmocka_unit_test(an_address_on_lo_only_031_serves_the_rendezvous),
        cmocka_unit_test(a_step_of_two_nodes_gets_interface_and_address),
        cmocka_unit_test(the_own_name_need_not_resolve_to_an_address_of_the_network),
        cmocka_unit_test(gloo_gets_the_interface_where_it_would_use_loopback),
    };

    umask(022); /* of what the tests write, as of a site's files */
    return cmocka_run_group_tests_name("net_live", tests, NULL, NULL);
}
