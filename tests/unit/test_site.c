/* SPDX-License-Identifier: BSD-3-Clause */
/* test_site.c - the site file: every key, what is wrong by file and line, precedence */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "spank/core/options/muster_conf.h"

static const char example[] = "# a comment\n"
                              "[defaults]\n"
                              "enable = gpu\n"
                              "cpus = all\n"
                              "verbose = yes\n"
                              "networks = 10.1.0.0/16, 10.2.0.0/16\n"
                              "networks = fd00::/8\n"
                              "lock = mem, topo\n"
                              "\n"
                              "[partition debug]\n"
                              "enable = off\n"
                              "mem = strict\n"
                              "restart = no\n"
                              "[node n[01-03],m-a[08-10]]\n"
                              "mem = none ; an inline comment\n"
                              "topology = /etc/slurm/topo.xml\n"
                              "devices = /dev/fake/gpu\n"
                              "ports = 20000-20999\n"
                              "exclude-hca = mlx5_9\n"
                              "lock = strict\n";

static void parse(const char *text, struct mu_site *site)
{
    struct mu_err err = { 0 };

    if (mu_site_parse(text, "muster.conf", site, &err) < 0)
        fail_msg("%s", err.text);
}

static void defaults_hold_everywhere(void **state)
{
    struct mu_site site = { 0 };
    static struct mu_site_keys k;

    parse(example, &site);
    mu_site_resolve(&site, "long", "other", &k);
    assert_int_equal(k.enable, MU_ENABLE_GPU);
    assert_int_equal(k.opts.cpus, MU_CPUS_ALL);
    assert_int_equal(k.opts.verbose, MU_FLAG_YES);
    assert_int_equal(k.opts.mem, MU_MEM_UNSET);
    assert_int_equal(k.opts.mode, MU_MODE_UNSET);
    assert_string_equal(k.networks, "10.1.0.0/16, 10.2.0.0/16,fd00::/8");
    assert_int_equal(k.nlocks, 2);
    assert_int_equal(k.port_first, 0);
    assert_int_equal(k.restart, MU_FLAG_UNSET);
    mu_site_resolve(&site, "debug", "other", &k);
    assert_int_equal(k.restart, MU_FLAG_NO);
    mu_site_clear(&site);
}

static void a_partition_may_lack_the_plugin(void **state)
{
    struct mu_site site = { 0 };
    static struct mu_site_keys k;

    parse("[defaults]\ninstalled = yes\n[partition old]\ninstalled = no\n", &site);
    mu_site_resolve(&site, "old", NULL, &k);
    assert_int_equal(k.installed, MU_FLAG_NO);
    mu_site_resolve(&site, "new", NULL, &k);
    assert_int_equal(k.installed, MU_FLAG_YES);
    mu_site_clear(&site);
}

static void a_node_beats_its_partition_and_both_beat_the_defaults(void **state)
{
    struct mu_site site = { 0 };
    static struct mu_site_keys k;

    parse(example, &site);
    mu_site_resolve(&site, "debug", "other", &k);
    assert_int_equal(k.enable, MU_ENABLE_OFF);
    assert_int_equal(k.opts.mem, MU_MEM_STRICT);
    mu_site_resolve(&site, "debug", "m-a09", &k);
    assert_int_equal(k.enable, MU_ENABLE_OFF);
    assert_int_equal(k.opts.mem, MU_MEM_NONE);
    assert_int_equal(k.opts.cpus, MU_CPUS_ALL);
    assert_string_equal(k.topology, "/etc/slurm/topo.xml");
    assert_string_equal(k.devices, "/dev/fake/gpu");
    assert_string_equal(k.exclude_hca, "mlx5_9");
    assert_int_equal(k.port_first, 20000);
    assert_int_equal(k.port_last, 20999);
    assert_int_equal(k.nlocks, 3);
    mu_site_resolve(&site, NULL, NULL, &k);
    assert_int_equal(k.opts.mem, MU_MEM_UNSET);
    mu_site_clear(&site);
}

static void the_later_section_of_one_kind_wins(void **state)
{
    struct mu_site site = { 0 };
    static struct mu_site_keys k;

    parse("[node n1]\nmem=none\n[node n[1-9]]\nmem=strict\n", &site);
    mu_site_resolve(&site, NULL, "n1", &k);
    assert_int_equal(k.opts.mem, MU_MEM_STRICT);
    mu_site_clear(&site);
}

static void what_editors_leave_is_no_part_of_the_file(void **state)
{
    struct mu_site site = { 0 };
    static struct mu_site_keys k;

    parse("\xef\xbb\xbf[defaults]\r\nmem = none\r\n[node n1]\r\nmem=strict\r\n", &site);
    mu_site_resolve(&site, NULL, "n2", &k);
    assert_int_equal(k.opts.mem, MU_MEM_NONE);
    mu_site_resolve(&site, NULL, "n1", &k);
    assert_int_equal(k.opts.mem, MU_MEM_STRICT);
    mu_site_clear(&site);
}

static void an_empty_file_says_nothing(void **state)
{
    struct mu_site site = { 0 };
    static struct mu_site_keys k, zero;

    parse("", &site);
    mu_site_resolve(&site, "p", "n", &k);
    assert_memory_equal(&k, &zero, sizeof k);
    mu_site_clear(&site);
}

