/* SPDX-License-Identifier: BSD-3-Clause */
/* test_request.c - taking over --gpu-bind: who asked for what, what Slurm is told */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "runtime/base/marker.h"
#include "spank/core/slurm/command_line.h"
#include "spank/core/gpubind/takeover.h"

#define OLD                                                                            \
    {                                                                                  \
        .tres_bind = false, .task_sharing = false                                      \
    } /* 22.05 */
#define MID                                                                            \
    {                                                                                  \
        .tres_bind = true, .task_sharing = false                                       \
    } /* 23.11.0 */
#define NEW                                                                            \
    {                                                                                  \
        .tres_bind = true, .task_sharing = true                                        \
    } /* 24.11 */
#define KEPT(from, bind) "v=1;cpu-bind=no;from=" from ";by=muster;gpu-bind=" bind

static const struct request_case {
    const char *name;
    struct mu_takeover_slurm slurm;
    struct mu_takeover_input input;
    const char *want;    /* the encoded request */
    const char *changes; /* "NAME=VALUE|..." */
} cases[] = {
    { "nothing asked, nothing changed",
      OLD,
      { 0 },
      "v=1;cpu-bind=no;from=explicit;by=muster;gpu-bind=",
      "" },

    { "#SBATCH --gpu-bind on 22.05",
      OLD,
      { .env_gpu_bind = "map_gpu:3,2,1,0" },
      KEPT("explicit", "map_gpu:3,2,1,0"),
      "SLURM_GPU_BIND=none" },
    { "#SBATCH --gpus-per-task on 22.05",
      OLD,
      { .env_gpus_per_task = "a100:2" },
      KEPT("implicit", "per_task:2"),
      "SLURM_GPU_BIND=none" },
    { "#SBATCH --ntasks-per-gpu on 22.05",
      OLD,
      { .env_ntasks_per_gpu = "2" },
      KEPT("implicit", "single:2"),
      "SLURM_GPU_BIND=none" },
    { "a binding of shards is left to Slurm",
      OLD,
      { .gres = "shard:2", .env_gpu_bind = "single:1" },
      KEPT("explicit", ""),
      "" },
    { "of mps, on the command line, beside another resource",
      NEW,
      { .gres = "nic:1,gres/mps:100", .gpu_bind = "map_gpu:0,0" },
      KEPT("explicit", ""),
      "" },
    { "shards of the job, which srun does not repeat",
      OLD,
      { .env_shards = "2", .env_gpus_per_task = "1" },
      KEPT("explicit", ""),
      "" },
    { "shards for each task",
      NEW,
      { .tres_per_task = "gres/shard=1", .env_gpu_bind = "single:1" },
      KEPT("explicit", ""),
      "" },
    { "a job of another shell may have shards",
      OLD,
      { .foreign_job = true, .gpu_bind = "single:1" },
      KEPT("explicit", ""),
      "" },
    { "other resources of it are no whole GPUs",
      OLD,
      { .foreign_job = true, .gres = "nic:1", .env_gpu_bind = "single:1" },
      KEPT("explicit", ""),
      "" },
    { "whole GPUs of a job of another shell",
      NEW,
      { .foreign_job = true,
        .tres_per_task = "cpu=2,gres/gpu:1",
        .gpu_bind = "closest" },
      KEPT("explicit", "closest"),
      "SLURM_GRES_FLAGS=allow-task-sharing" },
    { "whole GPUs in place of the job's shards",
      OLD,
      { .gres = "gpu:sharded:2", .env_shards = "2", .env_gpu_bind = "single:1" },
      KEPT("explicit", "single:1"),
      "SLURM_GPU_BIND=none" },
    { "#SBATCH --gpu-bind=none is the user's",
      OLD,
      { .env_gpu_bind = "none" },
      KEPT("explicit", ""),
      "" },
    { "#SBATCH --gpu-bind on 24.11",
      NEW,
      { .env_tres_bind = "gres/gpu:single:1", .env_gpu_bind = "single:1" },
      KEPT("explicit", "single:1"),
      "SLURM_GPU_BIND=none|SLURM_TRES_BIND=gres/gpu:none" },
    { "other resources of --tres-bind stay",
      NEW,
      { .env_tres_bind = "gres/nic:closest+gres/gpu:map:1,0" },
      KEPT("explicit", "map:1,0"),
      "SLURM_GPU_BIND=none|SLURM_TRES_BIND=gres/nic:closest+gres/gpu:none" },
    { "a gpu part in the older spelling is replaced too",
      NEW,
      { .env_tres_bind = "gpu:map:1,0+gres/nic:closest" },
      KEPT("explicit", "map:1,0"),
      "SLURM_GPU_BIND=none|SLURM_TRES_BIND=gres/nic:closest+gres/gpu:none" },
    { "a --tres-bind of another resource is none of ours",
      NEW,
      { .env_tres_bind = "gres/nic:closest" },
      KEPT("explicit", ""),
      "" },
    { "--gpus-per-task as 24.11's sbatch spells it",
      NEW,
      { .env_tres_bind = "gres/gpu:per_task:1", .env_tres_per_task = "gres/gpu:1" },
      KEPT("implicit", "per_task:1"),
      "SLURM_GPU_BIND=none|SLURM_TRES_BIND=gres/gpu:none" },
    { "--tres-per-task from the environment",
      NEW,
      { .env_tres_per_task = "cpu=2,gres/gpu:2" },
      KEPT("implicit", "per_task:2"),
      "SLURM_GPU_BIND=none|SLURM_TRES_BIND=gres/gpu:none" },
    { "a --tres-per-task without GPUs asks for no binding, in either spelling",
      NEW,
      { .env_tres_per_task = "cpu:4" },
      KEPT("explicit", ""),
      "" },
    { "verbose is kept",
      OLD,
      { .env_gpu_bind = "verbose,single:1" },
      KEPT("explicit", "verbose,single:1"),
      "SLURM_GPU_BIND=none" },
    { "what Slurm will refuse is left to it",
      OLD,
      { .env_gpu_bind = "nearest" },
      KEPT("explicit", ""),
      "" },

    { "a plain srun inside: the kept request",
      OLD,
      { .env_gpu_bind = "none", .env_request = KEPT("explicit", "single:1") },
      KEPT("explicit", "single:1"),
      "" },
    { "a kept implicit request, and srun's own count",
      OLD,
      { .env_gpu_bind = "none",
        .env_request = KEPT("implicit", "per_task:1"),
        .gpus_per_task = "2" },
      KEPT("implicit", "per_task:2"),
      "" },
    { "a kept explicit request beats srun's count, as in Slurm",
      OLD,
      { .env_gpu_bind = "none",
        .env_request = KEPT("explicit", "single:1"),
        .gpus_per_task = "2" },
      KEPT("explicit", "single:1"),
      "" },
    { "a binding that the script exports anew",
      OLD,
      { .env_gpu_bind = "closest", .env_request = KEPT("explicit", "single:1") },
      KEPT("explicit", "closest"),
      "SLURM_GPU_BIND=none" },
    { "a kept request without our none is stale",
      OLD,
      { .env_request = KEPT("explicit", "single:1") },
      KEPT("explicit", ""),
      "" },

    { "srun --gpus-per-task",
      OLD,
      { .gpus_per_task = "1" },
      KEPT("implicit", "per_task:1"),
      "SLURM_GPU_BIND=none" },
    { "srun --ntasks-per-gpu beats --gpus-per-task",
      OLD,
      { .ntasks_per_gpu = "2", .gpus_per_task = "1" },
      KEPT("implicit", "single:2"),
      "SLURM_GPU_BIND=none" },
    { "srun --gpu-bind=none",
      OLD,
      { .gpu_bind = "none", .env_gpu_bind = "single:1" },
      KEPT("explicit", "none"),
      "" },
    { "srun --gpu-bind on 22.05: Slurm does it",
      OLD,
      { .gpu_bind = "single:1" },
      "v=1;cpu-bind=no;from=explicit;by=slurm;gpu-bind=single:1",
      "" },
    { "srun --gpu-bind before 23.11.4: Slurm does it",
      MID,
      { .gpu_bind = "single:1" },
      "v=1;cpu-bind=no;from=explicit;by=slurm;gpu-bind=single:1",
      "" },
    { "srun --gpu-bind on 24.11: devices stay shared",
      NEW,
      { .gpu_bind = "map:1,0" },
      KEPT("explicit", "map:1,0"),
      "SLURM_GRES_FLAGS=allow-task-sharing" },
    { "srun --tres-bind on 24.11",
      NEW,
      { .tres_bind = "gres/gpu:single:1" },
      KEPT("explicit", "single:1"),
      "SLURM_GRES_FLAGS=allow-task-sharing" },
    { "flags of the environment are kept",
      NEW,
      { .gpu_bind = "single:1", .env_gres_flags = "enforce-binding" },
      KEPT("explicit", "single:1"),
      "SLURM_GRES_FLAGS=enforce-binding,allow-task-sharing" },
    { "flags that have it already",
      NEW,
      { .gpu_bind = "single:1", .gres_flags = "allow-task-sharing" },
      KEPT("explicit", "single:1"),
      "" },
    { "srun's own other flags win: Slurm does it",
      NEW,
      { .gpu_bind = "single:1", .gres_flags = "disable-binding" },
      "v=1;cpu-bind=no;from=explicit;by=slurm;gpu-bind=single:1",
      "" },

    { "--cpu-bind",
      OLD,
      { .cpu_bind = "cores" },
      "v=1;cpu-bind=yes;from=explicit;by=muster;gpu-bind=",
      "" },
    { "SLURM_CPU_BIND that the user set",
      OLD,
      { .env_cpu_bind = "cores" },
      "v=1;cpu-bind=yes;from=explicit;by=muster;gpu-bind=",
      "" },
    { "case 015: SLURM_CPU_BIND of an outer step",
      OLD,
      { .env_cpu_bind = "quiet,mask_cpu:0x1", .env_cpu_bind_type = "mask_cpu:" },
      "v=1;cpu-bind=inherited;from=explicit;by=muster;gpu-bind=",
      "" },
};

