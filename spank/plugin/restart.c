/* SPDX-License-Identifier: BSD-3-Clause */
/* restart.c - in srun: starts srun anew, once, where its command line has a GPU binding
 * that the environment cannot neutralise (spank/core/options/restart.h)
 *
 * slurm_spank_init_post_opt runs after the options are parsed, before srun asks for an
 * allocation or a step, and before it reads its input. execve keeps process id, signal
 * mask, limits and descriptors. srun gets the environment of its first start, so that
 * the variables which srun and its plugins set meanwhile are set again, not twice.
 */
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/parse.h"
#include "spank/core/slurm/hostlist.h"
#include "spank/hw/io/sysfile.h"
#include "spank/hw/io/words.h"
#include "spank/plugin/plugin.h"

/* The process id of the srun that was started anew; ",own" where only Muster gave the
 * option --muster. The id makes a value that reached another srun void.
 */
#define GUARD "MUSTER_RESTARTED"
#define NODES_MAX 64

void mu_restart_init(struct mu_state *st)
{
    const char *guard = getenv(GUARD);
    char *end;

    if (!guard)
        return;
    st->restarted = strtol(guard, &end, 10) == getpid();
    st->own_option = st->restarted && strcmp(end, ",own") == 0;
    /* The flag lasts as long as the process; its children do not see the variable. */
    unsetenv(GUARD);
}

static bool is_traced(void)
{
    char *text = NULL, *line;
    bool traced = true;

    if (mu_sysfile_text("/proc/self/status", 65536, &text, NULL) < 0)
        return true;
    line = strstr(text, "\nTracerPid:");
    if (line)
        traced = strtol(line + sizeof "\nTracerPid:" - 1, NULL, 10) != 0;
    free(text);
    return traced;
}

static bool allows(const struct mu_state *st, const struct mu_site *site,
                   const char *partition, const char *host)
{
    struct mu_site_keys *keys = malloc(sizeof *keys);
    bool yes = false;

    if (!keys)
        return false;
    mu_site_resolve(site, partition, host, keys);
    if (keys->restart != MU_FLAG_NO && mu_srun_is_on(st, keys)) {
        yes = true;
        for (int i = 0; i < keys->nlocks; i++)
            yes &= strcmp(keys->lock[i], "gpu-bind") != 0;
    }
    free(keys);
    return yes;
}

/* Does the site allow it in the partition, on each node that is named? */
static bool allows_nodes(const struct mu_state *st, const struct mu_site *site,
                         const char *partition, const char *nodes)
{
    struct mu_hostlist hosts = { 0 };
    bool yes = allows(st, site, partition, NULL);

    if (!yes || !nodes || mu_hostlist_parse(nodes, &hosts, NULL) < 0)
        return yes;
    for (int i = 0; i < hosts.n && i < NODES_MAX && yes; i++)
        yes = allows(st, site, partition, hosts.name[i]);
    mu_hostlist_clear(&hosts);
    return yes;
}

/* Does the site allow it in each partition that is named, on each node? Where srun does
 * not report them, the step's node decides later (struct mu_bind_request, own_option).
 */
static bool site_allows(const struct mu_state *st, int argc, char *const *argv)
{
    const char *nodes = mu_args_srun_letter(argc, argv, "nodelist", 6, 'w');
    const char *partition = mu_args_srun_letter(argc, argv, "partition", 3, 'p');
    struct mu_site site = { 0 };
    char names[1024] = "", *rest = names, *name;
    bool yes = true;

    if (st->arguments.code) /* of plugstack.conf: Muster is off */
        return false;
    if (getenv("SLURM_JOB_PARTITION"))
        partition = getenv("SLURM_JOB_PARTITION");
    else if (!partition)
        partition = getenv("SLURM_PARTITION");
    if (!nodes)
        nodes = getenv("SLURM_JOB_NODELIST");
    if (partition && !mu_copy(names, sizeof names, partition))
        return false;
    /* A login node may have another site file, or none. */
    mu_site_read(st, &site, NULL);
    while (yes && (name = mu_parse_next(&rest, ',')))
        yes = allows_nodes(st, &site, *name ? name : NULL, nodes);
    mu_site_clear(&site);
    return yes;
}

static uint64_t signals_with(bool caught)
{
    uint64_t set = 0;

    for (int sig = 1; sig < 64; sig++) {
        struct sigaction now;

        if (sigaction(sig, NULL, &now) < 0)
            continue;
        if (caught ? now.sa_handler != SIG_DFL && now.sa_handler != SIG_IGN
                   : now.sa_handler == SIG_IGN)
            set |= 1ull << sig;
    }
    return set;
}