static const struct bad_case {
    const char *name, *text, *says;
} bad[] = {
    { "a restart that is neither yes nor no", "[defaults]\nrestart = never\n",
      "muster.conf:2: restart takes yes or no, not 'never'" },
    { "an unknown key", "[defaults]\n\nbinds = auto\n",
      "muster.conf:3: unknown key 'binds'" },
    { "a bad value", "[defaults]\nmem = most\n", "muster.conf:2: mem takes prefer" },
    { "a bad enable", "[defaults]\nenable = yes\n",
      "muster.conf:2: enable takes off, gpu" },
    { "a bad installed", "[defaults]\ninstalled = maybe\n",
      "muster.conf:2: installed takes yes or no" },
    { "an unknown section", "[default]\nmem = none\n",
      "muster.conf:1: unknown section" },
    { "an unknown section without keys", "[defaults]\n[nodes a]\n",
      "muster.conf:2: unknown section [nodes]" },
    { "a partition without a name", "[partition]\n", "muster.conf:1: unknown section" },
    { "a bad host list", "\n[node n[1-\n]\n",
      "muster.conf:2: a section title must end" },
    { "host numbers backwards", "[node n[3-1]]\n", "muster.conf:1: " },
    { "text behind a title", "[defaults] x\n",
      "muster.conf:1: a section title must end" },
    { "a key before any section", "mem = none\n", "muster.conf:1: 'mem' is before" },
    { "a line that is nothing", "[defaults]\nmem none\n", "muster.conf:2: neither" },
    { "the first of two faults", "[defaults]\nnonsense\nmem = most\n",
      "muster.conf:2: neither" },
    { "the first of two other faults", "[defaults]\nmem = most\nnonsense\n",
      "muster.conf:2: mem takes" },
    { "a relative topology", "[defaults]\ntopology = topo.xml\n",
      "takes an absolute path" },
    { "ports backwards", "[defaults]\nports = 300-200\n",
      "muster.conf:2: ports takes" },
    { "privileged ports", "[defaults]\nports = 1-2000\n",
      "ports takes a number from 1024" },
    { "one port", "[defaults]\nports = 2000\n", "ports takes FIRST-LAST" },
    { "a network that is none", "[defaults]\nnetworks = 10.1.0.0/16, eth0\n",
      "muster.conf:2: networks: 'eth0' is not an address or subnet" },
    { "a network of too many bits", "[defaults]\nnetworks = 10.0.0.0/99\n",
      "muster.conf:2: networks: '10.0.0.0/99'" },
    { "a topology file for tasks by a relative name", "[defaults]\ntopo = topo.xml\n",
      "muster.conf:2: in this file topo takes auto, none or an absolute path" },
    { "a section for two partitions", "[partition a,b]\nmem = none\n",
      "muster.conf:1: a [partition] section takes one name, not 'a,b'" },
    { "a section for all partitions", "[partition *]\nmem = none\n",
      "muster.conf:1: a [partition] section takes one name" },
    { "a lock that is no key", "[defaults]\nlock = enable\n",
      "lock takes keys of --muster" },
};

static void faults_are_named_by_file_and_line(void **state)
{
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct mu_site site = { 0 };
        struct mu_err err = { 0 };

        if (mu_site_parse(bad[i].text, "muster.conf", &site, &err) != -1)
            fail_msg("%s: accepted", bad[i].name);
        if (!strstr(err.text, bad[i].says))
            fail_msg("%s: says '%s'", bad[i].name, err.text);
        assert_int_equal(site.nrules, 0);
    }
}

static void a_line_that_inih_would_cut_is_refused(void **state)
{
    struct mu_site site = { 0 };
    struct mu_err err = { 0 };
    char text[1100] = "[defaults]\nnetworks = ";

    memset(text + strlen(text), '1', 1000);
    assert_int_equal(mu_site_parse(text, "muster.conf", &site, &err), -1);
    assert_non_null(strstr(err.text, "muster.conf:2: the line has"));
}

static void a_title_longer_than_inih_takes_is_whole(void **state)
{
    struct mu_site site = { 0 };
    static struct mu_site_keys k;

    parse("[node "
          "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa[1-2],last]\n"
          "mem = none\n",
          &site);
    mu_site_resolve(&site, NULL, "last", &k);
    assert_int_equal(k.opts.mem, MU_MEM_NONE);
    mu_site_clear(&site);
}

static void locked_keys_are_taken_back_and_named(void **state)
{
    struct mu_site site = { 0 };
    static struct mu_site_keys k;
    struct mu_opts opts = { 0 };
    char taken[128];

    parse("[defaults]\nlock = mem, on, gpu-bind, topo\n", &site);
    mu_site_resolve(&site, NULL, NULL, &k);
    assert_int_equal(mu_opts_parse("off,mem=none,cpus=all,topo=/a.xml", &opts, NULL),
                     0);
    mu_site_lock(&k, &opts, taken, sizeof taken);
    assert_string_equal(taken, "mem, on, topo");
    assert_int_equal(opts.mem, MU_MEM_UNSET);
    assert_int_equal(opts.mode, MU_MODE_UNSET);
    assert_int_equal(opts.topo, MU_TOPO_UNSET);
    assert_string_equal(opts.topo_file, "");
    assert_int_equal(opts.cpus, MU_CPUS_ALL);
    mu_site_clear(&site);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_hold_everywhere),
        cmocka_unit_test(a_partition_may_lack_the_plugin),
        cmocka_unit_test(a_node_beats_its_partition_and_both_beat_the_defaults),
        cmocka_unit_test(the_later_section_of_one_kind_wins),
        cmocka_unit_test(what_editors_leave_is_no_part_of_the_file),
        cmocka_unit_test(an_empty_file_says_nothing),
        cmocka_unit_test(faults_are_named_by_file_and_line),
        cmocka_unit_test(a_line_that_inih_would_cut_is_refused),
        cmocka_unit_test(a_title_longer_than_inih_takes_is_whole),
        cmocka_unit_test(locked_keys_are_taken_back_and_named),
    };

    return cmocka_run_group_tests_name("site", tests, NULL, NULL);
}
