/* SPDX-License-Identifier: BSD-3-Clause */
/* test_gpu_bind.c - Slurm's GPU binding texts, in the forms that each release stores */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "runtime/base/cpuset.h"
#include "spank/core/gpubind/gpu_bind.h"

static const struct bind_case {
    const char *name, *text;
    enum mu_gpu_bind_kind kind;
    int n, verbose;
    const char *list; /* the entries as CPU lists, '|' between them */
} cases[] = {
    { "closest", "closest", MU_GPU_BIND_CLOSEST, 0, 0, "" },
    { "none", "none", MU_GPU_BIND_NONE, 0, 0, "" },
    { "single:N", "single:2", MU_GPU_BIND_SINGLE, 2, 0, "" },
    { "per_task:N", "per_task:4", MU_GPU_BIND_PER_TASK, 4, 0, "" },
    { "verbose in front", "verbose,single:1", MU_GPU_BIND_SINGLE, 1, 1, "" },
    { "case does not matter, as in Slurm", "Verbose,CLOSEST", MU_GPU_BIND_CLOSEST, 0, 1,
      "" },
    { "map_gpu", "map_gpu:3,2,1,0", MU_GPU_BIND_MAP, 0, 0, "3|2|1|0" },
    { "map, 23.11's name", "map:1,0", MU_GPU_BIND_MAP, 0, 0, "1|0" },
    { "a hexadecimal number in a map", "map_gpu:0x0,0xa", MU_GPU_BIND_MAP, 0, 0,
      "0|10" },
    { "repetition", "map_gpu:0*2,1*2", MU_GPU_BIND_MAP, 0, 0, "0|0|1|1" },
    { "mask_gpu", "mask_gpu:0x3,0xc", MU_GPU_BIND_MASK, 0, 0, "0-1|2-3" },
    { "a mask without 0x", "mask_gpu:10", MU_GPU_BIND_MASK, 0, 0, "4" },
    { "a mask of two words", "mask_gpu:0x80000000000000010000000000000001",
      MU_GPU_BIND_MASK, 0, 0, "0,64,127" },
    { "the last GPU of a machine", "map_gpu:127", MU_GPU_BIND_MAP, 0, 0, "127" },
    { "mask, repeated", "mask:0xf*2", MU_GPU_BIND_MASK, 0, 0, "0-3|0-3" },
    { "22.05's stored form", "gpu:single:1", MU_GPU_BIND_SINGLE, 1, 0, "" },
    { "22.05's stored form, verbose", "gpu:verbose,map_gpu:1,0", MU_GPU_BIND_MAP, 0, 1,
      "1|0" },
    { "23.11's stored form", "gres/gpu:per_task:1", MU_GPU_BIND_PER_TASK, 1, 0, "" },
    { "a --tres-bind list, gpu last", "gres/nic:closest+gres/gpu:single:1",
      MU_GPU_BIND_SINGLE, 1, 0, "" },
    { "a --tres-bind list, gpu first", "gres/gpu:map:0,1+gres/nic:closest",
      MU_GPU_BIND_MAP, 0, 0, "0|1" },
    { "a --tres-bind list without gpu", "gres/nic:closest", MU_GPU_BIND_NONE, 0, 0,
      "" },
    { "another resource, with a colon", "gres:shard:closest", MU_GPU_BIND_NONE, 0, 0,
      "" },
    { "two other resources", "gres/nic:closest+gres/shard:per_task:1", MU_GPU_BIND_NONE,
      0, 0, "" },
};

static void every_form_is_understood(void **state)
{
    static struct mu_gpu_bind bind;

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct mu_err err = { 0 };
        char list[512] = "";

        if (mu_gpu_bind_parse(cases[i].text, &bind, &err) < 0)
            fail_msg("%s: %s", cases[i].name, err.text);
        for (int e = 0; e < bind.nlist; e++) {
            struct mu_cpuset set = { { 0 } };
            char one[64];

            for (int pos = 0; pos < MU_GPUS_MAX; pos++)
                if (mu_gpu_bind_has(&bind, e, pos))
                    mu_cpuset_add(&set, pos);
            mu_cpuset_format(&set, one, sizeof one);
            snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s",
                     e ? "|" : "", one);
        }
        if (bind.kind != cases[i].kind || bind.n != cases[i].n ||
            bind.verbose != cases[i].verbose || strcmp(list, cases[i].list) != 0)
            fail_msg("%s: kind %d n %d verbose %d list '%s'", cases[i].name, bind.kind,
                     bind.n, bind.verbose, list);
    }
}

static const struct bad_case {
    const char *name, *text, *says;
} bad[] = {
    { "nothing", "", "'' is not a GPU binding" },
    { "an unknown word", "nearest", "'nearest' is not a GPU binding" },
    { "a kind without its number", "single:", "single: takes a number" },
    { "no tasks per GPU", "single:0", "single: takes a number" },
    { "a negative number", "per_task:-1", "per_task: takes a number" },
    { "an empty map", "map_gpu:", "map_gpu takes GPU numbers" },
    { "a map with a hole", "map_gpu:0,,1", "map_gpu takes GPU numbers" },
    { "a map above all machines", "map_gpu:128",
      "map_gpu takes GPU numbers from 0 to 127" },
    { "an empty mask", "mask_gpu:0", "masks with a bit set" },
    { "a mask that is none", "mask_gpu:0xg", "hexadecimal masks" },
    { "a mask above all machines", "mask_gpu:0x100000000000000000000000000000000",
      "names a GPU above 127" },
    { "a bad repetition", "map_gpu:0*x", "repetition" },
    { "more entries than there can be", "map_gpu:0*129", "more than 128 entries" },
    { "words after it", "closest,single:1", "is not a GPU binding" },
};

static void nonsense_is_refused_with_its_reason(void **state)
{
    static struct mu_gpu_bind bind, before;

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct mu_err err = { 0 };

        if (mu_gpu_bind_parse(bad[i].text, &bind, &err) != -1)
            fail_msg("%s: accepted", bad[i].name);
        if (!strstr(err.text, bad[i].says))
            fail_msg("%s: says '%s'", bad[i].name, err.text);
        assert_memory_equal(&bind, &before, sizeof bind);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form_is_understood),
        cmocka_unit_test(nonsense_is_refused_with_its_reason),
    };

    return cmocka_run_group_tests_name("gpu_bind", tests, NULL, NULL);
}
