/* SPDX-License-Identifier: BSD-3-Clause */
/* test_host_strangers.c - who may connect while the host backend opens: strangers, a
 * rank without the token, a rank that stops
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "runtime/base/clock.h"
#include "tests/unit/await_stop.h"
#include "tests/unit/both_transports.h"
#include "tests/unit/patience.h"
#include "tests/unit/ranks.h"

static _Atomic int dropped;

static void listen_for_drops(void *arg, enum mu_log_level level, const char *text)
{
    dropped += strstr(text, "dropped") != NULL;
}

static int tcp_to(int port)
{
    struct sockaddr_in a = { .sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (connect(fd, (struct sockaddr *)&a, sizeof a) < 0)
        abort();
    return fd;
}

static int unix_to(const struct mu_address *to)
{
    struct sockaddr_un a;
    socklen_t len = mu_address_local(to, &a);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (connect(fd, (struct sockaddr *)&a, len) < 0)
        abort();
    return fd;
}

/* Knock as a stranger at rank 0. The silent ones stay open. */
static void knock(const struct ranks_self *self)
{
    static const char noise[200] = "GET / HTTP/1.1\r\n\r\n";
    const struct mu_address *at = &self->env.address[0];
    int fd, status;
    pid_t pid;

    if (self->env.force_tcp) {
        fd = tcp_to((int)at->port);
        tcp_to((int)at->port); /* says nothing */
        if (write(fd, noise, sizeof noise) != sizeof noise)
            abort();
        close(tcp_to((int)at->port));
        return;
    }
    fd = unix_to(at);
    unix_to(at); /* says nothing */
    if (write(fd, noise, sizeof noise) != sizeof noise)
        abort();
    pid = fork();
    if (pid == 0) {
        /* Another user, whom the endpoint does not even greet. */
        if (geteuid() == 0 && setuid(65534) == 0)
            fd = unix_to(at);
        if (write(fd, noise, 16) < 0) {
            /* It is refused by then. */
        }
        _exit(0);
    }
    waitpid(pid, &status, 0);
}

static int strangers(struct ranks_self *self, void *arg)
{
    struct mu_log log = { MU_LOG_WARN, listen_for_drops, NULL };
    struct mu_err err = { 0 };
    struct mu_backend *b;
    float x = 1;

    mu_endpoint_set_log(self->env.endpoint, &log, 10);
    meet_at(self, 1);
    if (self->rank == 1)
        knock(self);
    RANKS_CHECK(self, host->open(&self->env, &b, &err) == 0, "%s", err.text);
    for (int i = 0; i < 500 && self->rank == 0 && dropped < 2; i++)
        mu_pause(0.01);
    RANKS_CHECK(self, self->rank != 0 || dropped >= 2, "%d connections dropped",
                dropped);
    RANKS_CHECK(self, reduce(b, &x, 1, &err) == 0 && x == 3, "%g %s", x, err.text);
    host->close(b);
    mu_endpoint_set_log(self->env.endpoint, NULL, 0);
    return 0;
}

static void strangers_are_dropped_and_the_job_goes_on(void **state)
{
    in_both_transports(strangers);
}

/* A rank with another token is a stranger too: it ends with an error, no hang. */
static int wrong_token(struct ranks_self *self, void *arg)
{
    struct mu_err err = { 0 };
    struct mu_backend *b;

    self->env.init_timeout = 1;
    if (self->rank == 1)
        self->env.token[31] ^= 1;
    for (int s = MU_SERVICE_CONTROL; s < MU_NSERVICES; s++)
        mu_endpoint_set_secret(self->env.endpoint, (enum mu_service)s, self->env.token);
    /* The endpoint answers all the time: until here rank 1's knew the right token. */
    meet_at(self, 1);
    RANKS_CHECK(self, host->open(&self->env, &b, &err) < 0, "let in");
    RANKS_CHECK(self, err.code == MUSTER_ERENDEZVOUS && strstr(err.text, "rank"), "%s",
                err.text);
    return 0;
}

static void a_rank_without_the_token_is_not_let_in(void **state)
{
    in_both_transports(wrong_token);
}

/* ---- a rank that stops while descriptors change hands ---- */

/* Its sockets listen and the kernel takes connections for it, but it gives nothing. */
static int stops(struct ranks_self *self, void *arg)
{
    struct mu_err err = { 0 };
    struct mu_backend *b;
    int rc, stopping = *(int *)arg;
    char name[32];
    double start, took;

    snprintf(name, sizeof name, "rank %d ", stopping);
    self->env.init_timeout = 0.5;
    start = mu_clock_s();
    if (self->rank == stopping)
        raise(SIGSTOP);
    else
        await_stop(self->pids[stopping]);
    rc = host->open(&self->env, &b, &err);
    took = mu_clock_s() - start;
    if (self->rank == stopping) {
        RANKS_CHECK(self, rc < 0, "opened long after the deadline");
        return 0;
    }
    self->results[0]++;
    while (self->results[0] < self->size - 1)
        mu_pause(0.001);
    /* Once: a second one could undo the stop by which a leak checker looks at a rank.
     */
    if (self->rank == (stopping == 0))
        kill(self->pids[stopping], SIGCONT);
    RANKS_CHECK(self, rc < 0 && took < 2 * PATIENCE, "%d after %g s", rc, took);
    RANKS_CHECK(self, err.code == MUSTER_ERENDEZVOUS, "code %d: %s", err.code,
                err.text);
    if (strstr(err.text, name))
        self->results[1]++;
    while (self->results[1] == 0 && mu_clock_s() - start < 5)
        mu_pause(0.001);
    RANKS_CHECK(self, self->results[1] > 0, "no rank names rank %d: %s", stopping,
                err.text);
    return 0;
}

static void row_17_who_waits_for_descriptors_does_not_wait_for_ever(void **state)
{
    for (int tcp = 0; tcp < 2; tcp++)
        for (int who = 0; who < 3; who++) {
            struct ranks_world w = { .n = 3, .force_tcp = tcp };

            if (ranks_run(&w, stops, &who, NULL) != 0)
                fail_msg("%s: rank %d stops", tcp ? "TCP" : "shared memory", who);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strangers_are_dropped_and_the_job_goes_on),
        cmocka_unit_test(a_rank_without_the_token_is_not_let_in),
        cmocka_unit_test(row_17_who_waits_for_descriptors_does_not_wait_for_ever),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
