/* SPDX-License-Identifier: BSD-3-Clause */
/* test_doctor_step.c - what the doctor finds about a step's CPUs, masks and launchers;
 * case numbers of tests/CASES.md */
#include "tests/unit/doctor_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void c005_cpus_per_task_counts_threads(void **state)
{
    char *env[] = { "SLURM_CPUS_PER_TASK=16", NULL };
    struct doctor_machine m;
    struct mu_facts facts = { .env = env, .node = &m.node };

    doctor_machine(&m);
    mu_doctor_step(&facts, &doctor_found);
    doctor_finding("-c 16 on a machine with 2 threads per core is 8 cores per task");
}

static void c013_the_mask_before_and_after_is_shown(void **state)
{
    char *env[] = { "SLURM_PROCID=0", "SLURM_CPU_BIND_LIST=0x3",
                    "MUSTER_PLAN=v=1;task=0;gpus=-;cpus=4-5;mems=-;nics=-;path=-",
                    NULL };
    struct mu_facts facts = { .env = env };

    mu_cpuset_add_range(&facts.affinity, 4, 5);
    mu_doctor_step(&facts, &doctor_found);
    doctor_finding("runs on CPUs 4-5 as Muster placed it; Slurm's own mask was 0x3");
    mu_cpuset_add(&facts.affinity, 6);
    mu_doctor_step(&facts, &doctor_found);
    doctor_finding("placed this task on CPUs 4-5, but it runs on CPUs 4-6");
}

static void cpus_that_muster_left_alone_are_slurms(void **state)
{
    char *env[] = { "SLURM_PROCID=0",
                    "MUSTER_PLAN=v=1;task=0;gpus=-;cpus=-;mems=-;nics=-;path=-", NULL };
    struct mu_facts facts = { .env = env };

    mu_cpuset_add_range(&facts.affinity, 4, 5);
    mu_doctor_step(&facts, &doctor_found);
    doctor_nothing_above(MU_OK);
    doctor_finding("runs on CPUs 4-5 as Slurm bound it");
}

static void c015_an_inherited_mask_is_decoded_and_named(void **state)
{
    char *env[] = { "SLURM_CPU_BIND=quiet,mask_cpu:0x200000",
                    "SLURM_CPU_BIND_LIST=0x200000", NULL };
    char *task[] = { "SLURM_PROCID=0", "SLURM_CPU_BIND_LIST=0x1", NULL };
    struct mu_facts facts = { .env = env };
    char text[256];

    mu_doctor_step(&facts, &doctor_found);
    doctor_finding("0x200000 selects CPUs 21");
    doctor_finding("unset SLURM_CPU_BIND");
    mu_findings_clear(&doctor_found);
    facts.env = task;
    mu_doctor_step(&facts, &doctor_found);
    doctor_nothing_above(MU_OK);
    assert_int_equal(
        mu_doctor_explain_mask("0x00000000000003000000000000070000000000000300"
                               "000000000007",
                               NULL, text, sizeof text, NULL),
        0);
    assert_non_null(strstr(text, "CPUs 0-2,56-57,112-114,168-169"));
    assert_int_equal(
        mu_doctor_explain_mask("0x0000000000000FFF80000000000000000000000FFF800"
                               "0000000",
                               NULL, text, sizeof text, NULL),
        0);
    assert_non_null(strstr(text, "CPUs 39-51,143-155"));
}

static void c016_one_cpu_while_the_job_owns_many(void **state)
{
    char *env[] = { "SLURM_PROCID=0", "SLURM_CPUS_ON_NODE=32",
                    "SLURM_STEP_TASKS_PER_NODE=4", NULL };
    char *all[] = { "SLURM_PROCID=0", "SLURM_CPUS_ON_NODE=4",
                    "SLURM_STEP_TASKS_PER_NODE=4", NULL };
    char *both[] = { "SLURM_CPUS_PER_TASK=4", "SRUN_CPUS_PER_TASK=8", NULL };
    struct mu_facts facts = { .env = env };

    mu_cpuset_add(&facts.affinity, 3);
    mu_doctor_step(&facts, &doctor_found);
    doctor_finding("1 CPU, but the job owns 32");
    doctor_finding("export SRUN_CPUS_PER_TASK");
    mu_findings_clear(&doctor_found);
    facts.env = all;
    mu_doctor_step(&facts, &doctor_found);
    doctor_nothing_above(MU_OK);
    facts.env = both;
    mu_doctor_step(&facts, &doctor_found);
    doctor_finding("differ: srun refuses to start");
}

