/* SPDX-License-Identifier: BSD-3-Clause */
/* test_doctor_limits.c - what the doctor says of ulimits and /dev/shm */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "spank/core/doctor/doctor.h"

#define MIB (UINT64_C(1) << 20)
#define NO MU_UNLIMITED

struct limits_case {
    const char *name;
    int gpus;
    struct mu_nic nic; /* none without a name */
    struct mu_limits limits;
    const char *what, *todo; /* NULL: nothing is found */
};

#define IB                                                                             \
    {                                                                                  \
        .name = "mlx5_0", .layer = MU_LINK_IB, .active = true                          \
    }

static const struct limits_case cases[] = {
    { "no limit", 8, IB, { true, NO, NO, NO }, NULL, NULL },
    { "locked memory and InfiniBand",
      8,
      IB,
      { true, 64 << 10, NO, NO },
      "may lock 64 KiB of memory (ulimit -l), but mlx5_0 needs",
      "PropagateResourceLimitsExcept=MEMLOCK" },
    { "a limit that is no multiple",
      0,
      IB,
      { true, 8388609, NO, NO },
      "may lock 8388609 bytes of memory",
      "LimitMEMLOCK=infinity" },
    { "locked memory and RoCE",
      1,
      { .name = "mlx5_bond_0", .layer = MU_LINK_ETHERNET, .active = true },
      { true, 8 * MIB, NO, NO },
      "may lock 8 MiB of memory (ulimit -l), but mlx5_bond_0 needs",
      "LimitMEMLOCK=infinity" },
    { "locked memory and EFA",
      8,
      { .name = "rdmap79s0", .layer = MU_LINK_EFA, .active = true },
      { true, 8 * MIB, NO, NO },
      "may lock 8 MiB of memory (ulimit -l), but rdmap79s0 needs",
      "LimitMEMLOCK=infinity" },
    { "no port is active",
      8,
      { .name = "mlx5_0", .layer = MU_LINK_IB },
      { true, 65536, NO, NO },
      NULL,
      NULL },
    { "Slingshot",
      4,
      { .name = "cxi0", .layer = MU_LINK_SLINGSHOT, .active = true },
      { true, 65536, NO, NO },
      NULL,
      NULL },
    { "addresses and GPUs",
      1,
      { .name = "" },
      { true, NO, 4096 * MIB, NO },
      "may have 4 GiB of virtual memory (ulimit -v): CUDA",
      "VSizeFactor=0" },
    { "addresses without GPUs", 0, IB, { true, NO, 4096 * MIB, NO }, NULL, NULL },
    { "a container's /dev/shm and eight GPUs",
      8,
      { .name = "" },
      { true, NO, NO, 64 * MIB },
      "/dev/shm has 64 MiB left for 8 GPUs, which may need 512",
      "--shm-size=1g" },
    { "a full /dev/shm and two GPUs",
      2,
      { .name = "" },
      { true, NO, NO, 0 },
      "/dev/shm has 0 MiB left for 2 GPUs, which may need 128",
      "ls -l /dev/shm" },
    { "enough", 8, { .name = "" }, { true, NO, NO, 512 * MIB }, NULL, NULL },
    { "one GPU", 1, { .name = "" }, { true, NO, NO, 0 }, NULL, NULL },
    { "a saved machine", 8, IB, { false, 1, 1, 1 }, NULL, NULL },
};

static void check(const struct limits_case *c)
{
    struct mu_gpu gpus[8] = { { .numa = -1 } };
    struct mu_nic nic = c->nic;
    struct mu_node node = {
        .ngpus = c->gpus, .gpus = gpus, .nnics = nic.name[0] != 0, .nics = &nic
    };
    struct mu_facts facts = { .node = &node, .limits = c->limits };
    struct mu_findings found = { 0 };

    mu_doctor_limits(&facts, &found);
    if (found.n != (c->what != NULL))
        fail_msg("%s: %d findings", c->name, found.n);
    if (c->what &&
        (!strstr(found.item[0].what, c->what) || !strstr(found.item[0].todo, c->todo)))
        fail_msg("%s: %s | %s", c->name, found.item[0].what, found.item[0].todo);
    if (c->what)
        assert_int_equal(found.item[0].severity, MU_WARNING);
    mu_findings_clear(&found);
}

