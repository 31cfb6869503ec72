/* SPDX-License-Identifier: BSD-3-Clause */
/* test_rank_rule.c - which tasks count as ranks under rdzv=auto; see muster-env(7) */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "spank/core/options/rank_rule.h"

static const struct role_case {
    const char *name;
    struct mu_role_facts facts;
    enum mu_role want;
    const char *why; /* a piece of the sentence */
} cases[] = {
#define AUTO .rdzv = MU_RDZV_AUTO
#define TASKS(t, n, g) .ntasks = t, .nnodes = n, .gpus = g
    { "4 tasks with a GPU each: ranks",
      { AUTO, TASKS(4, 1, 1) },
      MU_ROLE_RANK,
      "each task is a rank of one training; for independent runs --muster=rdzv=none" },
    { "2 tasks with several GPUs each: ranks",
      { AUTO, TASKS(2, 1, 2) },
      MU_ROLE_RANK,
      "each task is a rank" },
    { "one task with one GPU: a world of one",
      { AUTO, TASKS(1, 1, 1) },
      MU_ROLE_RANK,
      "rdzv=none" },
    { "one task without GPUs: a world of one",
      { AUTO, TASKS(1, 1, 0) },
      MU_ROLE_RANK,
      "rdzv=none" },
    { "2 nodes, a task with one GPU on each: ranks",
      { AUTO, TASKS(2, 2, 1) },
      MU_ROLE_RANK,
      "rdzv=none" },
    { "case 061: one task with 2 GPUs: no rank",
      { AUTO, TASKS(1, 1, 2) },
      MU_ROLE_LAUNCHER,
      "rdzv=ranks" },
    { "2 nodes, one task with 4 GPUs on each: launchers",
      { AUTO, TASKS(2, 2, 4) },
      MU_ROLE_LAUNCHER,
      "rdzv=ranks" },
    { "3 tasks on 2 nodes, the second alone with 4 GPUs: ranks",
      { AUTO, TASKS(3, 2, 4) },
      MU_ROLE_RANK,
      "rdzv=none" },
    { "a shell with one GPU: nothing",
      { AUTO, .pty = true, TASKS(1, 1, 1) },
      MU_ROLE_NONE,
      "--pty" },
    { "a terminal over 8 tasks: nothing",
      { AUTO, .pty = true, TASKS(8, 2, 1) },
      MU_ROLE_NONE,
      "--pty" },
    { "torchrun with one GPU on each node: no rank",
      { AUTO, .launcher = MU_LAUNCHER_TORCH, TASKS(2, 2, 1) },
      MU_ROLE_LAUNCHER,
      "launcher" },
    { "mpirun's daemon: no rank",
      { AUTO, .launcher = MU_LAUNCHER_MPI, TASKS(2, 2, 1) },
      MU_ROLE_LAUNCHER,
      "launcher" },
    { "rdzv=ranks: one task with 4 GPUs is a rank",
      { .rdzv = MU_RDZV_RANKS, TASKS(1, 1, 4) },
      MU_ROLE_RANK,
      "rdzv=ranks" },
    { "rdzv=ranks beats the terminal",
      { .rdzv = MU_RDZV_RANKS, .pty = true, TASKS(1, 1, 1) },
      MU_ROLE_RANK,
      "rdzv=ranks" },
    { "rdzv=none: nothing",
      { .rdzv = MU_RDZV_NONE, TASKS(4, 1, 1) },
      MU_ROLE_NONE,
      "rdzv=none" },
};

static void tasks_are_ranks_by_the_rule_of_the_manual(void **state)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *why = "";
        enum mu_role got = mu_role_decide(&cases[i].facts, &why);

        if (got != cases[i].want || !strstr(why, cases[i].why))
            fail_msg("%s: role %d, '%s'", cases[i].name, (int)got, why);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tasks_are_ranks_by_the_rule_of_the_manual),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
