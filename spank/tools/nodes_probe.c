/* SPDX-License-Identifier: BSD-3-Clause */
/* nodes_probe.c - the task of muster plan --nodes on one node: answers the others, and
 * measures its share of the pairs
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/parse.h"
#include "spank/core/nodes/job_nodes.h"
#include "spank/tools/nodes_measure.h"
#include "spank/tools/tool.h"

#define PINGS 20 /* of a pair; the fastest counts */
#define PING_SECONDS 0.2
#define LOST 3    /* pings without an answer, then the pair has none */
#define LIFE 70.0 /* s; the parent ends before */

enum { ASK = 1, ANSWER };

struct packet {
    char token[MU_NODES_TOKEN];
    uint32_t kind, number;
};

struct probe {
    const char *token;
    int tcp, udp, self, n;
    struct sockaddr_in *peer; /* port 0: this node did not start */
    uint32_t number;
    double end;
    bool closed; /* by the parent */
};

/* Answer the others until `until`, or until the answer to `number` has come. */
static bool serve(struct probe *p, double until, uint32_t number)
{
    struct pollfd fds[2] = { { p->udp, POLLIN, 0 }, { p->tcp, POLLIN, 0 } };
    struct sockaddr_in from;
    struct packet packet;
    double left;
    char scrap;

    while (!p->closed && (left = until - mu_clock_s()) > 0) {
        socklen_t len = sizeof from;

        if (poll(fds, 2, (int)(left * 1e3) + 1) < 0 && errno != EINTR)
            break;
        if (fds[1].revents && recv(p->tcp, &scrap, 1, MSG_DONTWAIT) <= 0)
            p->closed = true;
        while (recvfrom(p->udp, &packet, sizeof packet, MSG_DONTWAIT,
                        (struct sockaddr *)&from, &len) == (ssize_t)sizeof packet) {
            if (memcmp(packet.token, p->token, sizeof packet.token) != 0)
                continue;
            if (packet.kind == ANSWER && packet.number == number)
                return true;
            if (packet.kind != ASK)
                continue;
            packet.kind = ANSWER;
            sendto(p->udp, &packet, sizeof packet, MSG_DONTWAIT,
                   (struct sockaddr *)&from, len);
        }
    }
    return false;
}

/* Us of the fastest round trip, -1: no answer. */
static double measure(struct probe *p, const struct sockaddr_in *peer)
{
    double best = -1;
    int lost = 0;

    for (int i = 0; i < PINGS && lost < LOST && !p->closed; i++) {
        struct packet packet = { .kind = ASK, .number = ++p->number };
        double from = mu_clock_s(), us;

        memcpy(packet.token, p->token, sizeof packet.token);
        sendto(p->udp, &packet, sizeof packet, 0, (const struct sockaddr *)peer,
               sizeof *peer);
        if (!serve(p, from + PING_SECONDS, packet.number)) {
            lost++;
            continue;
        }
        us = (mu_clock_s() - from) * 1e6;
        best = best < 0 || us < best ? us : best;
    }
    return best;
}

/* Each pair has one node that measures it; at a time each node asks another one. */
static void measure_share(struct probe *p, FILE *out)
{
    for (int k = 1; k <= p->n / 2; k++) {
        int j = (p->self + k) % p->n;
        double us;

        if ((2 * k == p->n && j < p->self) || p->peer[j].sin_port == 0)
            continue;
        us = measure(p, &p->peer[j]);
        if (us > 0)
            fprintf(out, "pair %d %.2f\n", j, us);
        else
            fprintf(out, "pair %d -\n", j);
    }
    fputs("done\n", out);
    fflush(out);
}

/* Read the addresses. Nobody asks before all have them, but another node may be faster:
 * its first question waits in the socket.
 */
static int read_peers(struct probe *p, FILE *in)
{
    char line[128], address[64];
    int index, port;

    p->peer = calloc(MU_JOB_NODES_MAX, sizeof *p->peer);
    if (!p->peer)
        return -1;
    while (fgets(line, sizeof line, in)) {
        if (sscanf(line, "peer %d %63s %d", &index, address, &port) == 3 &&
            index >= 0 && index < MU_JOB_NODES_MAX &&
            inet_pton(AF_INET, address, &p->peer[index].sin_addr) == 1) {
            p->peer[index].sin_family = AF_INET;
            p->peer[index].sin_port = htons((uint16_t)port);
        }
        if (sscanf(line, "go %d %d", &p->self, &p->n) == 2)
            return p->n > 0 && p->n <= MU_JOB_NODES_MAX ? 0 : -1;
    }
    return -1;
}

static int open_sockets(struct probe *p, long port, int *udp_port)
{
    const char *launcher = getenv("SLURM_LAUNCH_NODE_IPADDR");
    struct sockaddr_in to = { .sin_family = AF_INET,
                              .sin_port = htons((uint16_t)port) },
                       any = { .sin_family = AF_INET };
    struct timeval patience = { .tv_sec = (time_t)LIFE };
    socklen_t len = sizeof any;

    if (!launcher || inet_pton(AF_INET, launcher, &to.sin_addr) != 1)
        return mu_tool_fail(
            "plan", -1,
            "SLURM_LAUNCH_NODE_IPADDR has no IPv4 address: --node-probe "
            "is a task of muster plan --nodes");
    p->tcp = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    p->udp = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (p->tcp < 0 || p->udp < 0 ||
        bind(p->udp, (struct sockaddr *)&any, sizeof any) < 0 ||
        getsockname(p->udp, (struct sockaddr *)&any, &len) < 0 ||
        setsockopt(p->tcp, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) < 0 ||
        connect(p->tcp, (struct sockaddr *)&to, sizeof to) < 0)
        return mu_tool_fail("plan", -1, "%s port %ld: %s", launcher, port,
                            strerror(errno));
    *udp_port = ntohs(any.sin_port);
    return 0;
}

static void say_hello(FILE *out, const char *token, int udp_port)
{
    const char *name = getenv("SLURMD_NODENAME");
    char host[256] = "localhost";

    gethostname(host, sizeof host - 1);
    fprintf(out, "%s %s %d", token, name ? name : host, udp_port);
    mu_nodes_facts(out);
    fputc('\n', out);
    fflush(out);
}

int mu_nodes_probe(int nwords, char *const *words)
{
    struct probe p = { .token = nwords == 2 ? words[1] : "",
                       .tcp = -1,
                       .udp = -1,
                       .end = mu_clock_s() + LIFE };
    int udp_port = 0, status = MU_EXIT_INPUT;
    struct mu_err err = { 0 };
    FILE *in = NULL, *out = NULL;
    long number;

    if (strlen(p.token) != MU_NODES_TOKEN ||
        mu_parse_int("a port", words[0], 1, 65535, &number, &err) < 0)
        return mu_tool_usage("plan", "--node-probe PORT TOKEN is for plan --nodes");
    if (open_sockets(&p, number, &udp_port) == 0) {
        in = fdopen(dup(p.tcp), "r");
        out = fdopen(dup(p.tcp), "w");
    }
    if (in && out) {
        say_hello(out, p.token, udp_port);
        if (read_peers(&p, in) == 0) {
            measure_share(&p, out);
            serve(&p, p.end, 0);
            status = MU_EXIT_OK;
        }
    }
    if (in)
        fclose(in);
    if (out)
        fclose(out);
    free(p.peer);
    close(p.tcp);
    close(p.udp);
    return status;
}