static void limits_are_told_where_they_hurt(void **state)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        check(&cases[i]);
}

/* Eight GPUs are here, and the step has some. */
static void c095_shared_memory_is_counted_for_the_step(void **state)
{
    static const struct {
        int slurm, openable;
        const char *what; /* NULL: nothing is found */
    } steps[] = {
        { 1, 8, NULL },
        { 2, 8, NULL },
        { 4, 8, "128 MiB left for 4 GPUs, which may need 256" },
        { -1, 2, NULL },
        { -1, 3, "left for 3 GPUs, which may need 192" },
        { -1, -1, "left for 8 GPUs, which may need 512" },
    };
    struct mu_gpu gpus[8] = { { .numa = -1 } };
    struct mu_node node = { .ngpus = 8, .gpus = gpus };

    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        struct mu_facts facts = { .node = &node,
                                  .gpus = { .slurm = steps[i].slurm,
                                            .openable = steps[i].openable },
                                  .limits = { true, NO, NO, 128 * MIB } };
        struct mu_findings found = { 0 };

        mu_doctor_limits(&facts, &found);
        assert_int_equal(found.n, steps[i].what != NULL);
        if (steps[i].what && !strstr(found.item[0].what, steps[i].what))
            fail_msg("%s", found.item[0].what);
        mu_findings_clear(&found);
    }
}

static void c095_files_of_ended_jobs_are_named(void **state)
{
    static const struct {
        struct mu_stale_files stale;
        const char *what;
    } left[] = {
        { { 0 }, NULL },
        { { 3, 0, 96, 32, "sem.a" }, NULL },
        { { 1, 1, 4096, 4096, "nccl-a" },
          "1 file that no process uses, 4 KiB in all (nccl-a):" },
        { { 2, 0, 40 * MIB + 512, 32 * MIB, "torch_1" },
          "2 files that no process uses, 40 MiB in all (torch_1 and others):" },
        { { 1, 1, 4096, 4096,
            "nccl-\033]0;root\a\n" }, /* root sees names of all users */
          "1 file that no process uses, 4 KiB in all (nccl-?]0;root?"
          "?):" },
    };

    for (size_t i = 0; i < sizeof left / sizeof left[0]; i++) {
        struct mu_facts facts = { .limits = { true, NO, NO, NO },
                                  .stale = left[i].stale };
        struct mu_findings found = { 0 };

        mu_doctor_limits(&facts, &found);
        assert_int_equal(found.n, left[i].what != NULL);
        if (left[i].what && !strstr(found.item[0].what, left[i].what))
            fail_msg("%s", found.item[0].what);
        mu_findings_clear(&found);
    }
}

static void all_at_once_and_no_machine(void **state)
{
    struct mu_facts nothing = { .limits = { true, 0, 0, 0 } };
    struct mu_findings found = { 0 };
    struct mu_gpu gpus[2] = { { .numa = -1 } };
    struct mu_nic nic = IB;
    struct mu_node node = { .ngpus = 2, .gpus = gpus, .nnics = 1, .nics = &nic };

    mu_doctor_limits(&nothing, &found);
    assert_int_equal(found.n, 0);
    nothing.node = &node;
    mu_doctor_limits(&nothing, &found);
    assert_int_equal(found.n, 3);
    mu_findings_clear(&found);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(limits_are_told_where_they_hurt),
        cmocka_unit_test(c095_shared_memory_is_counted_for_the_step),
        cmocka_unit_test(c095_files_of_ended_jobs_are_named),
        cmocka_unit_test(all_at_once_and_no_machine),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
