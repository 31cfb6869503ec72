/* SPDX-License-Identifier: BSD-3-Clause */
/* test_job_nodes.c - classes of distance between nodes, the order that keeps neighbours
 * near, and what a job is advised
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "spank/core/nodes/job_nodes.h"

#define NODES_MOST 256

/* Node i hangs on group[i] (a letter); pairs in one group have `near`, others `far`,
 * or `farther` where the letters differ in case too. '-' in silent: that node never
 * answers.
 */
struct shape {
    const char *group;
    double near, far, farther;
    double noise; /* share by which pairs differ */
    const char *nvlink, *silent;
    bool switches; /* Slurm names a leaf switch per letter, below one per case */
};

static bool is_upper(char c)
{
    return c >= 'A' && c <= 'Z';
}

static char lower(char c)
{
    return is_upper(c) ? (char)(c - 'A' + 'a') : c;
}

static char *text_of(const struct shape *s)
{
    char *text = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&text, &len);
    int n = (int)strlen(s->group);

    assert_non_null(f);
    fputs("a line of the shell\n", f);
    for (int i = 0; i < n; i++) {
        fprintf(f, "muster-node n%02d gpus=4 later=1", i + 1);
        if (s->nvlink && s->nvlink[i] != '-')
            fprintf(f, " nvlink=4a4f.%c cpu=grace near=4", s->nvlink[i]);
        if (s->switches)
            fprintf(f, " switches=top.row%d.leaf%c", is_upper(s->group[i]),
                    lower(s->group[i]));
        fputc('\n', f);
    }
    for (int i = 0; i < n && s->near > 0; i++)
        for (int j = i + 1; j < n; j++) {
            double us = s->group[i] == s->group[j]                       ? s->near
                        : is_upper(s->group[i]) == is_upper(s->group[j]) ? s->far
                                                                         : s->farther;

            us *= 1 + s->noise * ((i * 7 + j * 13) % 17) / 17;
            if (s->silent && (s->silent[i] == '-' || s->silent[j] == '-'))
                fprintf(f, "muster-pair n%02d n%02d -\n", i + 1, j + 1);
            else
                fprintf(f, "muster-pair n%02d n%02d %.2f\n", i + 1, j + 1, us);
        }
    fclose(f);
    return text;
}

static const struct {
    const char *name;
    struct shape shape;
    int classes; /* with class 0 */
    const char *order;
    const char *advice[4]; /* parts of sentences; the first NULL ends them */
} cases[] = {
    { "one group: nothing to do",
      { .group = "aaaa", .near = 20, .noise = 0.1 },
      2,
      "n[01-04]",
      { NULL } },
    { "two groups in turns are put together",
      { .group = "abababab", .near = 20, .far = 40, .noise = 0.15 },
      3,
      "n[01,03,05,07,02,04,06,08]",
      { "a ring in Slurm's order has 8 edges of a round trip of 4",
        "in the order above 2; write it with --hostfile FILE",
        "the nodes are in 2 groups by round trip, but Slurm names no switches" } },
    { "two groups in their order stay",
      { .group = "aabb", .near = 20, .far = 40 },
      3,
      "n[01-04]",
      { "the nodes are in 2 groups by round trip" } },
    { "rows of leaves: leaves within a row stay together",
      { .group = "aBbAaBbA", .near = 20, .far = 30, .farther = 60, .noise = 0.1 },
      4,
      "n[01,05,03,07,02,06,04,08]",
      { "has 8 edges of a round trip of", "in the order above 2" } },
    { "a millisecond of noise is no class",
      { .group = "abababab", .near = 2000, .far = 2100, .noise = 0.2 },
      2,
      "n[01-08]",
      { NULL } },
    { "a difference below the clock's noise is no class",
      { .group = "abababab", .near = 2, .far = 3.5 },
      2,
      "n[01-08]",
      { NULL } },
    { "one node far away is named",
      { .group = "aaaabaaa", .near = 20, .far = 90 },
      3,
      "n[01-08]",
      { "n05 is far from all others: leave it out with --exclude=n05" } },
    { "an NVLink domain is a unit, whatever the round trips are",
      { .group = "aaaaaaaa", .near = 20, .nvlink = "12121212" },
      2,
      "n[01,03,05,07,02,04,06,08]",
      { "parts of 2 NVLink domains, 4 nodes in the largest", "--segment=4" } },
    { "a node that has lost the fabric",
      { .group = "aaaa", .near = 20, .nvlink = "11-1" },
      2,
      "n[01-04]",
      { "1 node is in no NVLink domain, the others are" } },
    { "without round trips Slurm's switches decide",
      { .group = "aBbAaBbA", .switches = true },
      4,
      "n[01,05,03,07,02,06,04,08]",
      { "a ring in Slurm's order has 8 edges of 3 levels of switches" } },
    { "switches decide where all round trips are alike",
      { .group = "abcabcaa", .near = 20, .far = 20, .switches = true },
      3,
      "n[01,04,07-08,02,05,03,06]",
      { "the job spans 3 leaf switches, and 2 would hold it", "--switches=2@60" } },
    { "a node without an answer is named",
      { .group = "aaaaa", .near = 20, .silent = "..-.." },
      2,
      "n[01-05]",
      { "n03 answers no other node: leave it out with --exclude=n03",
        "4 pairs of nodes did not answer each other, the first are n01 and n03" } },
    { "two nodes", { .group = "ab", .near = 20, .far = 40 }, 2, "n[01-02]", { NULL } },
    { "one node", { .group = "a" }, 1, "n01", { NULL } },
    { "no distance at all", { .group = "abab" }, 1, "n[01-04]", { NULL } },
};

