/* SPDX-License-Identifier: BSD-3-Clause */
/* test_launch.c - how the process was started against what PMIx reports; settings */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "runtime/core/config.h"
#include "runtime/core/launch.h"

static const struct launch_case {
    const char *name;
    struct mu_launch launch;
    int rank, size;      /* PMIx; size 0: no server */
    const char *refused; /* part of the sentence; NULL: accepted */
} launches[] = {
    { "no Slurm, no PMIx: a world of one", { 0 }, 0, 0, NULL },
    { "case 050: srun --mpi=none with 8 tasks",
      { .slurm_job_id = "7", .slurm_step_num_tasks = "8", .slurm_procid = "3" },
      0,
      0,
      "Slurm started 8 tasks but no PMIx server answers: start it with `srun "
      "--mpi=pmix`" },
    { "case 050: srun --mpi=pmi2 is named",
      { .slurm_job_id = "7", .slurm_step_num_tasks = "8", .pmi_rank = "3" },
      0,
      0,
      "--mpi=pmi2" },
    { "case 050: 8 tasks, PMIx world of 1",
      { .slurm_job_id = "7", .slurm_step_num_tasks = "8" },
      0,
      1,
      "PMIx reports a world of 1" },
    { "8 single runs are meant",
      { .slurm_step_num_tasks = "8", .single = true },
      0,
      0,
      NULL },
    { "one task without PMIx is a world of one",
      { .slurm_job_id = "7", .slurm_step_num_tasks = "1", .slurm_ntasks = "1" },
      0,
      0,
      NULL },
    { "inside an allocation without srun",
      { .slurm_job_id = "7", .slurm_ntasks = "4" },
      0,
      0,
      "not a task of it" },
    { "inside an allocation of two nodes without srun",
      { .slurm_job_id = "7", .slurm_nnodes = "2" },
      0,
      0,
      "`srun --mpi=pmix`" },
    { "one task of a larger job's allocation: the step counts",
      { .slurm_job_id = "7", .slurm_step_num_tasks = "1", .slurm_ntasks = "4" },
      0,
      0,
      NULL },
    { "torchrun without PMIx",
      { .rank = "1", .world_size = "4" },
      0,
      0,
      "WORLD_SIZE=4 RANK=1" },
    { "RANK without WORLD_SIZE", { .rank = "3" }, 0, 0, "WORLD_SIZE=(unset) RANK=3" },
    { "MPICH's launcher without PMIx",
      { .other = { "4" } },
      0,
      0,
      "PMI_SIZE=4 but no PMIx server answers" },
    { "Open MPI's world beside a PMIx world of one",
      { .other = { [3] = "2" } },
      0,
      1,
      "OMPI_COMM_WORLD_SIZE=2 but PMIx reports a world of 1" },
    { "Flux without PMIx",
      { .other = { [7] = "8" } },
      0,
      0,
      "FLUX_JOB_SIZE=8 but no PMIx server answers" },
    { "the second rank of PALS",
      { .other = { [9] = "1" } },
      0,
      0,
      "PALS_RANKID=1 but no PMIx server answers" },
    { "another launcher's world of one",
      { .other = { [0] = "1", [3] = "1", [7] = "1", [9] = "0" } },
      0,
      0,
      NULL },
    { "separate runs under another launcher are meant",
      { .other = { "4" }, .single = true },
      0,
      0,
      NULL },
    { "another launcher that has PMIx", { .other = { [3] = "4" } }, 1, 4, NULL },
    { "case 044: the plugin's variables agree with PMIx",
      { .slurm_step_num_tasks = "4", .rank = "2", .world_size = "4" },
      2,
      4,
      NULL },
    { "case 044: another launcher's world size",
      { .slurm_step_num_tasks = "4", .rank = "2", .world_size = "32" },
      2,
      4,
      "RANK=2 WORLD_SIZE=32 but PMIx reports rank 2 of 4" },
    { "case 044: another launcher's rank",
      { .rank = "5", .world_size = "8" },
      6,
      8,
      "PMIx reports rank 6 of 8" },
    { "WORLD_SIZE alone", { .world_size = "2" }, 0, 4, "RANK=(unset) WORLD_SIZE=2" },
    { "no number is no contradiction", { .rank = "x", .world_size = "" }, 1, 4, NULL },
};

