/* SPDX-License-Identifier: BSD-3-Clause */
/* nodes_measure.c - starts the step that measures all pairs of nodes, and collects */
#include "spank/tools/nodes_measure.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/parse.h"
#include "runtime/base/random.h"
#include "spank/core/nodes/job_nodes.h"
#include "spank/core/slurm/hostlist.h"
#include "spank/hw/io/child.h"
#include "spank/tools/step.h"

#define MEET_SECONDS 30.0    /* until the last node has started */
#define MEASURE_SECONDS 25.0 /* then the pairs that are missing have no answer */
#define STEP_SECONDS 65.0
#define LINE_MOST 1024

/* One connection; node -1: it has not sent the token yet. */
struct guest {
    int fd, node, port;
    struct in_addr address;
    char line[LINE_MOST];
    size_t len;
    char *facts; /* owned */
    bool done;
};

struct meeting {
    const struct mu_hostlist *nodes;
    char token[MU_NODES_TOKEN + 1], port[8];
    int listener;
    struct mu_children step;
    bool step_ended;
    int nguests, arrived, done;
    struct guest *guest;
    struct pollfd *fds;
    int *guest_of; /* by node; -1: not arrived */
    FILE *pairs;   /* lines for the text */
};

/* ---- The step -------------------------------------------------------------------- */

static void command_of(const struct meeting *m, const char *command[MU_STEP_WORDS])
{
    command[0] = "plan";
    command[1] = "--node-probe";
    command[2] = m->port;
    command[3] = m->token;
    command[4] = NULL;
}

/* In a child, so that this process can serve its tasks. */
static int run_step(void *arg, int index, int fd)
{
    const struct meeting *m = arg;
    const char *command[MU_STEP_WORDS];
    char scrap[256];
    int status;

    (void)index;
    command_of(m, command);
    status = mu_step_on_nodes(m->nodes->n, command, STEP_SECONDS, scrap, sizeof scrap);
    return mu_child_write(fd, &status, sizeof status) ? 0 : 1;
}

/* ---- Lines ----------------------------------------------------------------------- */

static void leave(struct guest *g)
{
    close(g->fd);
    g->fd = -1;
}

static void hello(struct meeting *m, struct guest *g)
{
    char token[MU_NODES_TOKEN + 1] = "", name[MU_HOST_LEN] = "";
    int port = 0, at = 0, node;

    /* The widths are those of the arrays. */
    if (sscanf(g->line, "%16s %255s %d%n", token, name, &port, &at) != 3 ||
        strcmp(token, m->token) != 0 || port < 1 || port > 65535 ||
        (node = mu_hostlist_find(m->nodes, name)) < 0 || m->guest_of[node] >= 0) {
        leave(g);
        return;
    }
    g->node = node;
    g->port = port;
    g->facts = strdup(g->line + at);
    m->guest_of[node] = (int)(g - m->guest);
    m->arrived++;
}

static void result(struct meeting *m, struct guest *g)
{
    char us[32];
    int other;

    if (strcmp(g->line, "done") == 0) {
        m->done += !g->done;
        g->done = true;
    } else if (sscanf(g->line, "pair %d %31s", &other, us) == 2 && other >= 0 &&
               other < m->nodes->n && other != g->node) {
        fprintf(m->pairs, MU_JOB_PAIR "%s %s %s\n", m->nodes->name[g->node],
                m->nodes->name[other], us);
    }
}

static void receive(struct meeting *m, struct guest *g)
{
    ssize_t n =
        recv(g->fd, g->line + g->len, sizeof g->line - 1 - g->len, MSG_DONTWAIT);
    char *end;

    if (n <= 0) {
        if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
            m->done += g->node >= 0 && !g->done;
            g->done = true;
            leave(g);
        }
        return;
    }
    g->len += (size_t)n;
    g->line[g->len] = '\0';
    while (g->fd >= 0 && (end = strchr(g->line, '\n'))) {
        *end = '\0';
        if (g->node < 0)
            hello(m, g);
        else
            result(m, g);
        g->len -= (size_t)(end + 1 - g->line);
        memmove(g->line, end + 1, g->len + 1);
    }
    if (g->fd >= 0 && g->len == sizeof g->line - 1)
        leave(g);
}

