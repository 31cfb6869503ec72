/* SPDX-License-Identifier: BSD-3-Clause */
/* ranks.c - forked ranks and their exchange */
#include "tests/unit/ranks.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/clock.h"

#define MAX_RECORDS 1024

enum verb { PUBLISH = 1, FENCE, FETCH };

struct message {
    int verb, rank;
    char key[64];
    int len; /* -1: not found */
    char value[2048];
};

struct board {
    pid_t pids[RANKS_MAX];
    _Atomic int64_t value[RANKS_BOARD];
};

void ranks_complain(const struct ranks_self *self, const char *file, int line,
                    const char *cond, const char *fmt, ...)
{
    char text[1024];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    fprintf(stderr, "# rank %d: %s:%d: %s: %s\n", self->rank, file, line, cond, text);
}

/* ---- a rank's side ---- */

static int ask(struct ranks_self *self, struct message *m, double timeout,
               struct mu_err *err)
{
    struct pollfd p = { .fd = self->socket, .events = POLLIN };

    if (send(self->socket, m, sizeof *m, MSG_NOSIGNAL) != sizeof *m)
        return mu_err_set(err, MUSTER_ERENDEZVOUS, "the test's exchange is gone");
    if (poll(&p, 1, (int)(timeout * 1000)) != 1 ||
        recv(self->socket, m, sizeof *m, 0) != sizeof *m)
        return mu_err_set(err, MUSTER_ERENDEZVOUS, "the test's exchange timed out");
    return 0;
}

static int publish(void *arg, const char *key, const void *value, size_t len,
                   struct mu_err *err)
{
    struct ranks_self *self = arg;
    struct message m = { .verb = PUBLISH, .rank = self->rank, .len = (int)len };

    if (len > sizeof m.value)
        return mu_err_set(err, MUSTER_EINTERNAL, "value of %zu bytes", len);
    snprintf(m.key, sizeof m.key, "%s", key);
    memcpy(m.value, value, len);
    return ask(self, &m, 10, err);
}

static int fence(void *arg, double timeout, struct mu_err *err)
{
    struct ranks_self *self = arg;
    struct message m = { .verb = FENCE, .rank = self->rank };

    return ask(self, &m, timeout, err);
}

static int fetch(void *arg, int rank, const char *key, void **value, size_t *len,
                 double timeout, struct mu_err *err)
{
    struct ranks_self *self = arg;
    struct message m = { .verb = FETCH, .rank = rank };

    snprintf(m.key, sizeof m.key, "%s", key);
    if (ask(self, &m, timeout, err) < 0)
        return -1;
    if (m.len < 0)
        return mu_err_set(err, MUSTER_ERENDEZVOUS, "rank %d published no %s", rank,
                          key);
    *value = malloc((size_t)m.len + 1);
    memcpy(*value, m.value, (size_t)m.len);
    *len = (size_t)m.len;
    return 0;
}

static int count_nodes(const struct ranks_world *w)
{
    int max = 0;

    for (int r = 0; w->node_of && r < w->n; r++)
        if (w->node_of[r] > max)
            max = w->node_of[r];
    return max + 1;
}

static void fill_env(struct ranks_self *self, const struct ranks_world *w)
{
    static int nodes[RANKS_MAX];
    static char names[RANKS_MAX][16];
    static const char *hosts[RANKS_MAX];
    struct mu_backend_env *e = &self->env;

    for (int r = 0; r < w->n; r++) {
        nodes[r] = w->node_of ? w->node_of[r] : 0;
        snprintf(names[r], sizeof names[r], "n%d", nodes[r]);
        hosts[r] = names[r];
    }
    e->rank = self->rank;
    e->size = w->n;
    for (int r = 0; r < w->n; r++) {
        e->local_size += nodes[r] == nodes[self->rank];
        e->local_rank += nodes[r] == nodes[self->rank] && r < self->rank;
    }
    e->node = nodes[self->rank];
    e->nnodes = count_nodes(w);
    e->node_of = nodes;
    e->host_of = hosts;
    e->job = "1.0";
    e->gpus = "";
    memset(e->token, 0x5a, sizeof e->token);
    e->force_tcp = w->force_tcp;
    e->timeout = w->timeout > 0 ? w->timeout : 20;
    e->init_timeout = w->init_timeout > 0 ? w->init_timeout : 20;
    e->link_timeout = w->link_timeout;
    e->exchange = (struct mu_exchange){ self, publish, fence, fetch };
}

/* ---- the parent's side ---- */

