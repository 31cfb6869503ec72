/* SPDX-License-Identifier: BSD-3-Clause */
/* test_restart.c - where srun's command begins, and the line that srun starts anew with
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "spank/core/options/restart.h"
#include "spank/core/slurm/command_line.h"

static const struct mu_takeover_slurm old = { .tres_bind = false };
static const struct mu_takeover_slurm mid = { .tres_bind = true };

/* Blanks separate the words; "_" is an empty word. */
static int split(char *line, char **argv)
{
    int argc = 0;

    for (char *word = strtok(line, " "); word; word = strtok(NULL, " "))
        argv[argc++] = strcmp(word, "_") == 0 ? "" : word;
    argv[argc] = NULL;
    return argc;
}

static const struct command_case {
    const char *name, *line;
    int at; /* what getopt reports */
    bool want;
} commands[] = {
    { "no option", "srun prog", 1, true },
    { "a value in the word", "srun --gpu-bind=single:1 prog -x", 2, true },
    { "a value in the next word", "srun --gpu-bind single:1 prog -x", 3, true },
    { "a letter and its value", "srun -n 2 prog", 3, true },
    { "letters, the last with a value", "srun -ln 2 prog", 3, true },
    { "an empty value", "srun --comment _ -n2 prog", 4, true },
    { "an option that is not known, with a value", "srun --image x prog", 3, true },
    { "an option that is not known, without", "srun --novelty -n2 prog", 3, true },
    { "behind --", "srun -n2 -- prog", 3, true },
    { "a program that begins with a minus, behind --", "srun -n2 -- -prog", 3, true },
    { "a program called -", "srun -n2 -", 2, true },
    { "words of the program that look like srun's",
      "srun -n2 prog --gpu-bind=single:1 -n 2", 2, true },

    { "optind was reset", "srun -n2 prog", 0, false },
    { "optind counts from elsewhere", "srun -n2 prog", 1, false },
    { "one word too far", "srun -n2 prog arg", 3, false },
    { "two words too far", "srun --exact prog arg arg", 4, false },
    { "a flag takes no word", "srun --exact prog arg", 3, false },
    { "the line has no command", "srun -n2", 2, false },
    { "behind the line", "srun -n2", 3, false },
    { "the loader of programs in front", "ld.so /usr/bin/srun -n2 prog", 3, false },
    { "-- may be the value of an option", "srun --comment -- prog", 3, false },
    { "the program in front of --", "srun prog -- arg", 3, false },
};

static void the_command_is_where_the_options_end(void **state)
{
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        char copy[128], *argv[32];
        int argc;

        strcpy(copy, commands[i].line);
        argc = split(copy, argv);
        if (mu_restart_is_command(argc, argv, commands[i].at) != commands[i].want)
            fail_msg("%s: not %s", commands[i].name, commands[i].want ? "yes" : "no");
    }
}

static const struct line_case {
    const char *name;
    const struct mu_takeover_slurm *slurm;
    const char *line;
    const char *optinds; /* of each call, one digit or more, with blanks between */
    const char *text;    /* of --muster */
    const char *want;    /* "no", or the new line */
} lines[] = {
    { "22.05, --gpu-bind", &old, "srun -n2 --gpu-bind=single:1 prog -x", "3", NULL,
      "srun -n2 --gpu-bind=single:1 --gpu-bind=none --muster=gpu-bind=single:1 prog "
      "-x" },
    { "commas become +", &old, "srun --gpu-bind=verbose,map_gpu:1,0 prog", "2", NULL,
      "srun --gpu-bind=verbose,map_gpu:1,0 --gpu-bind=none "
      "--muster=gpu-bind=verbose+map_gpu:1+0 prog" },
    { "the user's --muster goes on", &old,
      "srun --muster=verbose,strict --gpu-b=closest prog", "3", "verbose,strict",
      "srun --muster=verbose,strict --gpu-b=closest --gpu-bind=none "
      "--muster=verbose,strict,gpu-bind=closest prog" },
    { "a --muster without a value", &old, "srun --muster --gpu-bind=closest prog", "3",
      "",
      "srun --muster --gpu-bind=closest --gpu-bind=none --muster=gpu-bind=closest "
      "prog" },
    { "the user's gpu-bind beats Slurm's", &old,
      "srun --muster=gpu-bind=single:1 --gpu-bind=closest prog", "3",
      "gpu-bind=single:1",
      "srun --muster=gpu-bind=single:1 --gpu-bind=closest --gpu-bind=none prog" },
    { "in front of --", &old, "srun --gpu-bind=closest -- -prog", "3", NULL,
      "srun --gpu-bind=closest --gpu-bind=none --muster=gpu-bind=closest -- -prog" },
    { "--tres-bind keeps its other resources", &mid,
      "srun --tres-bind=gres/nic:closest+gres/gpu:single:1 prog", "2", NULL,
      "srun --tres-bind=gres/nic:closest+gres/gpu:single:1 "
      "--tres-bind=gres/nic:closest+gres/gpu:none --muster=gpu-bind=single:1 prog" },
    { "--gpu-bind on 23.11", &mid, "srun --gpu-bind=per_task:1 prog", "2", NULL,
      "srun --gpu-bind=per_task:1 --gpu-bind=none --muster=gpu-bind=per_task:1 prog" },
    { "two components, one binding", &old,
      "srun --gpu-bind=single:1 a : -n 2 --gpu-bind=single:1 b -x", "2 4", NULL,
      "srun --gpu-bind=single:1 --gpu-bind=none --muster=gpu-bind=single:1 a : -n 2 "
      "--gpu-bind=single:1 --gpu-bind=none --muster=gpu-bind=single:1 b -x" },
    { "one component for two parts of a job", &old,
      "srun --het-group=0,1 --gpu-bind=single:1 a", "3 3", NULL,
      "srun --het-group=0,1 --gpu-bind=single:1 --gpu-bind=none "
      "--muster=gpu-bind=single:1 a" },
    { "parts of a job, then another component", &old,
      "srun --het-group=0-1 --gpu-bind=closest a : --het-group=2 --gpu-bind=closest b",
      "3 3 3", NULL,
      "srun --het-group=0-1 --gpu-bind=closest --gpu-bind=none "
      "--muster=gpu-bind=closest a : --het-group=2 --gpu-bind=closest --gpu-bind=none "
      "--muster=gpu-bind=closest b" },

    { "no binding", &old, "srun -n2 prog", "2", NULL, "no" },
    { "the neutral request is there", &old, "srun --gpu-bind=none prog", "2", NULL,
      "no" },
    { "the new line is not started anew", &old,
      "srun --gpu-bind=single:1 --gpu-bind=none --muster=gpu-bind=single:1 prog", "4",
      NULL, "no" },
    { "a count alone, which the environment neutralises", &old,
      "srun --gpus-per-task=1 prog", "2", NULL, "no" },
    { "words of the program", &old, "srun -n2 prog --gpu-bind=single:1", "2", NULL,
      "no" },
    { "a line that is not clear", &old, "srun --gpu-bind=single:1 prog", "1", NULL,
      "no" },
    { "components with different bindings", &old,
      "srun --gpu-bind=single:1 a : --gpu-bind=closest b", "2 2", NULL, "no" },
    { "a component without a binding", &old, "srun --gpu-bind=single:1 a : -n2 b",
      "2 2", NULL, "no" },
    { "a binding that Slurm refuses", &old, "srun --gpu-bind=nearest prog", "2", NULL,
      "no" },
    { "a --muster that Muster refuses", &old,
      "srun --muster=nonsense --gpu-bind=single:1 prog", "3", "nonsense", "no" },
};

