/* SPDX-License-Identifier: BSD-3-Clause */
/* test_node_facts.c - the facts of several nodes, compared */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "spank/core/doctor/node_mask.h"

/* Facts in short: "n1 a.b=1|n2 a.b=2"; "!" begins a line that is passed over. */
static char *lines_of(const char *rows)
{
    char *text = NULL, *copy = strdup(rows), *rest = NULL;
    size_t len;
    FILE *out = open_memstream(&text, &len);

    for (char *row = strtok_r(copy, "|", &rest); row; row = strtok_r(NULL, "|", &rest))
        fprintf(out, "%s%s\n", *row == '!' ? "" : MU_NODE_FACT, row);
    fclose(out);
    free(copy);
    return text;
}

static char *compared(const char *text, const char *expected, struct mu_err *err)
{
    struct mu_hostlist nodes = { 0 };
    struct mu_node_facts facts = { 0 };
    struct mu_comparison c = { 0 };
    char *report = NULL;
    size_t len;
    FILE *out;

    if (expected)
        assert_int_equal(mu_hostlist_parse(expected, &nodes, err), 0);
    if (mu_node_facts_parse(text, expected ? &nodes : NULL, &facts, err) == 0) {
        assert_int_equal(mu_node_facts_compare(&facts, &c, err), 0);
        out = open_memstream(&report, &len);
        mu_comparison_text(out, &c);
        fclose(out);
    }
    mu_comparison_clear(&c);
    mu_node_facts_clear(&facts);
    mu_hostlist_clear(&nodes);
    return report;
}

static const struct report_case {
    const char *name, *expected, *rows, *want;
} reports[] = {
    { "nodes that are alike", NULL,
      "n1 driver.nvidia=550|n1 kernel.release=6.1|n2 kernel.release=6.1|"
      "n2 driver.nvidia=550",
      "2 nodes, 2 facts: all alike\n" },
    { "one node of three has another driver", NULL,
      "n1 driver.nvidia=550|n2 driver.nvidia=550|n3 driver.nvidia=535|n1 k.r=6|"
      "n2 k.r=6|n3 k.r=6",
      "3 nodes, 2 facts: 1 differs\n"
      "driver.nvidia  550  n[1-2]\n"
      "               535  n3\n"
      "n3 differs from most nodes in 1 fact\n"
      "-> make them alike, or leave them out: --exclude=n3\n" },
    { "two nodes differ: none is right", NULL, "n1 driver.nvidia=550|n2 driver.nvidia=",
      "2 nodes, 1 fact: 1 differs\n"
      "driver.nvidia  empty  n2\n"
      "               550    n1\n" },
    { "a node did not answer", "n[1-3]", "n3 k.r=6|n1 k.r=6",
      "n2: no facts came back from there\n"
      "2 nodes, 1 fact: all alike\n" },
    { "no node answered", "n[1-3]", "!motd",
      "n[1-3]: no facts came back from there\n"
      "0 nodes, 0 facts: all alike\n" },
    { "a node without the GPUs of the others: one line for all of their facts", NULL,
      "n1 gpu.0.bios=96|n1 gpu.0.name=H200|n1 gpu.1.bios=96|n1 k.r=6|"
      "n2 gpu.0.bios=96|n2 gpu.0.name=H200|n2 gpu.1.bios=96|n2 k.r=6|n3 k.r=6",
      "3 nodes, 4 facts: 3 differ\n"
      "gpu.0.bios  96      n[1-2]\n"
      "            absent  n3\n"
      "            and 2 more facts of gpu\n"
      "n3 differs from most nodes in 3 facts\n"
      "-> make them alike, or leave them out: --exclude=n3\n" },
    { "a fact that one node alone has", NULL,
      "n1 a.x=1|n2 a.x=1|n3 a.x=1|n2 limit.core=0",
      "3 nodes, 2 facts: 1 differs\n"
      "limit.core  absent  n[1,3]\n"
      "            0       n2\n"
      "n2 differs from most nodes in 1 fact\n"
      "-> make them alike, or leave them out: --exclude=n2\n" },
    { "control bytes, which a terminal would obey", NULL, "n1 k.r=\033[31m6|n2 k.r=7",
      "2 nodes, 1 fact: 1 differs\n"
      "k.r  7       n2\n"
      "     ?[31m6  n1\n" },
    { "text of others between the lines, and a line that came twice", NULL,
      "!Welcome to the cluster|n1 k.r=6|n1 k.r=6|!|n2 k.r=a=b c",
      "2 nodes, 1 fact: 1 differs\n"
      "k.r  6      n1\n"
      "     a=b c  n2\n" },
};