static void welcome(struct meeting *m)
{
    struct sockaddr_in from;
    socklen_t len = sizeof from;
    int fd = accept4(m->listener, (struct sockaddr *)&from, &len, SOCK_CLOEXEC);

    if (fd < 0)
        return;
    if (m->nguests == 2 * m->nodes->n + 16) {
        close(fd);
        return;
    }
    m->guest[m->nguests++] =
        (struct guest){ .fd = fd, .node = -1, .address = from.sin_addr };
}

/* ---- The meeting ----------------------------------------------------------------- */

/* Serve until *count has reached `want`, the step has ended, or the time is over. */
static void serve(struct meeting *m, const int *count, int want, double seconds)
{
    double end = mu_clock_s() + seconds, left;

    while (*count < want && !m->step_ended && (left = end - mu_clock_s()) > 0) {
        int n = m->nguests;

        m->fds[0] = (struct pollfd){ m->listener, POLLIN, 0 };
        m->fds[1] = (struct pollfd){ m->step.fd, POLLIN, 0 };
        for (int i = 0; i < n; i++)
            m->fds[2 + i] = (struct pollfd){ m->guest[i].fd, POLLIN, 0 };
        if (poll(m->fds, (nfds_t)n + 2, (int)(left * 1e3) + 1) < 0 && errno != EINTR)
            return;
        for (int i = 0; i < n; i++)
            if (m->fds[2 + i].revents)
                receive(m, &m->guest[i]);
        if (m->fds[0].revents)
            welcome(m);
        m->step_ended = m->fds[1].revents != 0;
    }
}

static void send_all(const struct guest *g, const char *text, size_t len)
{
    for (ssize_t n; len > 0; text += n, len -= (size_t)n)
        if ((n = send(g->fd, text, len, MSG_NOSIGNAL)) <= 0)
            return; /* its pairs stay without an answer */
}

static int send_peers(struct meeting *m, struct mu_err *err)
{
    char *text = NULL, address[INET_ADDRSTRLEN], go[64];
    size_t len = 0;
    FILE *f = open_memstream(&text, &len);

    if (!f)
        return mu_err_set(err, ENOMEM, "out of memory");
    for (int i = 0; i < m->nodes->n; i++) {
        const struct guest *g = m->guest_of[i] < 0 ? NULL : &m->guest[m->guest_of[i]];

        if (g && inet_ntop(AF_INET, &g->address, address, sizeof address))
            fprintf(f, "peer %d %s %d\n", i, address, g->port);
    }
    if (fclose(f) != 0) {
        free(text);
        return mu_err_set(err, ENOMEM, "out of memory");
    }
    for (int i = 0; i < m->nodes->n; i++) {
        if (m->guest_of[i] < 0 || m->guest[m->guest_of[i]].fd < 0)
            continue;
        send_all(&m->guest[m->guest_of[i]], text, len);
        send_all(&m->guest[m->guest_of[i]], go,
                 (size_t)snprintf(go, sizeof go, "go %d %d\n", i, m->nodes->n));
    }
    free(text);
    return 0;
}

/* Nodes in Slurm's order, then the pairs. Pairs of a node that did not come have no
 * answer. They come first, since the last line of a pair counts.
 */
static int write_text(struct meeting *m, const char *pairs, char **text,
                      struct mu_err *err)
{
    size_t len = 0;
    FILE *f = open_memstream(text, &len);

    if (!f)
        return mu_err_set(err, ENOMEM, "out of memory");
    for (int i = 0; i < m->nodes->n; i++) {
        const struct guest *g = m->guest_of[i] < 0 ? NULL : &m->guest[m->guest_of[i]];

        fprintf(f, MU_JOB_NODE "%s%s\n", m->nodes->name[i],
                g && g->facts ? g->facts : "");
    }
    for (int i = 0; i < m->nodes->n; i++)
        for (int j = i + 1; j < m->nodes->n; j++)
            if (m->guest_of[i] < 0 || m->guest_of[j] < 0)
                fprintf(f, MU_JOB_PAIR "%s %s -\n", m->nodes->name[i],
                        m->nodes->name[j]);
    fputs(pairs, f);
    return fclose(f) == 0 ? 0 : mu_err_set(err, ENOMEM, "out of memory");
}