struct server {
    int n, socket[RANKS_MAX];
    struct message *record;
    int nrecords, fenced;
    struct message waiting[RANKS_MAX];
    bool in_fence[RANKS_MAX];
};

static void serve(struct server *s, int r)
{
    struct message m;

    if (recv(s->socket[r], &m, sizeof m, MSG_DONTWAIT) != sizeof m) {
        close(s->socket[r]);
        s->socket[r] = -1;
        return;
    }
    if (m.verb == PUBLISH && s->nrecords < MAX_RECORDS) {
        s->record[s->nrecords++] = m;
    } else if (m.verb == FETCH) {
        m.len = -1;
        for (int i = 0; i < s->nrecords; i++)
            if (s->record[i].rank == m.rank && strcmp(s->record[i].key, m.key) == 0)
                m = s->record[i];
    } else if (m.verb == FENCE) {
        s->in_fence[r] = true;
        if (++s->fenced < s->n)
            return;
        s->fenced = 0;
        for (int i = 0; i < s->n; i++) {
            if (s->in_fence[i] && s->socket[i] >= 0)
                send(s->socket[i], &m, sizeof m, MSG_NOSIGNAL);
            s->in_fence[i] = false;
        }
        return;
    }
    send(s->socket[r], &m, sizeof m, MSG_NOSIGNAL);
}

static int spawn(const struct ranks_world *w, int r, struct server *s,
                 struct board *board, ranks_body *body, void *arg)
{
    int pair[2];
    pid_t pid;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -1;
    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        struct ranks_self self = { .rank = r,
                                   .size = w->n,
                                   .socket = pair[1],
                                   .pids = board->pids,
                                   .board = board->value };
        char go;

        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (int i = 0; i < r; i++)
            close(s->socket[i]);
        close(pair[0]);
        if (recv(self.socket, &go, 1, 0) != 1)
            _exit(99);
        fill_env(&self, w);
        r = body(&self, arg);
        fflush(NULL);
        exit(r);
    }
    close(pair[1]);
    s->socket[r] = pair[0];
    board->pids[r] = pid;
    return pid < 0 ? -1 : 0;
}

static int reap(const struct ranks_world *w, const struct board *board, int *status,
                bool *ended)
{
    int alive = 0;

    for (int r = 0; r < w->n; r++) {
        if (!ended[r] && waitpid(board->pids[r], &status[r], WNOHANG) == board->pids[r])
            ended[r] = true;
        alive += !ended[r];
    }
    return alive;
}

static void serve_all(const struct ranks_world *w, struct server *s,
                      const struct board *board, int *status)
{
    double end = mu_clock_s() + (w->limit > 0 ? w->limit : 60);
    bool ended[RANKS_MAX] = { false };

    while (reap(w, board, status, ended) > 0) {
        struct pollfd fds[RANKS_MAX];

        if (mu_clock_s() > end) {
            fprintf(stderr, "# a rank did not end in time\n");
            for (int r = 0; r < w->n; r++)
                if (!ended[r])
                    kill(board->pids[r], SIGKILL);
            end += 10;
        }
        for (int r = 0; r < w->n; r++)
            fds[r] = (struct pollfd){ .fd = s->socket[r], .events = POLLIN };
        if (poll(fds, (nfds_t)w->n, 10) <= 0)
            continue;
        for (int r = 0; r < w->n; r++)
            if (fds[r].revents)
                serve(s, r);
    }
}

int ranks_run(const struct ranks_world *w, ranks_body *body, void *arg, int *status)
{
    struct server s = { .n = w->n };
    struct board *board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int own[RANKS_MAX] = { 0 }, bad = 0;

    s.record = calloc(MAX_RECORDS, sizeof *s.record);
    if (board == MAP_FAILED || !s.record)
        return w->n;
    for (int r = 0; r < w->n; r++)
        if (spawn(w, r, &s, board, body, arg) < 0)
            abort();
    for (int r = 0; r < w->n; r++)
        if (send(s.socket[r], "g", 1, MSG_NOSIGNAL) != 1)
            abort();
    serve_all(w, &s, board, own);
    for (int r = 0; r < w->n; r++) {
        if (s.socket[r] >= 0)
            close(s.socket[r]);
        bad += own[r] != 0;
        if (status)
            status[r] = own[r];
    }
    for (int i = 0; w->board && i < RANKS_BOARD; i++)
        w->board[i] = board->value[i];
    free(s.record);
    munmap(board, sizeof *board);
    return bad;
}
