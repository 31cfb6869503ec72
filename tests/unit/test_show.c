/* SPDX-License-Identifier: BSD-3-Clause */
/* test_show.c - plans as users, scripts and MUSTER_PLAN see them */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "spank/core/plan/plan_text.h"
#include "tests/unit/machines.h"
#include "tests/unit/synth.h"

static char *shown(void (*show)(FILE *, const struct mu_node *, const struct mu_plan *),
                   const struct mu_node *node, const struct mu_plan *plan)
{
    char *text = NULL;
    size_t len;
    FILE *out = open_memstream(&text, &len);

    assert_non_null(out);
    show(out, node, plan);
    fclose(out);
    return text;
}

static void make(void (*machine)(struct mu_node *), int ntasks, const char *options,
                 struct mu_node *node, struct mu_plan *plan)
{
    struct mu_err err = { 0 };
    struct mu_alloc alloc;
    char *rows;

    machine(node);
    assert_int_equal(mu_node_finish(node, &err), 0);
    synth_alloc(node, ntasks, &alloc);
    rows = synth_plan(node, &alloc, options, plan);
    if (strncmp(rows, "error:", 6) == 0)
        fail_msg("%s", rows);
    free(rows);
}

static void the_table_is_aligned(void **state)
{
    static const char want[] = "task  gpu                        cpus             "
                               "cores  memory  nic            "
                               "path  note\n"
                               "   0  0000:01:00.0,0000:02:00.0  48-63,176-191       "
                               "16  3       mlx5_0,mlx5_1  "
                               "PXB   -\n"
                               "   1  0000:03:00.0,0000:04:00.0  16-31,144-159       "
                               "16  1       mlx5_2,mlx5_3  "
                               "PXB   -\n"
                               "   2  0000:05:00.0,0000:06:00.0  112-127,240-255     "
                               "16  7       mlx5_6,mlx5_7  "
                               "PXB   -\n"
                               "   3  0000:07:00.0,0000:08:00.0  80-95,208-223       "
                               "16  5       mlx5_8,mlx5_9  "
                               "PXB   -\n";
    struct mu_node node = { 0 };
    struct mu_plan plan;
    char *text;

    make(machine_dgx_a100, 4, "", &node, &plan);
    text = shown(mu_show_text, &node, &plan);
    assert_string_equal(text, want);
    free(text);
    mu_plan_clear(&plan);
    mu_node_clear(&node);
}

static void many_far_nics_are_counted_in_the_table_and_listed_in_tsv(void **state)
{
    struct mu_node node = { 0 };
    struct mu_plan plan;
    char *text;

    make(machine_dgx_a100, 8, "", &node, &plan);
    for (int g = 0; g < 8; g++)
        for (int k = 0; k < 12; k++)
            synth_path(&node, g, k, MU_NEAR_SYS);
    mu_plan_clear(&plan);
    {
        struct mu_alloc alloc;

        synth_alloc(&node, 8, &alloc);
        free(synth_plan(&node, &alloc, "", &plan));
    }
    text = shown(mu_show_text, &node, &plan);
    assert_non_null(strstr(text, "any of 12  SYS"));
    free(text);
    plan.slots[0].nic_path = MU_NEAR_PIX;
    plan.slots[0].nnics = 40;
    text = shown(mu_show_text, &node, &plan);
    assert_non_null(strstr(text, "any of 40  PIX"));
    free(text);
    plan.slots[0].nic_path = MU_NEAR_SYS;
    plan.slots[0].nnics = 12;
    text = shown(mu_show_tsv, &node, &plan);
    assert_non_null(strstr(text, "\tmlx5_0,mlx5_1,mlx5_2,mlx5_3,mlx5_4,mlx5_5,mlx5_6,"
                                 "mlx5_7,mlx5_8,mlx5_9,mlx5_10,mlx5_11\tSYS\t-\n"));
    free(text);
    mu_plan_clear(&plan);
    mu_node_clear(&node);
}

static void tsv_has_a_header_and_a_dash_for_what_is_empty(void **state)
{
    struct mu_node node = { 0 };
    struct mu_plan plan;
    char *text;

    make(machine_pair_64, 2, "mem=none", &node, &plan);
    text = shown(mu_show_tsv, &node, &plan);
    assert_string_equal(text, "task\tgpus\tcpus\tmems\tnics\tnic_path\tnote\n"
                              "0\t0000:01:00.0\t0-63\t-\t-\t-\t-\n"
                              "1\t0000:02:00.0\t64-127\t-\t-\t-\t-\n");
    free(text);
    mu_plan_clear(&plan);
    mu_node_clear(&node);
}

static void the_record_is_the_line_of_the_contract(void **state)
{
    struct mu_node node = { 0 };
    struct mu_plan plan;
    struct mu_record record;
    struct mu_err err = { 0 };
    char line[MU_RECORD_LINE];

    make(machine_dgx_a100, 8, "", &node, &plan);
    mu_show_record(&node, &plan.slots[2], &record);
    assert_int_equal(mu_record_encode(&record, line, sizeof line, &err), 0);
    assert_string_equal(line, "v=1;task=2;gpus=0000:03:00.0;cpus=16-23,144-151;mems=1;"
                              "nics=mlx5_2,mlx5_3;path=PXB");
    mu_plan_clear(&plan);
    mu_node_clear(&node);
}

/* A node with SR-IOV shows a hundred NICs behind the GPU's switch, one with MIG 28 GPUs
 * to a task: the record goes on without the last ones.
 */
static void a_list_that_does_not_fit_ends_in_dots(void **state)
{
    struct mu_node node = { 0 };
    struct mu_plan plan;
    struct mu_record record, back;
    struct mu_err err = { 0 };
    char line[MU_RECORD_LINE];

    make(machine_dgx_a100, 1, "", &node, &plan);
    plan.slots[0].nnics = plan.slots[0].ngpus = 100;
    for (int i = 0; i < 12; i++)
        memset(node.nics[i].name, 'n', 20 + (size_t)i);
    for (int i = 0; i < 100; i++) {
        plan.slots[0].nic[i] = i % 12;
        plan.slots[0].gpu_node[i] = i % 8;
    }
    mu_show_record(&node, &plan.slots[0], &record);
    assert_string_equal(record.gpus + strlen(record.gpus) - 17, ",0000:06:00.0,...");
    assert_string_equal(record.nics + strlen(record.nics) - 5, "n,...");
    assert_true(strlen(record.gpus) > sizeof record.gpus - 20);
    assert_int_equal(mu_record_encode(&record, line, sizeof line, &err), 0);
    assert_int_equal(mu_record_decode(line, &back, &err), 0);
    assert_string_equal(back.nics, record.nics);
    mu_plan_clear(&plan);
    mu_node_clear(&node);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table_is_aligned),
        cmocka_unit_test(many_far_nics_are_counted_in_the_table_and_listed_in_tsv),
        cmocka_unit_test(tsv_has_a_header_and_a_dash_for_what_is_empty),
        cmocka_unit_test(the_record_is_the_line_of_the_contract),
        cmocka_unit_test(a_list_that_does_not_fit_ends_in_dots),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