static void every_form_is_taken_over_or_left(void **state)
{
    static struct mu_takeover_change changes[MU_TAKEOVER_CHANGES];

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct mu_bind_request request;
        char text[MU_TAKEOVER_TEXT], all[4096] = "";
        int n;

        mu_takeover_decide(&cases[i].input, &cases[i].slurm, &request, changes, &n);
        mu_takeover_encode(&request, text);
        for (int k = 0; k < n; k++)
            snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s=%s",
                     k ? "|" : "", changes[k].name, changes[k].value);
        if (strcmp(text, cases[i].want) != 0 || strcmp(all, cases[i].changes) != 0)
            fail_msg("%s: '%s', changes '%s'", cases[i].name, text, all);
    }
}

static const struct repeat_case {
    const char *name;
    struct mu_takeover_input input;
    const char *cpus;
    bool repeats;
} repeats[] = {
    { "sbatch --ntasks-per-gpu -c 4",
      { .env_ntasks_per_gpu = "1", .env_tres_per_task = "cpu=4" },
      "4",
      true },
    { "an older spelling",
      { .env_ntasks_per_gpu = "1", .env_tres_per_task = "cpu:4" },
      "4",
      true },
    { "srun --ntasks-per-gpu after sbatch -c 4",
      { .ntasks_per_gpu = "1", .env_tres_per_task = "cpu=4" },
      "4",
      true },
    { "another number",
      { .env_ntasks_per_gpu = "1", .env_tres_per_task = "cpu=4" },
      "2",
      false },
    { "no other variable has the number",
      { .env_ntasks_per_gpu = "1", .env_tres_per_task = "cpu=4" },
      NULL,
      false },
    { "it asks for GPUs, too",
      { .env_ntasks_per_gpu = "1", .env_tres_per_task = "cpu=4,gres/gpu=1" },
      "4",
      false },
    { "no --ntasks-per-gpu: srun accepts it",
      { .env_tres_per_task = "cpu=4" },
      "4",
      false },
    { "not there", { .env_ntasks_per_gpu = "1" }, "4", false },
};

