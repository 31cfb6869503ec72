/* SPDX-License-Identifier: BSD-3-Clause */
/* test_platform.c - which platform a recorded tree shows, and NCCL's files on it */
#include <errno.h>
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
#include "spank/core/nccl/profile.h"
#include "spank/hw/live/nccl_conf_files.h"
#include "spank/hw/live/platform_live.h"
#include "tests/unit/hang.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_recorded_tree_shows_dmi_pci_and_files),
        cmocka_unit_test(the_shipped_profiles_know_their_platforms),
        cmocka_unit_test(nccl_files_are_read_in_its_order),
        cmocka_unit_test(users_nccl_file_is_parsed_in_a_child_and_bounded),
        cmocka_unit_test(a_nccl_file_that_answers_nothing_is_given_up),
    };

    umask(022); /* of what the tests write, as of a site's files */
    return cmocka_run_group_tests_name("platform", tests, NULL, NULL);
}