/* The options of one component, as plugin/srun.c reads them. */
static struct mu_takeover_input input_of(int argc, char *const *argv)
{
    return (struct mu_takeover_input){
        .gpu_bind = mu_args_srun(argc, argv, "gpu-bind", 5),
        .tres_bind = mu_args_srun(argc, argv, "tres-bind", 6),
        .gpus_per_task = mu_args_srun(argc, argv, "gpus-per-task", 10),
    };
}

static void new_line(const struct line_case *c, char *out, size_t len)
{
    struct mu_restart *r = calloc(1, sizeof *r);
    enum mu_restart_state got = MU_RESTART_MORE;
    char copy[256], *argv[64], option[MU_RESTART_OPTION], **line = NULL;
    const char *calls = c->optinds;
    int argc;

    assert_non_null(r);
    strcpy(copy, c->line);
    argc = split(copy, argv);
    while (got == MU_RESTART_MORE) {
        struct mu_takeover_input input = input_of(argc - r->first, argv + r->first);

        got = mu_restart_note(r, argc, argv, (int)strtol(calls, (char **)&calls, 10),
                              &input, c->slurm);
    }
    if (got == MU_RESTART_READY && *calls)
        fail_msg("%s: ready with calls left", c->name);
    if (got == MU_RESTART_READY &&
        mu_restart_option(c->text, r->gpu_bind, option) == 0) {
        line = mu_restart_line(r, argc, argv, option);
        mu_restart_print(line, out, len);
    } else {
        snprintf(out, len, "no");
    }
    free(line);
    free(r);
}

static void the_new_line_undoes_the_binding_and_hands_it_to_muster(void **state)
{
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        char got[512];

        new_line(&lines[i], got, sizeof got);
        if (strcmp(got, lines[i].want) != 0)
            fail_msg("%s: '%s'", lines[i].name, got);
    }
}

static void an_option_that_does_not_fit_is_refused(void **state)
{
    static char option[MU_RESTART_OPTION], text[MU_RESTART_OPTION],
        map[2048] = "map_gpu:0";

    memset(text, 'v', sizeof text - 1);
    assert_int_equal(mu_restart_option(text, "single:1", option), -1);
    for (int i = 0; i < 600; i++)
        strcat(map, ",0");
    assert_int_equal(mu_restart_option(NULL, map, option), -1);
}

static void a_line_is_printed_for_a_shell(void **state)
{
    char *words[] = { "srun", "a b", "", "it's", "x=1", NULL };
    char *many[] = { "srun", "0123456789", "0123456789", NULL };
    char *one[] = { "0123456789012345678901234567890", NULL };
    char buf[128], small[24];

    mu_restart_print(words, buf, sizeof buf);
    assert_string_equal(buf, "srun 'a b' '' 'it'\\''s' x=1");
    mu_restart_print(many, small, sizeof small);
    assert_string_equal(small, "srun 0123456789 ...");
    mu_restart_print(one, small, sizeof small);
    assert_string_equal(small, " ...");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_command_is_where_the_options_end),
        cmocka_unit_test(the_new_line_undoes_the_binding_and_hands_it_to_muster),
        cmocka_unit_test(an_option_that_does_not_fit_is_refused),
        cmocka_unit_test(a_line_is_printed_for_a_shell),
    };

    return cmocka_run_group_tests_name("restart", tests, NULL, NULL);
}