static void case_079_a_variable_that_repeats_another_is_found(void **state)
{
    for (size_t i = 0; i < sizeof repeats / sizeof repeats[0]; i++)
        if (mu_takeover_repeats_cpus(&repeats[i].input, repeats[i].cpus) !=
            repeats[i].repeats)
            fail_msg("%s", repeats[i].name);
}

static const struct marker_case {
    const char *name, *request, *served, *set, *want;
} markers[] = {
    { "from the environment", KEPT("explicit", "single:1"), NULL, NULL, "single:1" },
    { "srun --gpu-bind, started anew",
      "v=1;cpu-bind=no;from=explicit;by=muster;option=muster;gpu-bind=closest", NULL,
      NULL, "closest" },
    { "left to Slurm", "v=1;cpu-bind=no;from=explicit;by=slurm;gpu-bind=closest", NULL,
      NULL, NULL },
    { "no binding", KEPT("explicit", ""), NULL, NULL, NULL },
    { "carried out", KEPT("explicit", "single:1"), "5.0", NULL, NULL },
    { "carried out in the outer step", KEPT("implicit", "single:1"), "5.1", NULL,
      "single:1" },
    { "by an older plugin", KEPT("explicit", "single:1"), NULL, "RANK:1", NULL },
    { "no srun of Muster's", NULL, NULL, NULL, NULL },
};

