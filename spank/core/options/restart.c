/* SPDX-License-Identifier: BSD-3-Clause */
#include "spank/core/options/restart.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/cpuset.h"
#include "runtime/base/parse.h"
#include "spank/core/options/muster_option.h"
#include "spank/core/slurm/command_line.h"

/* Marks the words that may follow option word i; an option that is not known may take
 * the next word or not.
 */
static void mark_next(char *const *argv, int i, int at, bool *may_begin)
{
    int behind = mu_args_words_behind(argv[i]);

    if (behind <= 0)
        may_begin[i + 1] = true;
    if (behind != 0 && i + 2 <= at)
        may_begin[i + 2] = true;
}

static bool is_option(const char *word)
{
    return word[0] == '-' && word[1];
}

/* Is the "--" in argv[i] possibly the value of the option in front of it? */
static bool may_be_value(char *const *argv, int i, const bool *may_begin)
{
    return i > 1 && may_begin[i - 1] && is_option(argv[i - 1]) &&
           mu_args_words_behind(argv[i - 1]) != 0;
}

bool mu_restart_is_command(int argc, char *const *argv, int at)
{
    bool *may_begin, is_command, ended;

    if (at < 1 || at >= argc)
        return false;
    ended = at > 1 && strcmp(argv[at - 1], "--") == 0;
    if (is_option(argv[at]) && !ended)
        return false;
    may_begin = calloc((size_t)at + 1, sizeof *may_begin);
    if (!may_begin)
        return false;
    may_begin[1] = true;
    for (int i = 1; i < at - ended; i++)
        if (may_begin[i] && is_option(argv[i]) && strcmp(argv[i], "--") != 0)
            mark_next(argv, i, at, may_begin);
    is_command =
        may_begin[at - ended] && !(ended && may_be_value(argv, at - 1, may_begin));
    free(may_begin);
    return is_command;
}

/* How often srun calls for the component: once for each part of --het-group. */
static int calls_of(int argc, char *const *argv)
{
    const char *parts = mu_args_srun(argc, argv, "het-group", 4);
    struct mu_cpuset set = { { 0 } };

    if (!parts || mu_cpuset_parse(parts, &set, NULL) < 0)
        return 1;
    return mu_cpuset_count(&set);
}

/* The binding that this component's command line asks of Slurm, and what undoes it. */
static bool binding_of(const struct mu_takeover_input *input,
                       const struct mu_takeover_slurm *slurm,
                       struct mu_bind_request *request, char *neutral, size_t len)
{
    struct mu_takeover_change changes[MU_TAKEOVER_CHANGES];
    char list[MU_TAKEOVER_TEXT];
    int n;

    mu_takeover_decide(input, slurm, request, changes, &n);
    if (!request->slurm_binds)
        return false;
    if (mu_takeover_neutral_list(input->tres_bind, list, sizeof list))
        snprintf(neutral, len, "--tres-bind=%.*s", (int)len - 16, list);
    else
        mu_copy(neutral, len, "--gpu-bind=none");
    return true;
}

enum mu_restart_state mu_restart_note(struct mu_restart *r, int argc, char *const *argv,
                                      int optind, const struct mu_takeover_input *input,
                                      const struct mu_takeover_slurm *slurm)
{
    char *const *part = argv + r->first;
    int nwords = argc - r->first, next;
    struct mu_bind_request request;
    char neutral[sizeof r->neutral];

    if (r->nparts == MU_RESTART_PARTS || !mu_restart_is_command(nwords, part, optind) ||
        !binding_of(input, slurm, &request, neutral, sizeof neutral))
        return MU_RESTART_NO;
    if (r->nparts == 0) {
        mu_copy(r->gpu_bind, sizeof r->gpu_bind, request.gpu_bind);
        mu_copy(r->neutral, sizeof r->neutral, neutral);
    }
    if (strcmp(r->gpu_bind, request.gpu_bind) != 0 || strcmp(r->neutral, neutral) != 0)
        return MU_RESTART_NO;
    if (++r->calls < calls_of(optind, part))
        return MU_RESTART_MORE;
    r->command[r->nparts++] = r->first + optind;
    for (next = r->first + optind; next < argc && strcmp(argv[next], ":") != 0; next++)
        ;
    r->first = next;
    r->calls = 0;
    return next < argc ? MU_RESTART_MORE : MU_RESTART_READY;
}

int mu_restart_option(const char *text, const char *gpu_bind,
                      char option[MU_RESTART_OPTION])
{
    bool empty = !text || !*text || strcmp(text, "(null)") == 0;
    struct mu_opts opts = { 0 };
    int n;

    if (mu_opts_parse(text, &opts, NULL) < 0)
        return -1;
    option[0] = '\0';
    if (opts.gpu_bind[0])
        return 0;
    n = snprintf(option, MU_RESTART_OPTION, "--muster=%s%s", empty ? "" : text,
                 empty ? "" : ",");
    if (n >= MU_RESTART_OPTION ||
        n + snprintf(option + n, (size_t)(MU_RESTART_OPTION - n), "gpu-bind=%s",
                     gpu_bind) >=
            MU_RESTART_OPTION)
        return -1;
    for (char *c = option + n; *c; c++)
        if (*c == ',')
            *c = '+';
    return mu_opts_parse(option + sizeof "--muster=" - 1, &opts, NULL);
}

char **mu_restart_line(const struct mu_restart *r, int argc, char *const *argv,
                       const char *option)
{
    char **line = calloc((size_t)argc + 2 * (size_t)r->nparts + 1, sizeof *line);
    int n = 0, part = 0;

    if (!line)
        return NULL;
    for (int i = 0; i < argc; i++) {
        bool behind_end = i + 1 < argc && part < r->nparts &&
                          i + 1 == r->command[part] && strcmp(argv[i], "--") == 0;

        if (part < r->nparts && (i == r->command[part] || behind_end)) {
            line[n++] = (char *)r->neutral;
            if (option[0])
                line[n++] = (char *)option;
            part++;
        }
        line[n++] = argv[i];
    }
    return line;
}

static size_t print_word(const char *word, char *buf, size_t len)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                "0123456789_@%+=:,./-";
    size_t at = 0;

    if (*word && strspn(word, plain) == strlen(word))
        return (size_t)snprintf(buf, len, "%s", word);
    at += (size_t)snprintf(buf, len, "'");
    for (; *word && at < len; word++)
        at +=
            (size_t)snprintf(buf + at, len - at, *word == '\'' ? "'\\''" : "%c", *word);
    return at < len ? at + (size_t)snprintf(buf + at, len - at, "'") : at;
}

void mu_restart_print(char *const *argv, char *buf, size_t len)
{
    size_t at = 0, end = 0; /* end: behind the last word with room for the dots */

    buf[0] = '\0';
    for (int i = 0; argv[i]; i++) {
        at += (size_t)snprintf(buf + at, len - at, i ? " " : "");
        if (at < len)
            at += print_word(argv[i], buf + at, len - at);
        if (at >= len || (argv[i + 1] && at + sizeof " ..." > len)) {
            mu_copy(buf + end, len - end, " ...");
            return;
        }
        end = at;
    }
}