static void a_launch_that_cannot_be_meant_is_refused(void **state)
{
    for (size_t i = 0; i < sizeof launches / sizeof launches[0]; i++) {
        const struct launch_case *t = &launches[i];
        struct mu_err err = { 0 };
        int rc = mu_launch_check(&t->launch, t->rank, t->size, &err);

        if (!t->refused) {
            if (rc < 0)
                fail_msg("%s: %s", t->name, err.text);
            continue;
        }
        if (rc != -1 || !strstr(err.text, t->refused))
            fail_msg("%s: %d '%s'", t->name, rc, err.text);
        assert_int_equal(err.code, MUSTER_ERENDEZVOUS);
    }
}

static void each_launcher_variable_refuses_several_processes_and_takes_one(void **state)
{
    for (int i = 0; i < MU_LAUNCH_OTHERS; i++) {
        const char *name = mu_launch_other[i].name;
        bool is_rank = !strstr(name, "SIZE") && strcmp(name, "MPI_LOCALNRANKS") != 0;
        struct mu_launch launch = { 0 };
        struct mu_err err = { 0 };

        launch.other[i] = is_rank ? "1" : "2";
        if (mu_launch_check(&launch, 0, 0, &err) == 0 || !strstr(err.text, name))
            fail_msg("%s=%s: '%s'", name, launch.other[i], err.text);
        launch.other[i] = is_rank ? "0" : "1";
        if (mu_launch_check(&launch, 0, 0, &err) < 0)
            fail_msg("%s=%s: '%s'", name, launch.other[i], err.text);
    }
}

/* Rank 0 sees that there are others by a count alone; some launchers, or scripts around
 * them, leave only that of the node.
 */
static void a_launchers_count_on_the_node_refuses_its_rank_0(void **state)
{
    static const char *const names[] = { "PMI_LOCAL_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE",
                                         "MV2_COMM_WORLD_LOCAL_SIZE",
                                         "PALS_LOCAL_SIZE" };

    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
        struct mu_launch launch = { 0 };
        struct mu_err err = { 0 };

        for (int i = 0; i < MU_LAUNCH_OTHERS; i++)
            if (strcmp(mu_launch_other[i].name, names[k]) == 0)
                launch.other[i] = "4";
        if (mu_launch_check(&launch, 0, 0, &err) == 0)
            fail_msg("%s=4: a world of one", names[k]);
    }
}

static void an_option_wins_over_its_variable_and_that_over_the_default(void **state)
{
    struct mu_config_env env = { 0 };
    struct muster_options options = { 0 };
    struct mu_config c;

    assert_int_equal(mu_config_make(NULL, &env, &c, NULL), 0);
    assert_true(c.init_timeout == 120 && c.timeout == 600 && !c.force_tcp && !c.single);
    assert_false(c.own_device);
    assert_int_equal(c.backend, MU_BACKEND_AUTO);
    assert_int_equal(c.log, MU_LOG_WARN);
    env = (struct mu_config_env){ .backend = "nccl",
                                  .transport = "tcp",
                                  .timeout = "2.5",
                                  .single = "1",
                                  .bucket_cap = "2M",
                                  .on_failure = "return",
                                  .elastic = "2" };
    assert_int_equal(mu_config_make(NULL, &env, &c, NULL), 0);
    assert_true(c.timeout == 2.5 && c.force_tcp && c.single && c.return_failure);
    assert_int_equal(c.elastic, 2);
    assert_int_equal(c.backend, MU_BACKEND_NCCL);
    assert_int_equal(c.bucket_cap, 2 << 20);
    options = (struct muster_options){
        .backend = "host", .transport = "shm", .timeout = 9, .own_device = 1
    };
    assert_int_equal(mu_config_make(&options, &env, &c, NULL), 0);
    assert_true(c.timeout == 9 && !c.force_tcp && c.own_device);
    assert_int_equal(c.backend, MU_BACKEND_HOST);
}