static void a_binding_that_no_node_carries_out_is_seen(void **state)
{
    for (size_t i = 0; i < sizeof markers / sizeof markers[0]; i++) {
        const struct marker_case *c = &markers[i];
        const struct mu_marker marker = { c->request, c->served, c->set, "5", "0" };
        const char *bind = mu_marker_unserved(&marker);

        if (!bind != !c->want || (bind && strcmp(bind, c->want) != 0))
            fail_msg("%s: %s", c->name, bind ? bind : "none");
    }
}

static void a_request_survives_the_round_trip(void **state)
{
    struct mu_bind_request request = { .gpu_bind = "gres;odd=1",
                                       .implicit = true,
                                       .slurm_binds = true,
                                       .cpu_bind_inherited = true };
    struct mu_bind_request back;
    char text[MU_TAKEOVER_TEXT];

    memcpy(request.gpu_bind, "map_gpu:1,0", 12);
    mu_takeover_encode(&request, text);
    assert_int_equal(mu_takeover_decode(text, &back, NULL), 0);
    assert_string_equal(back.gpu_bind, "map_gpu:1,0");
    assert_true(back.implicit && back.slurm_binds && back.cpu_bind_inherited);
    assert_false(back.cpu_bind);
    assert_int_equal(mu_takeover_decode("v=2;gpu-bind=x", &back, NULL), -1);
    assert_int_equal(mu_takeover_decode("", &back, NULL), -1);
}

static const struct args_case {
    const char *name, *line, *option;
    int least;
    const char *want;
} lines[] = {
    { "with =", "srun --gpu-bind=closest prog", "gpu-bind", 5, "closest" },
    { "as the next word", "srun --gpu-bind closest prog", "gpu-bind", 5, "closest" },
    { "an abbreviation", "srun --gpu-b=closest prog", "gpu-bind", 5, "closest" },
    { "too short to be sure", "srun --gpu=closest prog", "gpu-bind", 5, NULL },
    { "another option with the same start", "srun --gpus-per-node=2 prog",
      "gpus-per-task", 10, NULL },
    { "the last one wins", "srun --gpu-bind=none --gpu-bind=closest prog", "gpu-bind",
      5, "closest" },
    { "behind a short option with a value", "srun -n 4 --gpu-bind=none prog",
      "gpu-bind", 5, "none" },
    { "behind a short option that holds it", "srun -n4 -l --gpu-bind=none prog",
      "gpu-bind", 5, "none" },
    { "behind letters of which the last takes a word",
      "srun -ln 4 --gpu-bind=none prog", "gpu-bind", 5, "none" },
    { "behind letters of which the last holds its value",
      "srun -lun4 --gpu-bind=none prog", "gpu-bind", 5, "none" },
    { "behind a flag that only some releases have",
      "srun --bcast --test-only --gpu-bind=none prog", "gpu-bind", 5, "none" },
    { "behind a flag", "srun --exact --gpu-bind=none prog", "gpu-bind", 5, "none" },
    { "not the program's own words", "srun -n4 prog --gpu-bind=none", "gpu-bind", 5,
      NULL },
    { "not behind a flag and the program", "srun --exact prog --gpu-bind=none",
      "gpu-bind", 5, NULL },
    { "not behind --", "srun -- prog --gpu-bind=none", "gpu-bind", 5, NULL },
    { "an option whose value is optional", "srun --muster prog", "muster", 6, "" },
    { "an option that ends the line", "srun --gpu-bind", "gpu-bind", 5, "" },
};