static void only_what_differs_is_reported(void **state)
{
    for (size_t i = 0; i < sizeof reports / sizeof reports[0]; i++) {
        struct mu_err err = { 0 };
        char *text = lines_of(reports[i].rows);
        char *got = compared(text, reports[i].expected, &err);

        if (!got || strcmp(got, reports[i].want) != 0)
            fail_msg("%s:\n%s", reports[i].name, got ? got : err.text);
        free(got);
        free(text);
    }
}

static void a_bad_line_is_named(void **state)
{
    static const char *const bad[] = { "n1", "n1 key", " a=b", "n1 =x", "" };

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct mu_err err = { 0 };
        char text[128];

        snprintf(text, sizeof text, "text\n" MU_NODE_FACT "%s\n", bad[i]);
        assert_null(compared(text, NULL, &err));
        assert_non_null(strstr(err.text, "line 2 is no fact of a node"));
    }
}

/* 64 nodes of 120 facts; nodes 5 and 63 each differ. */
static void sixty_four_nodes_are_a_few_lines(void **state)
{
    struct mu_err err = { 0 };
    char *text = NULL, *got;
    size_t len;
    FILE *out = open_memstream(&text, &len);

    for (int node = 1; node <= 64; node++)
        for (int fact = 0; fact < 120; fact++)
            fprintf(out, MU_NODE_FACT "n%02d area%d.name=%d\n", node, fact,
                    node == 63 && fact % 60 == 7 ? 99
                    : node == 5 && fact == 7     ? 98
                                                 : 1);
    fclose(out);
    got = compared(text, "n[01-64]", &err);
    assert_non_null(got);
    assert_string_equal(got, "64 nodes, 120 facts: 2 differ\n"
                             "area67.name  1   n[01-62,64]\n"
                             "             99  n63\n"
                             "area7.name   1   n[01-04,06-62,64]\n"
                             "             98  n05\n"
                             "             99  n63\n"
                             "n63 differs from most nodes in 2 facts\n"
                             "n05 differs from most nodes in 1 fact\n"
                             "-> make them alike, or leave them out: "
                             "--exclude=n[05,63]\n");
    free(got);
    free(text);
}

static void masked_facts_have_no_identity_and_the_same_differences(void **state)
{
    static const char want[] =
        MU_NODE_FACT "node1 gpu.0.link=0000:0b:00.0 32 GT/s x16\n" MU_NODE_FACT
                     "node1 mount./home=nfs4 source1 rw,vers=4.2\n" MU_NODE_FACT
                     "node1 net.dns=addr1 addr2/64 node2\n" MU_NODE_FACT
                     "node1 os.release=6.1.0-40-amd64 550.54.15 12:34\n" MU_NODE_FACT
                     "node1 z.id=uuid1,uuid1 mac1 mac2\n" MU_NODE_FACT
                     "node2 mount./home=nfs4 source2 rw,vers=4.2\n" MU_NODE_FACT
                     "node2 mount./tmp=tmpfs tmpfs rw,size=4g\n" MU_NODE_FACT
                     "node2 net.dns=addr1 addr3/64 (node1)\n";
    char *text = lines_of("gpu1 gpu.0.link=0000:0b:00.0 32 GT/s x16|"
                          "gpu1 mount./home=nfs4 filer:/vol/home rw,vers=4.2|"
                          "gpu2 mount./home=nfs4 10.0.0.7:/vol/home rw,vers=4.2|"
                          "gpu2 mount./tmp=tmpfs tmpfs rw,size=4g|"
                          "gpu1 net.dns=10.1.2.3 fe80::1/64 gpu2.example.org|"
                          "gpu2 net.dns=10.1.2.3 fe80::2/64 (gpu1)|"
                          "gpu1 os.release=6.1.0-40-amd64 550.54.15 12:34|"
                          "gpu1 z.id=GPU-5a1e7b3c-0001-0002-0003-123456789abc,"
                          "GPU-5a1e7b3c-0001-0002-0003-123456789abc 02:00:5e:10:00:01 "
                          "0c42:a103:00b7:1f2e");
    struct mu_node_facts facts = { 0 };
    char *masked;

    assert_int_equal(mu_node_facts_parse(text, NULL, &facts, NULL), 0);
    masked = mu_node_facts_mask(&facts);
    assert_string_equal(masked, want);
    free(masked);
    mu_node_facts_clear(&facts);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_what_differs_is_reported),
        cmocka_unit_test(a_bad_line_is_named),
        cmocka_unit_test(sixty_four_nodes_are_a_few_lines),
        cmocka_unit_test(masked_facts_have_no_identity_and_the_same_differences),
    };

    return cmocka_run_group_tests_name("node_facts", tests, NULL, NULL);
}