static void check(size_t at, const struct mu_job_nodes *nodes)
{
    struct mu_node_classes classes;
    struct mu_node_advice advice;
    struct mu_err err = { 0 };
    int order[NODES_MOST], k = 0;
    bool seen[NODES_MOST] = { 0 };
    char *names;

    assert_int_equal(mu_node_classes_make(nodes, &classes, &err), 0);
    assert_int_equal(mu_node_order(&classes, nodes->n, order, &err), 0);
    for (int i = 0; i < nodes->n; i++) {
        assert_false(seen[order[i]]);
        seen[order[i]] = true;
    }
    assert_int_equal(mu_node_advise(nodes, &classes, order, NULL, &advice, &err), 0);
    names = mu_node_names(nodes, order);
    if (classes.n != cases[at].classes || strcmp(names, cases[at].order) != 0)
        fail_msg("%s: %d classes, order %s", cases[at].name, classes.n, names);
    for (; k < 4 && cases[at].advice[k]; k++) {
        bool found = false;

        for (int i = 0; i < advice.n; i++)
            found = found || strstr(advice.text[i], cases[at].advice[k]);
        if (!found)
            fail_msg("%s: no advice '%s', but '%s'", cases[at].name,
                     cases[at].advice[k], advice.n ? advice.text[0] : "none");
    }
    if (k == 0 && advice.n != 0)
        fail_msg("%s: advice %s", cases[at].name, advice.text[0]);
    assert_true(advice.silent == (cases[at].shape.silent != NULL));
    free(names);
    mu_node_advice_clear(&advice);
    mu_node_classes_clear(&classes);
}

static void order_and_advice_follow_from_the_distances(void **state)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *text = text_of(&cases[i].shape);
        struct mu_job_nodes nodes;
        struct mu_err err = { 0 };

        if (mu_job_nodes_parse(text, &nodes, &err) < 0)
            fail_msg("%s: %s", cases[i].name, err.text);
        check(i, &nodes);
        mu_job_nodes_clear(&nodes);
        free(text);
    }
}

/* 128 nodes of 16 leaves, shuffled, as measured with noise: every leaf is one piece. */
static void a_large_job_has_as_many_far_edges_as_groups(void **state)
{
    char group[129] = "";
    struct shape shape = { .group = group, .near = 18, .far = 31, .noise = 0.2 };
    int order[NODES_MOST], edges[MU_NODE_CLASSES + 2];
    struct mu_node_classes classes;
    struct mu_job_nodes nodes;
    struct mu_err err = { 0 };
    char *text;

    for (int i = 0; i < 128; i++)
        group[i] = (char)('a' + i * 37 % 16);
    text = text_of(&shape);
    assert_int_equal(mu_job_nodes_parse(text, &nodes, &err), 0);
    assert_int_equal(mu_node_classes_make(&nodes, &classes, &err), 0);
    assert_int_equal(classes.n, 3);
    assert_int_equal(mu_node_order(&classes, nodes.n, order, &err), 0);
    mu_ring_edges(&classes, nodes.n, order, edges);
    assert_int_equal(edges[2], 16);
    assert_int_equal(edges[1], 112);
    mu_ring_edges(&classes, nodes.n, NULL, edges);
    assert_int_equal(edges[2], 128);
    mu_node_classes_clear(&classes);
    mu_job_nodes_clear(&nodes);
    free(text);
}