static int meet(struct meeting *m, char **text, struct mu_err *err)
{
    char *pairs = NULL;
    size_t len = 0;
    int rc = -1, status = -1;

    m->pairs = open_memstream(&pairs, &len);
    if (!m->pairs)
        return mu_err_set(err, ENOMEM, "out of memory");
    if (mu_children_start(&m->step, 1, run_step, m, err) == 0) {
        serve(m, &m->arrived, m->nodes->n, MEET_SECONDS);
        if (m->arrived > 0 && (rc = send_peers(m, err)) == 0)
            serve(m, &m->done, m->arrived, MEASURE_SECONDS);
        for (int i = 0; i < m->nguests; i++)
            if (m->guest[i].fd >= 0)
                leave(&m->guest[i]);
        mu_children_read(&m->step, &status, sizeof status, mu_clock_s() + 5);
        mu_children_end(&m->step, mu_clock_s() + 1);
    }
    if (fclose(m->pairs) != 0 && rc == 0)
        rc = mu_err_set(err, ENOMEM, "out of memory");
    if (m->arrived == 0 && !err->text[0]) {
        const char *command[MU_STEP_WORDS];

        command_of(m, command);
        rc = mu_step_failed(m->nodes->n, command, status, err);
    }
    if (rc == 0)
        rc = write_text(m, pairs, text, err);
    free(pairs);
    return rc;
}

static int listen_here(struct meeting *m, struct mu_err *err)
{
    struct sockaddr_in any = { .sin_family = AF_INET };
    socklen_t len = sizeof any;
    struct rlimit files;

    /* A connection for each node. */
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    m->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (m->listener < 0 || bind(m->listener, (struct sockaddr *)&any, sizeof any) < 0 ||
        listen(m->listener, SOMAXCONN) < 0 ||
        getsockname(m->listener, (struct sockaddr *)&any, &len) < 0)
        return mu_err_set(err, errno, "a socket for the nodes: %s", strerror(errno));
    snprintf(m->port, sizeof m->port, "%d", ntohs(any.sin_port));
    return 0;
}

static int make_token(struct meeting *m, struct mu_err *err)
{
    unsigned char bytes[MU_NODES_TOKEN / 2];

    if (mu_random(bytes, sizeof bytes) < 0)
        return mu_err_set(err, errno, "random bytes: %s", strerror(errno));
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(m->token + 2 * i, 3, "%02x", bytes[i]);
    return 0;
}

int mu_nodes_measure(char **text, struct mu_err *err)
{
    const char *list = getenv("SLURM_JOB_NODELIST");
    struct meeting m = { .listener = -1 };
    struct mu_hostlist nodes = { 0 };
    int rc = -1, guests;

    if (!list || !getenv("SLURM_JOB_ID"))
        return mu_err_set(err, EINVAL,
                          "--nodes measures the nodes of a job: run it under sbatch or "
                          "salloc, or give --nodes=FILE");
    if (mu_hostlist_parse(list, &nodes, err) < 0)
        return -1;
    guests = 2 * nodes.n + 16;
    m.nodes = &nodes;
    m.guest = calloc((size_t)guests, sizeof *m.guest);
    m.fds = calloc((size_t)guests + 2, sizeof *m.fds);
    m.guest_of = malloc((size_t)nodes.n * sizeof *m.guest_of);
    for (int i = 0; m.guest_of && i < nodes.n; i++)
        m.guest_of[i] = -1;
    if (!m.guest || !m.fds || !m.guest_of)
        mu_err_set(err, ENOMEM, "out of memory");
    else if (nodes.n > MU_JOB_NODES_MAX)
        mu_err_set(err, E2BIG, "more than %d nodes", MU_JOB_NODES_MAX);
    else if (make_token(&m, err) == 0 && listen_here(&m, err) == 0)
        rc = meet(&m, text, err);
    for (int i = 0; m.guest && i < m.nguests; i++)
        free(m.guest[i].facts);
    if (m.listener >= 0)
        close(m.listener);
    free(m.guest_of);
    free(m.fds);
    free(m.guest);
    mu_hostlist_clear(&nodes);
    return rc;
}
