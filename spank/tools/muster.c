/* SPDX-License-Identifier: BSD-3-Clause */
/* muster.c - the command `muster`: runs a built-in command or one of libexec/muster */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config.h"
#include "spank/tools/tool.h"

struct command {
    const char *name;
    int (*run)(int argc, char **argv); /* NULL: a separate program */
    const char *text;
    const char *absent; /* why the program may be missing */
};

static const struct command commands[] = {
    { "plan", mu_plan_main, "which CPUs, memory, GPUs and NICs each task would get",
      NULL },
    { "topo", mu_topo_main, "the node as Muster sees it; check or write NCCL files",
      NULL },
    { "doctor", mu_doctor_main, "find misconfiguration and print what to do", NULL },
    { "verify", mu_verify_main, "as a step's task: planned against actual placement",
      NULL },
    { "run", mu_run_main, "start the ranks of a program on this node, without Slurm",
      NULL },
    { "bench", NULL, "time collectives, pairs of ranks, or gradients of a model",
      "install Muster's runtime part" },
    { "report", NULL, "show a training run, as text, JSON or HTML, or compare several",
      "install Muster's runtime part" },
    { "monitor", NULL, "show what a running job does: steps, waiting, GPUs, network",
      "install Muster's runtime part" },
    { "checkpoint", NULL, "list, verify or export what is in a checkpoint file",
      "install Muster's runtime part" },
};

#define NCOMMANDS (sizeof commands / sizeof commands[0])

static const char *libexec_dir(void)
{
    const char *dir = getenv("MUSTER_LIBEXEC");

    return dir && dir[0] ? dir : MUSTER_LIBEXECDIR;
}

static int program_path(const char *name, char *path, size_t len)
{
    int n = snprintf(path, len, "%s/muster-%s", libexec_dir(), name);

    return n > 0 && (size_t)n < len ? 0 : -1;
}

static int help(void)
{
    char path[4096];

    puts("usage: muster COMMAND [OPTION]...\n"
         "       muster --help | --version\n"
         "\n"
         "Commands (see `muster COMMAND --help`):");
    for (size_t i = 0; i < NCOMMANDS; i++) {
        bool there = commands[i].run != NULL ||
                     (program_path(commands[i].name, path, sizeof path) == 0 &&
                      access(path, X_OK) == 0);

        printf("  %-10s %s%s\n", commands[i].name, commands[i].text,
               there ? "" : " (not installed here)");
    }
    puts("\nManual: muster(1), muster(7), muster-env(7), muster.conf(5), "
         "muster-spank(8)");
    return mu_tool_finish("help", MU_EXIT_OK);
}

/* Returns only if the program could not be started. */
static int start_program(const struct command *known, char **argv)
{
    char path[4096];

    if (argv[0][strspn(argv[0], "abcdefghijklmnopqrstuvwxyz0123456789-")] != '\0' ||
        program_path(argv[0], path, sizeof path) < 0) {
        fprintf(stderr, "muster: '%s' is not a command; see `muster --help`\n",
                argv[0]);
        return MU_EXIT_USAGE;
    }
    execv(path, argv);
    if (errno != ENOENT)
        fprintf(stderr, "muster: cannot start %s: %s\n", path, strerror(errno));
    else if (known)
        fprintf(stderr, "muster: `muster %s` is not installed here (no %s): %s\n",
                argv[0], path, known->absent);
    else
        fprintf(stderr, "muster: '%s' is not a command; see `muster --help`\n",
                argv[0]);
    return MU_EXIT_USAGE;
}

int main(int argc, char **argv)
{
    const struct command *known = NULL;

    if (argc < 2) {
        fputs("muster: no command was given; see `muster --help`\n", stderr);
        return MU_EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0)
        return help();
    if (strcmp(argv[1], "--version") == 0) {
        puts("muster " PACKAGE_VERSION);
        return mu_tool_finish("version", MU_EXIT_OK);
    }
    for (size_t i = 0; i < NCOMMANDS; i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            known = &commands[i];
    /* hwloc's long warnings about wrong firmware would hide Muster's messages. */
    setenv("HWLOC_HIDE_ERRORS", "2", 0);
    if (known && known->run)
        return known->run(argc - 1, argv + 1);
    return start_program(known, argv + 1);
}
