/* SPDX-License-Identifier: BSD-3-Clause */
/* command_line.c - reads command lines of srun and of launchers */
#include "spank/core/slurm/command_line.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/parse.h"

/* Options of srun 20.11 to 26.05 that never take the next word as their value. */
static const char *const flags[] = {
    "bcast",
    "compress",
    "consolidate-segments",
    "contiguous",
    "debugger-test",
    "disable-status",
    "exact",
    "exclusive",
    "external-launcher",
    "help",
    "hold",
    "immediate",
    "interactive",
    "kill-on-bad-exit",
    "label",
    "multi-prog",
    "nice",
    "no-allocate",
    "no-kill",
    "oom-kill-step",
    "overcommit",
    "overlap",
    "oversubscribe",
    "preserve-env",
    "propagate",
    "pty",
    "quiet",
    "quit-on-interrupt",
    "reboot",
    "resv-ports",
    "send-libs",
    "spread-job",
    "spread-segments",
    "stepmgr",
    "test-only",
    "unbuffered",
    "usage",
    "use-min-nodes",
    "verbose",
    "version",
    "wait-for-children",
    "whole",
    "muster",
    NULL,
};
static const char flag_letters[] = "EHIKOQVWXZhklsuv";

static bool is_option(const char *word, const char *name, int least, const char **value)
{
    size_t n = strcspn(word + 2, "=");

    if ((int)n < least || strncmp(word + 2, name, n) != 0)
        return false;
    *value = word[2 + n] ? word + 2 + n + 1 : NULL;
    return true;
}

int mu_args_words_behind(const char *word)
{
    if (word[1] == '-')
        return strchr(word, '=') || mu_parse_word(word + 2, flags) >= 0 ? 0 : -1;
    /* -ln4: flags, then a letter that holds its value or takes the next word */
    for (word++; *word && strchr(flag_letters, *word); word++)
        ;
    return *word && !word[1] ? 1 : 0;
}

const char *mu_args_srun(int argc, char *const *argv, const char *name, int least)
{
    return mu_args_srun_letter(argc, argv, name, least, '\0');
}

const char *mu_args_srun_letter(int argc, char *const *argv, const char *name,
                                int least, char letter)
{
    const char *found = NULL;

    for (int i = 1; i < argc && argv[i][0] == '-' && argv[i][1]; i++) {
        const char *word = argv[i], *value;

        if (strcmp(word, "--") == 0)
            break;
        if (word[1] == '-' && is_option(word, name, least, &value)) {
            if (!value)
                value =
                    mu_args_words_behind(word) == 0 || i + 1 == argc ? "" : argv[++i];
            found = value;
        } else if (letter && word[1] == letter) {
            found = word[2] ? word + 2 : i + 1 < argc ? argv[++i] : "";
        } else if (mu_args_words_behind(word) != 0) {
            i++;
        }
    }
    return found;
}

static const char *base_of(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

static bool is_torch_word(const char *word)
{
    static const char *const names[] = { "torchrun",
                                         "accelerate",
                                         "deepspeed",
                                         "torch.distributed.run",
                                         "torch.distributed.launch",
                                         NULL };

    return mu_parse_word(base_of(word), names) >= 0;
}

static int read_nproc(int argc, char *const *argv)
{
    static const char *const names[] = { "--nproc_per_node", "--nproc-per-node",
                                         "--num_gpus", NULL };

    for (int i = 0; i < argc; i++) {
        size_t n = strcspn(argv[i], "=");
        char name[32];
        const char *value = argv[i][n]     ? argv[i] + n + 1
                            : i + 1 < argc ? argv[i + 1]
                                           : "";
        long count;

        if (n >= sizeof name)
            continue;
        memcpy(name, argv[i], n);
        name[n] = '\0';
        if (mu_parse_word(name, names) >= 0)
            return mu_parse_int("", value, 1, 4096, &count, NULL) < 0 ? 0 : (int)count;
    }
    return 0;
}

enum mu_launcher mu_args_launcher(int argc, char *const *argv, int *nproc)
{
    static const char *const daemons[] = { "orted",           "prted",
                                           "hydra_pmi_proxy", "hydra_bstrap_proxy",
                                           "pmi_proxy",       "mpiexec",
                                           "mpirun",          NULL };

    *nproc = 0;
    if (argc > 0 && mu_parse_word(base_of(argv[0]), daemons) >= 0)
        return MU_LAUNCHER_MPI;
    /* "python3 -u -m torch.distributed.run": the name is one of the first words. */
    for (int i = 0; i < argc && i < 6; i++)
        if (is_torch_word(argv[i])) {
            *nproc = read_nproc(argc, argv);
            return MU_LAUNCHER_TORCH;
        }
    return MU_LAUNCHER_NONE;
}