/* execve resets a caught signal to its default, and srun 26.05 catches some that its
 * parent may have ignored (nohup). Slurm gives a child of fork the old state back: the
 * child reports it.
 */
static void restore_ignored_signals(void)
{
    uint64_t caught = signals_with(true), ignored = 0;
    int ends[2];
    pid_t child;

    if (!caught || pipe2(ends, O_CLOEXEC) < 0)
        return;
    child = fork();
    if (child == 0) {
        ignored = signals_with(false);
        _exit(write(ends[1], &ignored, sizeof ignored) != sizeof ignored);
    }
    close(ends[1]);
    if (child > 0 && read(ends[0], &ignored, sizeof ignored) != sizeof ignored)
        ignored = 0;
    close(ends[0]);
    if (child > 0)
        waitpid(child, NULL, 0);
    for (int sig = 1; sig < 64; sig++)
        if (caught & ignored & 1ull << sig)
            signal(sig, SIG_IGN);
}

/* Returns only if the program cannot be started, for example with E2BIG. */
static void start_anew(char *const *line, bool own_option)
{
    struct mu_words env = { 0 };
    char guard[64], path[PATH_MAX], **bigger;
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);

    snprintf(guard, sizeof guard, GUARD "=%ld%s", (long)getpid(),
             own_option ? ",own" : "");
    if (n <= 0 || mu_words_read("/proc/self/environ", &env, NULL) < 0)
        return;
    path[n] = '\0';
    bigger = realloc(env.word, ((size_t)env.n + 2) * sizeof *bigger);
    if (bigger) {
        env.word = bigger;
        env.word[env.n++] = guard;
        env.word[env.n] = NULL;
        fflush(NULL);
        restore_ignored_signals();
        /* By its path, so that the process keeps its name; the link serves where an
         * update has replaced the file. */
        execve(path, line, env.word);
        execve("/proc/self/exe", line, env.word);
    }
    mu_words_clear(&env);
}

static void restart(struct mu_state *st, const struct mu_words *line)
{
    char option[MU_RESTART_OPTION], **anew;

    if (is_traced() || (st->option_given && st->option_too_long) ||
        mu_restart_option(st->option_given ? st->option : NULL, st->restart.gpu_bind,
                          option) < 0)
        return;
    anew = mu_restart_line(&st->restart, line->n, line->word, option);
    if (anew)
        start_anew(anew, !st->option_given);
    free(anew);
}

static void print_line(const struct mu_state *st, const struct mu_words *line)
{
    struct mu_opts opts = { 0 };
    char text[4096];

    if (!st->option_given || mu_opts_parse(st->option, &opts, NULL) < 0 ||
        opts.verbose != MU_FLAG_YES)
        return;
    mu_restart_print(line->word, text, sizeof text);
    slurm_spank_log("muster: started anew, so that each task can open all GPUs of its "
                    "step: %s",
                    text);
}

static bool has_components(const struct mu_words *line)
{
    for (int i = 1; i < line->n; i++)
        if (strcmp(line->word[i], ":") == 0)
            return true;
    return false;
}

/* Slurm binds each component by its own options. The request has the first one's
 * binding, which would narrow the tasks of all.
 */
static void forget_binding(void)
{
    const char *text = getenv(MU_TAKEOVER_VARIABLE);
    struct mu_bind_request request;

    if (!text || mu_takeover_decode(text, &request, NULL) < 0 || !request.slurm_binds)
        return;
    request.gpu_bind[0] = '\0';
    request.slurm_binds = false;
    mu_srun_send_request(&request);
}

void mu_restart_hook(struct mu_state *st)
{
    enum mu_restart_state state = MU_RESTART_NO;
    struct mu_takeover_input input = { 0 };
    struct mu_words line = { 0 };
    int first = st->restart.first;

    if (st->restart_over || mu_words_read("/proc/self/cmdline", &line, NULL) < 0)
        return;
    if (st->restarted) {
        print_line(st, &line);
    } else if (optind > 0 && optind < line.n - first) {
        mu_srun_takeover_input(optind, line.word + first, &input);
        state = mu_restart_note(&st->restart, line.n, line.word, optind, &input,
                                &mu_this_slurm);
        if (state != MU_RESTART_NO && !site_allows(st, optind, line.word + first))
            state = MU_RESTART_NO;
    }
    st->restart_over = state != MU_RESTART_MORE;
    if (state == MU_RESTART_READY)
        restart(st, &line);
    else if (st->restart_over && !st->restarted && has_components(&line))
        forget_binding();
    mu_words_clear(&line);
}
