/* SPDX-License-Identifier: BSD-3-Clause */
/* test_node_addr.c - where Slurm reaches a node, from the text of its own settings */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "spank/core/slurm/node_addr.h"

static const struct line_case {
    const char *name, *line, *host, *addr;
} lines[] = {
    { "a node of its own", "NodeName=n1 NodeAddr=10.0.0.1 CPUs=4", "n1", "10.0.0.1" },
    { "another node's line", "NodeName=n10 NodeAddr=10.0.0.1", "n1", "" },
    { "a range and its addresses", "NodeName=n[01-04] NodeAddr=10.0.0.[11-14]", "n03",
      "10.0.0.13" },
    { "two ranges, spread over several brackets",
      "NodeName=a[1-2],b7 NodeAddr=x-a[1-2],x-b", "b7", "x-b" },
    { "several slurmd of one machine", "NodeName=n[1-9] NodeAddr=127.0.0.1", "n9",
      "127.0.0.1" },
    { "NodeAddr wins over NodeHostname",
      "NodeName=n1 NodeHostname=vm NodeAddr=10.0.0.1", "n1", "10.0.0.1" },
    { "without NodeAddr the host name", "NodeName=n1 NodeHostname=vm", "n1", "vm" },
    { "without either nothing", "NodeName=n1 CPUs=4", "n1", "" },
    { "fewer addresses than nodes", "NodeName=n[1-3] NodeAddr=10.0.0.[1-2]", "n3", "" },
    { "any case, tabs, blanks in front", "  nodename=n1\tNODEADDR=10.0.0.1", "n1",
      "10.0.0.1" },
    { "blanks around '=', quotes", "NodeName = n1 NodeAddr = \"10.0.0.1\"", "n1",
      "10.0.0.1" },
    { "a comment", "#NodeName=n1 NodeAddr=10.0.0.1", "n1", "" },
    { "a comment behind", "NodeName=n1 #NodeAddr=10.0.0.1", "n1", "" },
    { "another key that holds the word", "DownNodes=n1 NodeAddr=10.0.0.1", "n1", "" },
    { "an address of IPv6", "NodeName=n1 NodeAddr=fd00::1", "n1", "fd00::1" },
    { "a list that is none", "NodeName=n[1- NodeAddr=10.0.0.1", "n1", "" },
};

static void a_line_of_slurm_conf_tells_the_address(void **state)
{
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        struct mu_node_addr one = { "", "" };

        snprintf(one.host, sizeof one.host, "%s", lines[i].host);
        mu_node_addrs_of_line(lines[i].line, &one, 1);
        if (strcmp(one.addr, lines[i].addr) != 0)
            fail_msg("%s: '%s'", lines[i].name, one.addr);
    }
}

static void one_line_serves_several_nodes_and_the_first_line_holds(void **state)
{
    struct mu_node_addr list[3] = { { "n1", "" }, { "m", "" }, { "n3", "" } };

    mu_node_addrs_of_line("NodeName=n[1-3] NodeAddr=10.0.0.[1-3]", list, 3);
    mu_node_addrs_of_line("NodeName=n[1-3] NodeAddr=10.9.0.[1-3]", list, 3);
    assert_string_equal(list[0].addr, "10.0.0.1");
    assert_string_equal(list[1].addr, "");
    assert_string_equal(list[2].addr, "10.0.0.3");
}

static const struct alias_case {
    const char *aliases, *host, *addr;
} aliases[] = {
    { "c0:1.2.3.4:foo,c1:1.2.3.5:bar", "c1", "1.2.3.5" },
    { "c0:[fd00::2]:foo,c1:1.2.3.5:bar", "c0", "fd00::2" },
    { "c0:[fd00::2]:foo,c1:1.2.3.5:bar", "c1", "1.2.3.5" },
    { "c10:1.2.3.4:foo", "c1", "" },
    { "(null)", "c1", "" },
    { "", "c1", "" },
    { "c1", "c1", "" },
    { "c1::x", "c1", "" },
    { "c1:[fd00", "c1", "fd00" },
};

static void aliases_of_cloud_nodes_tell_the_address(void **state)
{
    for (size_t i = 0; i < sizeof aliases / sizeof aliases[0]; i++) {
        struct mu_node_addr one = { "", "" };

        snprintf(one.host, sizeof one.host, "%s", aliases[i].host);
        mu_node_addrs_of_aliases(aliases[i].aliases, &one, 1);
        if (strcmp(one.addr, aliases[i].addr) != 0)
            fail_msg("%s in '%s': '%s'", one.host, aliases[i].aliases, one.addr);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_of_slurm_conf_tells_the_address),
        cmocka_unit_test(one_line_serves_several_nodes_and_the_first_line_holds),
        cmocka_unit_test(aliases_of_cloud_nodes_tell_the_address),
    };

    return cmocka_run_group_tests_name("node_addr", tests, NULL, NULL);
}