static int split(char *line, char **argv)
{
    int argc = 0;

    for (char *word = strtok(line, " "); word; word = strtok(NULL, " "))
        argv[argc++] = word;
    argv[argc] = NULL;
    return argc;
}

static void sruns_own_words_are_told_from_the_programs(void **state)
{
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        char copy[128], *argv[32];
        const char *got;

        strcpy(copy, lines[i].line);
        got = mu_args_srun(split(copy, argv), argv, lines[i].option, lines[i].least);
        if ((got == NULL) != (lines[i].want == NULL) ||
            (got && strcmp(got, lines[i].want) != 0))
            fail_msg("%s: '%s'", lines[i].name, got ? got : "not found");
    }
}

static void an_option_of_sruns_is_found_by_its_letter(void **state)
{
    static const char *const words[][3] = {
        { "srun -w n3,n1 prog", "n3,n1" },   { "srun -n2 -wn3 prog", "n3" },
        { "srun --nodelist=n2 prog", "n2" }, { "srun --nodelist n2 -w n1 prog", "n1" },
        { "srun -n2 prog -w n1", NULL },     { "srun -w", "" },
    };

    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        char copy[128], *argv[32];
        const char *got;

        strcpy(copy, words[i][0]);
        got = mu_args_srun_letter(split(copy, argv), argv, "nodelist", 6, 'w');
        if ((got == NULL) != (words[i][1] == NULL) ||
            (got && strcmp(got, words[i][1]) != 0))
            fail_msg("%s: '%s'", words[i][0], got ? got : "not found");
    }
}

static const struct launcher_case {
    const char *line;
    enum mu_launcher want;
    int nproc;
} launchers[] = {
    { "torchrun --nproc_per_node=8 train.py", MU_LAUNCHER_TORCH, 8 },
    { "/opt/venv/bin/torchrun --nproc-per-node 4 train.py", MU_LAUNCHER_TORCH, 4 },
    { "python3 -u -m torch.distributed.run train.py", MU_LAUNCHER_TORCH, 0 },
    { "accelerate launch train.py", MU_LAUNCHER_TORCH, 0 },
    { "/usr/bin/orted -mca ess slurm", MU_LAUNCHER_MPI, 0 },
    { "prted --daemonize", MU_LAUNCHER_MPI, 0 },
    { "python3 train.py --nproc_per_node=8", MU_LAUNCHER_NONE, 0 },
    { "./torchrunner", MU_LAUNCHER_NONE, 0 },
};

static void case_044_launchers_inside_a_step_are_known(void **state)
{
    for (size_t i = 0; i < sizeof launchers / sizeof launchers[0]; i++) {
        char copy[128], *argv[32];
        int nproc = -1;

        strcpy(copy, launchers[i].line);
        if (mu_args_launcher(split(copy, argv), argv, &nproc) != launchers[i].want ||
            nproc != launchers[i].nproc)
            fail_msg("'%s': nproc %d", launchers[i].line, nproc);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form_is_taken_over_or_left),
        cmocka_unit_test(a_binding_that_no_node_carries_out_is_seen),
        cmocka_unit_test(case_079_a_variable_that_repeats_another_is_found),
        cmocka_unit_test(a_request_survives_the_round_trip),
        cmocka_unit_test(sruns_own_words_are_told_from_the_programs),
        cmocka_unit_test(an_option_of_sruns_is_found_by_its_letter),
        cmocka_unit_test(case_044_launchers_inside_a_step_are_known),
    };

    return cmocka_run_group_tests_name("request", tests, NULL, NULL);
}
