/* SPDX-License-Identifier: BSD-3-Clause */
/* test_visible_check.c - whether CUDA's devices are those of the plan; all visible with
 * device LOCAL_RANK as the task's was reported as a difference on 2 x H200
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "spank/core/gpubind/visible_check.h"

#define A "0000:18:00.0"
#define B "0000:2a:00.0"
#define C "0000:5d:00.0"
#define D "0000:9a:00.0"
#define SLICE "11111111-2222-3333-4444-555555555555"

static const struct check_case {
    const char *name, *planned;
    int rank, size;
    const char *cuda[5];
    enum mu_visible_verdict want;
    const char *part;
} cases[] = {
    { "its own alone", B, 1, 2, { B }, MU_VISIBLE_OK, "device 0" },
    { "another's alone", B, 1, 2, { A }, MU_VISIBLE_DIFFERS, "not among" },
    { "all visible, device LOCAL_RANK", B, 1, 2, { A, B }, MU_VISIBLE_OK, "device 1" },
    { "the first of all", A, 0, 2, { A, B }, MU_VISIBLE_OK, "device 0" },
    { "all visible, in another order",
      B,
      1,
      2,
      { B, A },
      MU_VISIBLE_DIFFERS,
      "device 1, LOCAL_RANK, is " A },
    { "all visible without the task's",
      C,
      1,
      2,
      { A, B },
      MU_VISIBLE_DIFFERS,
      C " is not among" },
    { "two of four, all visible",
      C "," D,
      1,
      2,
      { A, B, C, D },
      MU_VISIBLE_OK,
      "devices 2 to 3 of 4" },
    { "two of four, one is hidden", C "," D, 1, 2, { A, B, C }, MU_VISIBLE_DIFFERS, D },
    { "its own two", C "," D, 1, 2, { C, D }, MU_VISIBLE_OK, "devices 0 to 1" },
    { "its own two, turned",
      C "," D,
      1,
      2,
      { D, C },
      MU_VISIBLE_DIFFERS,
      "device 0 is " D },
    { "one task with all", A "," B, 0, 1, { A, B }, MU_VISIBLE_OK, "" },
    { "four tasks share two", A, 1, 4, { A, B }, MU_VISIBLE_OK, "device 0" },
    { "the number of tasks is unknown", B, 1, -1, { A, B }, MU_VISIBLE_OK, "device 1" },
    { "a slice", "MIG-" SLICE, 1, 2, { A "/GPU-" SLICE }, MU_VISIBLE_OK, "device 0" },
    { "CUDA names no slice", "MIG-" SLICE, 1, 2, { A }, MU_VISIBLE_UNKNOWN, "slice" },
    { "a slice without a UUID", A "/1", 1, 2, { A }, MU_VISIBLE_OK, "device 0" },
};

static void the_rule_of_visible_decides(void **state)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct check_case *c = &cases[i];
        struct mu_visible_task task = { c->planned, c->rank, c->size };
        struct mu_cuda_device device[5] = { 0 };
        char text[256] = "";
        int n = 0;

        for (; c->cuda[n]; n++) {
            const char *uuid = strchr(c->cuda[n], '/');

            snprintf(device[n].pci, sizeof device[n].pci, "%.*s",
                     (int)strcspn(c->cuda[n], "/"), c->cuda[n]);
            snprintf(device[n].uuid, sizeof device[n].uuid, "%s", uuid ? uuid + 1 : "");
        }
        if (mu_visible_check(&task, device, n, text, sizeof text) != c->want ||
            !strstr(text, c->part))
            fail_msg("%s: %s", c->name, text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_rule_of_visible_decides),
    };

    return cmocka_run_group_tests_name("visible_check", tests, NULL, NULL);
}