static void text_and_tsv_have_each_node_once(void **state)
{
    struct shape shape = { .group = "abab", .near = 20, .far = 40, .nvlink = "1-1-" };
    char *text = text_of(&shape), *out = NULL;
    struct mu_node_classes classes;
    struct mu_node_advice advice;
    struct mu_job_nodes nodes;
    struct mu_err err = { 0 };
    size_t len = 0;
    int order[4];
    FILE *f = open_memstream(&out, &len);

    assert_int_equal(mu_job_nodes_parse(text, &nodes, &err), 0);
    assert_int_equal(mu_node_classes_make(&nodes, &classes, &err), 0);
    assert_int_equal(mu_node_order(&classes, nodes.n, order, &err), 0);
    assert_int_equal(mu_node_advise(&nodes, &classes, order, "h", &advice, &err), 0);
    mu_job_nodes_tsv(f, &nodes, &classes, order);
    assert_int_equal(mu_job_nodes_text(f, &nodes, &classes, order, &advice), 0);
    fclose(f);
    assert_non_null(strstr(out, "position\tnode\tgpus\tnvlink\tswitches\tclass\tus\n"
                                "0\tn01\t4\t4a4f.1\t-\t0\t20.0\n"
                                "1\tn03\t4\t4a4f.1\t-\t2\t40.0\n"
                                "2\tn02\t4\t-\t-\t1\t20.0\n"
                                "3\tn04\t4\t-\t-\t2\t40.0\n"));
    assert_non_null(strstr(out, "4 nodes, by round trip\n"));
    assert_non_null(strstr(out, "NVLink domain 4a4f.1: 2 nodes, n[01,03]\n"));
    assert_non_null(strstr(out, "Grace: 2 nodes, 8 of 8 GPUs in one package"));
    assert_non_null(strstr(out, "order: n[01,03,02,04]\n"));
    assert_non_null(strstr(out, "; SLURM_HOSTFILE=h srun --distribution=arbitrary\n"));
    free(out);
    free(text);
    mu_node_advice_clear(&advice);
    mu_node_classes_clear(&classes);
    mu_job_nodes_clear(&nodes);
}

static void a_wrong_line_is_named(void **state)
{
    static const struct {
        const char *text, *sentence;
    } wrong[] = {
        { "", "there is no line 'muster-node NAME'" },
        { "muster-node \n", "line 1: a node has a name of at most 255 characters" },
        { "muster-node a\nmuster-node a\n", "line 2: node a is there twice" },
        { "muster-node a gpus\n", "line 1: 'gpus' is no KEY=VALUE" },
        { "muster-node a gpus=x\n", "line 1: gpus takes a number from 0 to 1024" },
        { "muster-node a\nmuster-pair a\n", "line 2: a pair has two nodes and a time" },
        { "muster-node a\nmuster-pair a b 7\n",
          "line 2: 'a b' is no pair of the nodes above" },
        { "muster-node a\nmuster-pair a a 7\n",
          "line 2: 'a a' is no pair of the nodes above" },
        { "muster-node a\nmuster-node b\nmuster-pair a b nan\n",
          "line 3: a round trip in us" },
    };

    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct mu_job_nodes nodes = { .n = 77 };
        struct mu_err err = { 0 };

        assert_int_equal(mu_job_nodes_parse(wrong[i].text, &nodes, &err), -1);
        assert_int_equal(nodes.n, 77);
        if (!strstr(err.text, wrong[i].sentence))
            fail_msg("%s: %s", wrong[i].text, err.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(order_and_advice_follow_from_the_distances),
        cmocka_unit_test(a_large_job_has_as_many_far_edges_as_groups),
        cmocka_unit_test(text_and_tsv_have_each_node_once),
        cmocka_unit_test(a_wrong_line_is_named),
    };

    return cmocka_run_group_tests_name("job_nodes", tests, NULL, NULL);
}
