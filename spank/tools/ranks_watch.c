/* SPDX-License-Identifier: BSD-3-Clause */
/* ranks_watch.c - output, signals and the end of the ranks of `muster run` */
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "spank/tools/ranks.h"
#include "spank/tools/tool.h"

#define COMMAND "run"
#define REPORT_SECONDS 5.0 /* after the first failure: the others report it and end */
#define TERM_SECONDS 5.0   /* from SIGTERM to SIGKILL */

struct end {
    int status;         /* of the first that failed */
    bool failed, asked; /* asked: a signal to end was forwarded */
    int well;           /* ranks that ended with 0 */
    double term, kill;  /* when the others get a signal, seconds of the clock */
};

static void signal_set(sigset_t *set)
{
    static const int list[] = { SIGCHLD, SIGINT,  SIGTERM, SIGHUP,
                                SIGQUIT, SIGUSR1, SIGUSR2, SIGCONT };

    sigemptyset(set);
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++)
        sigaddset(set, list[i]);
}

int mu_ranks_signals(void)
{
    sigset_t set;

    signal_set(&set);
    signal(SIGPIPE, SIG_IGN);
    return sigprocmask(SIG_BLOCK, &set, NULL) < 0
               ? -1
               : signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

void mu_ranks_restore(void)
{
    sigset_t set;

    signal_set(&set);
    signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
}

/* ---- Output --------------------------------------------------------------------- */

static void print(const struct mu_ranks *ranks, int rank, FILE *to, const char *line,
                  size_t len)
{
    if (ranks->label)
        fprintf(to, "%d: ", rank);
    fwrite(line, 1, len, to);
    if (line[len - 1] != '\n')
        fputc('\n', to);
    fflush(to);
}

static void print_lines(const struct mu_ranks *ranks, int rank, struct mu_stream *s,
                        FILE *to)
{
    char *begin = s->line, *end;
    size_t left = s->len;

    while (left > 0 && (end = memchr(begin, '\n', left))) {
        print(ranks, rank, to, begin, (size_t)(end + 1 - begin));
        left -= (size_t)(end + 1 - begin);
        begin = end + 1;
    }
    if (left == MU_RANK_LINE) {
        print(ranks, rank, to, begin, left);
        left = 0;
    }
    memmove(s->line, begin, left);
    s->len = left;
}

/* false: nothing is there now, or it has ended */
static bool forward(const struct mu_ranks *ranks, int rank, struct mu_stream *s,
                    FILE *to)
{
    ssize_t n;

    if (s->fd < 0)
        return false;
    n = read(s->fd, s->line + s->len, MU_RANK_LINE - s->len);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (n <= 0) {
        if (s->len > 0)
            print(ranks, rank, to, s->line, s->len);
        s->len = 0;
        close(s->fd);
        s->fd = -1;
        return false;
    }
    s->len += (size_t)n;
    print_lines(ranks, rank, s, to);
    return true;
}

/* Both streams of a rank, until nothing is there. */
static void forward_all(struct mu_ranks *ranks, int rank)
{
    while (forward(ranks, rank, &ranks->rank[rank].out, stdout)) {
    }
    while (forward(ranks, rank, &ranks->rank[rank].err, stderr)) {
    }
}

/* ---- Signals and ends ----------------------------------------------------------- */

static void signal_all(const struct mu_ranks *ranks, int number)
{
    for (int r = 0; r < ranks->n; r++)
        if (ranks->rank[r].pid > 0)
            kill(-ranks->rank[r].pid, number);
}

void mu_ranks_kill(struct mu_ranks *ranks)
{
    signal_all(ranks, SIGKILL);
    for (int r = 0; r < ranks->n; r++)
        if (ranks->rank[r].pid > 0)
            waitpid(ranks->rank[r].pid, NULL, 0);
}

static void read_signals(struct mu_ranks *ranks, struct end *end)
{
    struct signalfd_siginfo info;

    while (read(ranks->signals, &info, sizeof info) == sizeof info) {
        int number = (int)info.ssi_signo;

        if (number == SIGCHLD)
            continue;
        end->asked = end->asked || number == SIGINT || number == SIGTERM ||
                     number == SIGHUP || number == SIGQUIT;
        signal_all(ranks, number);
    }
}

static void report(const struct mu_ranks *ranks, int rank, int raw, struct end *end)
{
    int number = WIFSIGNALED(raw) ? WTERMSIG(raw) : 0;
    int status = number ? 128 + number : WEXITSTATUS(raw);

    end->well += status == 0;
    if (status == 0 || end->failed)
        return;
    end->failed = true;
    end->status = status;
    if (number)
        mu_tool_fail(COMMAND, 0, "rank %d was killed by signal %d (%s)%s", rank, number,
                     strsignal(number),
                     ranks->elastic && !end->asked ? "; the others go on" : "");
    else
        mu_tool_fail(COMMAND, 0, "rank %d ended with status %d%s", rank, status,
                     ranks->elastic ? "; the others go on" : "");
    if (!ranks->elastic)
        end->term = mu_clock_s() + REPORT_SECONDS;
}

/* What a rank has left running ends with it. */
static int reap(struct mu_ranks *ranks, struct end *end)
{
    int left = 0;

    for (int r = 0; r < ranks->n; r++) {
        struct mu_rank *rank = &ranks->rank[r];
        siginfo_t info = { 0 };
        int raw;

        if (rank->pid <= 0)
            continue;
        if (waitid(P_PID, (id_t)rank->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
            info.si_pid == 0) {
            left++;
            continue;
        }
        kill(-rank->pid, SIGKILL);
        if (waitpid(rank->pid, &raw, 0) < 0)
            raw = 0;
        rank->pid = 0;
        forward_all(ranks, r);
        report(ranks, r, raw, end);
    }
    return left;
}

static void end_others(struct mu_ranks *ranks, struct end *end)
{
    double now = mu_clock_s();

    if (now >= end->term) {
        signal_all(ranks, SIGTERM);
        end->term = HUGE_VAL;
        end->kill = now + TERM_SECONDS;
    }
    if (now >= end->kill)
        signal_all(ranks, SIGKILL);
}

static void await(const struct mu_ranks *ranks, struct pollfd *fds)
{
    int n = 0;

    fds[n++] = (struct pollfd){ ranks->signals, POLLIN, 0 };
    for (int r = 0; r < ranks->n; r++) {
        fds[n++] = (struct pollfd){ ranks->rank[r].out.fd, POLLIN, 0 };
        fds[n++] = (struct pollfd){ ranks->rank[r].err.fd, POLLIN, 0 };
    }
    poll(fds, (nfds_t)n, 200);
}

int mu_ranks_watch(struct mu_ranks *ranks)
{
    struct pollfd *fds = calloc(1 + 2 * (size_t)ranks->n, sizeof *fds);
    struct end end = { .term = HUGE_VAL, .kill = HUGE_VAL };

    if (!fds) {
        mu_ranks_kill(ranks);
        return mu_tool_fail(COMMAND, MU_EXIT_INPUT, "out of memory");
    }
    while (reap(ranks, &end) > 0) {
        end_others(ranks, &end);
        await(ranks, fds);
        read_signals(ranks, &end);
        for (int r = 0; r < ranks->n; r++)
            forward_all(ranks, r);
    }
    free(fds);
    return ranks->elastic && end.well > 0 ? 0 : end.status;
}