/* What a job has on a node of 16 CPUs, and what is found. */
static const struct job_case {
    const char *name;
    char *env[6];
    int affinity; /* CPUs from 0 on */
    int gpus, other_tasks;
    const char *part; /* NULL: nothing above a hint */
} jobs[] = {
    { "one CPU for eight GPUs",
      { "SLURM_JOB_ID=1", "SLURM_PROCID=0", "SLURM_CPUS_ON_NODE=1",
        "SLURM_STEP_TASKS_PER_NODE=1" },
      1,
      8,
      0,
      "the job owns 1 CPU (1 core) for 8 GPUs" },
    { "two threads are one core",
      { "SLURM_PROCID=0", "SLURM_CPUS_ON_NODE=2" },
      2,
      2,
      0,
      "the job owns 2 CPUs (1 core) for 2 GPUs" },
    { "six threads for four GPUs, in the batch shell",
      { "SLURM_JOB_CPUS_PER_NODE=6(x2)" },
      6,
      4,
      0,
      "the job owns 6 CPUs (3 cores) for 4 GPUs" },
    { "a core for each", { "SLURM_PROCID=0", "SLURM_CPUS_ON_NODE=8" }, 8, 4, 0, NULL },
    { "the step's CPUs are fewer than the job's",
      { "SLURM_PROCID=0", "SLURM_CPUS_ON_NODE=2", "SLURM_JOB_CPUS_PER_NODE=16" },
      2,
      4,
      0,
      "may use 2 CPUs, but the job owns 16" },
    { "no ConstrainCores: the job owns what Slurm counts, not the machine",
      { "SLURM_PROCID=0", "SLURM_CPUS_ON_NODE=2", "SLURM_STEP_TASKS_PER_NODE=1" },
      2,
      1,
      0,
      NULL },
    { "no ConstrainCores, and no binding",
      { "SLURM_PROCID=0", "SLURM_CPUS_ON_NODE=4" },
      16,
      1,
      0,
      "may run on 16 CPUs, but its job owns 4" },
    { "Slurm counts cores, a task has their threads",
      { "SLURM_PROCID=0", "SLURM_CPUS_ON_NODE=4" },
      8,
      1,
      0,
      NULL },
    { "nothing is known of the job", { "SLURM_PROCID=0" }, 2, 0, 0, NULL },
    { "more tasks than GPUs",
      { "SLURM_PROCID=0", "SLURM_CPUS_ON_NODE=16", "SLURM_STEP_TASKS_PER_NODE=8" },
      2,
      2,
      0,
      "8 tasks on this node have 2 GPUs" },
    { "more tasks on the second node of three",
      { "SLURM_PROCID=4", "SLURM_NODEID=2", "SLURM_CPUS_ON_NODE=16",
        "SLURM_STEP_TASKS_PER_NODE=2(x2),3" },
      4,
      2,
      0,
      "3 tasks on this node have 2 GPUs" },
    { "as many tasks as GPUs on this node",
      { "SLURM_PROCID=2", "SLURM_NODEID=1", "SLURM_CPUS_ON_NODE=16",
        "SLURM_STEP_TASKS_PER_NODE=4,2" },
      8,
      2,
      0,
      NULL },
    { "another step's tasks",
      { "SLURM_PROCID=0", "SLURM_CPUS_ON_NODE=16", "SLURM_STEP_TASKS_PER_NODE=1" },
      4,
      2,
      4,
      "4 tasks on this node have 2 GPUs" },
    { "the job script's request",
      { "SLURM_JOB_ID=1", "SLURM_CPUS_ON_NODE=16", "SLURM_TASKS_PER_NODE=3(x2)" },
      16,
      1,
      0,
      "3 tasks on this node have 1 GPU:" },
    { "shards are a wish to share",
      { "SLURM_PROCID=0", "SLURM_CPUS_ON_NODE=16", "SLURM_STEP_TASKS_PER_NODE=4",
        "SLURM_SHARDS_ON_NODE=4" },
      4,
      1,
      0,
      NULL },
    { "so is MPS",
      { "SLURM_PROCID=0", "SLURM_CPUS_ON_NODE=16", "SLURM_STEP_TASKS_PER_NODE=4",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25" },
      4,
      1,
      0,
      NULL },
    { "a step without GPUs",
      { "SLURM_PROCID=0", "SLURM_CPUS_ON_NODE=16", "SLURM_STEP_TASKS_PER_NODE=8" },
      2,
      -1,
      0,
      NULL },
};

static void c094_cpus_and_tasks_are_compared_with_gpus(void **state)
{
    struct doctor_machine m;

    doctor_machine(&m);
    for (size_t i = 0; i < sizeof jobs / sizeof jobs[0]; i++) {
        struct mu_facts facts = { .env = (char *const *)jobs[i].env,
                                  .node = &m.node,
                                  .gpus = { jobs[i].gpus, -1, -1, -1, 2 },
                                  .command_tasks = jobs[i].other_tasks };

        mu_node_cpus(&m.node, &facts.job_cpus); /* the cgroup has the whole machine */
        mu_cpuset_add_range(&facts.affinity, 0, jobs[i].affinity - 1);
        mu_findings_clear(&doctor_found);
        mu_doctor_step(&facts, &doctor_found);
        if (!jobs[i].part && mu_findings_worst(&doctor_found) > MU_HINT)
            fail_msg("%s: %s", jobs[i].name, doctor_found.item[0].what);
        if (jobs[i].part)
            doctor_finding(jobs[i].part);
    }
}

static void c018_nccl_masks_are_explained_with_their_numa_nodes(void **state)
{
    struct doctor_machine m;
    char text[256];

    doctor_machine(&m);
    assert_int_equal(mu_doctor_explain_mask("f0f", &m.node, text, sizeof text, NULL),
                     0);
    assert_string_equal(text,
                        "f0f selects CPUs 0-3,8-11, on NUMA node 0 of this machine");
    assert_int_equal(mu_doctor_explain_mask("ffff,ffffffff,ffffffff,ff000000,00000000,"
                                            "00000000",
                                            NULL, text, sizeof text, NULL),
                     0);
    assert_non_null(strstr(text, "CPUs 88-175"));
}

static void c044_a_launcher_per_task_is_found(void **state)
{
    char *env[] = { "SLURM_PROCID=0", "SLURM_STEP_TASKS_PER_NODE=8(x16)", NULL };
    char *one[] = { "SLURM_PROCID=0", "SLURM_STEP_TASKS_PER_NODE=1(x16)", NULL };
    struct mu_facts facts = { .env = env,
                              .command_line = "torchrun --nproc_per_node=8 t" };

    mu_doctor_step(&facts, &doctor_found);
    doctor_finding("8 copies of torchrun run on each node");
    doctor_finding("8 x 8 = 64");
    mu_findings_clear(&doctor_found);
    facts.env = one;
    mu_doctor_step(&facts, &doctor_found);
    doctor_nothing_above(MU_OK);
    facts.command_tasks = 4; /* counted, whatever the doctor's own step has */
    mu_doctor_step(&facts, &doctor_found);
    doctor_finding("4 copies of torchrun run on each node");
}

static void c079_variables_that_srun_refuses_together_are_named(void **state)
{
    char *env[] = { "SLURM_NTASKS_PER_GPU=1", "SLURM_TRES_PER_TASK=cpu=1", NULL };
    char *memory[] = { "SLURM_MEM_PER_NODE=8000", "SLURM_MEM_PER_CPU=1000", NULL };
    char *step[] = { "SLURM_STEP_ID=0", "SLURM_NTASKS_PER_GPU=1",
                     "SLURM_NTASKS_PER_NODE=2", NULL };
    char *one[] = { "SLURM_NTASKS_PER_GPU=1", "SLURM_MEM_PER_NODE=8000", NULL };
    struct mu_facts facts = { .env = env };

    mu_doctor_step(&facts, &doctor_found);
    doctor_finding("SLURM_NTASKS_PER_GPU=1 and SLURM_TRES_PER_TASK=cpu=1 are both set");
    doctor_finding("only repeats SLURM_CPUS_PER_TASK");
    mu_findings_clear(&doctor_found);
    facts.env = memory;
    mu_doctor_step(&facts, &doctor_found);
    doctor_finding("SLURM_MEM_PER_NODE=8000 and SLURM_MEM_PER_CPU=1000 are both set");
    mu_findings_clear(&doctor_found);
    facts.env = one;
    mu_doctor_step(&facts, &doctor_found);
    doctor_nothing_above(MU_OK);
    facts.env = step;
    mu_doctor_step(&facts, &doctor_found);
    doctor_nothing_above(MU_OK);
}

static void a_binding_that_no_plugin_carries_out_is_named(void **state)
{
    static char request[] = "SLURM_MUSTER_REQUEST=v=1;cpu-bind=no;from=explicit;by="
                            "muster;gpu-bind=single:1";
    static char slurms[] =
        "SLURM_MUSTER_REQUEST=v=1;cpu-bind=no;from=explicit;by=slurm;gpu-bind=single:1";
    char *without[] = { "SLURM_JOB_ID=7", "SLURM_STEP_ID=0", request,
                        "SLURM_MUSTER_SERVED=6.0", NULL };
    char *served[] = { "SLURM_JOB_ID=7", "SLURM_STEP_ID=0", request,
                       "SLURM_MUSTER_SERVED=7.0", NULL };
    char *older[] = { "SLURM_JOB_ID=7", "SLURM_STEP_ID=0", request, "MUSTER_SET=A:0",
                      NULL };
    char *script[] = { "SLURM_JOB_ID=7", request, NULL };
    char *by_slurm[] = { "SLURM_JOB_ID=7", "SLURM_STEP_ID=0", slurms, NULL };
    char **fine[] = { served, older, script, by_slurm };
    struct mu_facts facts = { .env = without };

    mu_doctor_step(&facts, &doctor_found);
    doctor_finding(
        "srun took --gpu-bind=single:1 over, but this node lacks the plugin");
    doctor_finding("installed = no");
    for (int i = 0; i < 4; i++) {
        mu_findings_clear(&doctor_found);
        facts.env = fine[i];
        mu_doctor_step(&facts, &doctor_found);
        doctor_nothing_above(MU_OK);
    }
}

static void the_ras_address_of_another_step_is_printed(void **state)
{
    char *env[] = { "SLURM_PROCID=0", NULL };
    struct mu_facts facts = { .env = env,
                              .ras = { { "0", "localhost:29100" }, { "3", "odd" } },
                              .nras = 2 };

    mu_doctor_step(&facts, &doctor_found);
    doctor_finding("RAS of step 0 answers at localhost:29100");
    doctor_finding("ncclras -h localhost -p 29100");
    doctor_nothing_above(MU_HINT);
    assert_int_equal(doctor_found.n, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DOCTOR_TEST(c005_cpus_per_task_counts_threads),
        DOCTOR_TEST(c013_the_mask_before_and_after_is_shown),
        DOCTOR_TEST(cpus_that_muster_left_alone_are_slurms),
        DOCTOR_TEST(c015_an_inherited_mask_is_decoded_and_named),
        DOCTOR_TEST(c016_one_cpu_while_the_job_owns_many),
        DOCTOR_TEST(c094_cpus_and_tasks_are_compared_with_gpus),
        DOCTOR_TEST(c018_nccl_masks_are_explained_with_their_numa_nodes),
        DOCTOR_TEST(c044_a_launcher_per_task_is_found),
        DOCTOR_TEST(c079_variables_that_srun_refuses_together_are_named),
        DOCTOR_TEST(a_binding_that_no_plugin_carries_out_is_named),
        DOCTOR_TEST(the_ras_address_of_another_step_is_printed),
    };

    return cmocka_run_group_tests_name("doctor step", tests, NULL, NULL);
}