static void a_variable_wins_over_the_option_that_maps_memory(void **state)
{
    static const char *const variables[] = { NULL, "0", "1" };
    struct mu_config c;

    for (int option = 0; option < 2; option++)
        for (int i = 0; i < 3; i++) {
            struct mu_config_env env = { .map_memory = variables[i] };
            struct muster_options options = { .map_memory = option };

            assert_int_equal(mu_config_make(&options, &env, &c, NULL), 0);
            assert_int_equal(c.map_memory, i == 0 ? option : i - 1);
        }
}

#define A10 "aaaaaaaaaa"
#define A100 A10 A10 A10 A10 A10 A10 A10 A10 A10 A10
#define LONG_PATH                                                                      \
    "/" A100 A100 A100 A100 A100 A100 A100 A100 A100 A100 A10 A10 A10 /* 1031 */

static const struct bad_case {
    struct mu_config_env env;
    const char *name, *value;
} bad[] = {
    { { .backend = "gloo" }, "MUSTER_BACKEND", "gloo" },
    { { .transport = "udp" }, "MUSTER_TRANSPORT", "udp" },
    { { .timeout = "0" }, "MUSTER_TIMEOUT", "0" },
    { { .timeout = "10min" }, "MUSTER_TIMEOUT", "10min" },
    { { .init_timeout = "-1" }, "MUSTER_INIT_TIMEOUT", "-1" },
    { { .single = "yes" }, "MUSTER_SINGLE", "yes" },
    { { .map_memory = "yes" }, "MUSTER_MAP_MEMORY", "yes" },
    { { .log = "loud" }, "MUSTER_LOG", "loud" },
    { { .bucket_cap = "True" }, "MUSTER_BUCKET_CAP", "True" }, /* ddp.md row 20 */
    { { .on_failure = "hang" }, "MUSTER_ON_FAILURE", "hang" },
    { { .elastic = "yes" }, "MUSTER_ELASTIC", "yes" },
    { { .elastic = "-1" }, "MUSTER_ELASTIC", "-1" },
    { { .grow = "/f" }, "MUSTER_GROW=/f", "MUSTER_ELASTIC" },
    { { .join = "/f" }, "MUSTER_JOIN=/f", "MUSTER_ELASTIC" },
    { { .elastic = "1", .grow = LONG_PATH }, "MUSTER_GROW=/aaa", "1023 characters" },
};

static void a_setting_that_cannot_be_read_is_refused_by_name(void **state)
{
    struct mu_config c;

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct mu_err err = { 0 };

        assert_int_equal(mu_config_make(NULL, &bad[i].env, &c, &err), -1);
        assert_int_equal(err.code, MUSTER_EUSAGE);
        if (!strstr(err.text, bad[i].name) || !strstr(err.text, bad[i].value))
            fail_msg("%s: '%s'", bad[i].name, err.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_launch_that_cannot_be_meant_is_refused),
        cmocka_unit_test(
            each_launcher_variable_refuses_several_processes_and_takes_one),
        cmocka_unit_test(a_launchers_count_on_the_node_refuses_its_rank_0),
        cmocka_unit_test(an_option_wins_over_its_variable_and_that_over_the_default),
        cmocka_unit_test(a_variable_wins_over_the_option_that_maps_memory),
        cmocka_unit_test(a_setting_that_cannot_be_read_is_refused_by_name),
    };

    return cmocka_run_group_tests_name("launch", tests, NULL, NULL);
}
