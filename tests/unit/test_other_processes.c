/* SPDX-License-Identifier: BSD-3-Clause */
/* test_other_processes.c - processes beside the ranks: forked children, and those of
 * another user that connect
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <setjmp.h>
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
#include "runtime/endpoint/hello.h"
#include "tests/unit/forked.h"

static int sockets(void)
{
    DIR *dir = opendir("/proc/self/fd");
    struct dirent *e;
    char to[64];
    int n = 0;

    while ((e = readdir(dir))) {
        ssize_t len = readlinkat(dirfd(dir), e->d_name, to, sizeof to - 1);

        n += len > 7 && strncmp(to, "socket:", 7) == 0;
    }
    closedir(dir);
    return n;
}

static int child_body(struct muster *m, int rank, void *arg)
{
    int status, before = *(int *)arg;
    float x = 1;

    for (int i = 0; i < 2; i++) {
        pid_t pid = fork();

        if (pid == 0)
            _exit(sockets() - before);
        waitpid(pid, &status, 0);
        RANK_CHECK(status == 0);
        RANK_CHECK(sockets() > before);
        x = 1;
        RANK_OK(muster_allreduce(m, &x, 1, MUSTER_F32, MUSTER_SUM, NULL));
        RANK_CHECK(x == (float)muster_size(m));
        RANK_OK(muster_barrier(m));
    }
    return muster_finalize(m);
}

/* A data loader's worker that outlives its parent must not hide its death: where GPUs
 * work the control connections alone tell of it.
 */
static void a_forked_child_holds_no_connection(void **state)
{
    int before = sockets();

    for (int elastic = 0; elastic < 2; elastic++)
        for (int nodes = 1; nodes <= 4; nodes += 3)
            forked_well(
                "forked children",
                (struct forked_world){ .size = 4, .nodes = nodes, .elastic = elastic },
                child_body, &before);
}

static int call_tcp(uint32_t port)
{
    struct sockaddr_in at = { .sin_family = AF_INET,
                              .sin_port = htons((uint16_t)port) };
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return connect(fd, (struct sockaddr *)&at, sizeof at) < 0 ? -1 : fd;
}

static int call_local(const struct mu_address *to)
{
    struct sockaddr_un at;
    socklen_t len = mu_address_local(to, &at);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    return connect(fd, (struct sockaddr *)&at, len) < 0 ? -1 : fd;
}

/* What a stranger reads before the connection ends: the challenge, or what is left of
 * it when it is reset.
 */
static bool only_a_nonce_is_sent(int fd)
{
    char bytes[64];
    ssize_t n;
    size_t got = 0;

    while ((n = recv(fd, bytes, sizeof bytes, 0)) > 0)
        got += (size_t)n;
    return got <= MU_HELLO_CHALLENGE;
}

/* Another user's process says nonsense, nothing at all, and half a hello. */
static void be_a_stranger(const struct mu_address *at)
{
    const struct mu_claim claim = { MU_SERVICE_CONTROL, 0, 2 };
    const uint8_t guess[MU_TOKEN_LEN] = { 0 };
    struct mu_address to = *at;
    struct mu_dial almost;
    char nonsense[4096];
    int fd;

    if (geteuid() == 0 && (setgid(65534) < 0 || setuid(65534) < 0))
        _exit(1);
    memset(nonsense, 'x', sizeof nonsense);
    fd = call_tcp(at->port);
    if (fd < 0 || send(fd, nonsense, sizeof nonsense, MSG_NOSIGNAL) < 0)
        _exit(2);
    if (!only_a_nonce_is_sent(fd))
        _exit(3);
    fd = call_tcp(at->port);
    if (fd < 0 || send(fd, nonsense, 10, MSG_NOSIGNAL) < 0)
        _exit(4);
    close(fd);
    /* All is right but the token. */
    to.hosts[0] = '\0';
    mu_dial_start(&almost, &to, &to, true, &claim, guess);
    mu_dial_wait(&almost, mu_clock_s() + 10);
    if (almost.answer != MU_ANSWER_DROPPED || !almost.hello.answered)
        _exit(7);
    fd = call_local(at);
    if (fd < 0)
        _exit(5);
    send(fd, nonsense, sizeof nonsense, MSG_NOSIGNAL);
    if (recv(fd, nonsense, 1, 0) > 0)
        _exit(6);
    _exit(0);
}

static int stranger_body(struct muster *m, int rank, void *arg)
{
    float value = (float)rank;
    int raw = 0;

    if (rank == 1) {
        pid_t pid = fork();

        if (pid == 0)
            be_a_stranger(&m->comm.world->address[0]);
        waitpid(pid, &raw, 0);
        RANK_CHECK(WIFEXITED(raw) && WEXITSTATUS(raw) == 0);
    }
    RANK_OK(muster_allreduce(m, &value, 1, MUSTER_F32, MUSTER_SUM, NULL));
    RANK_CHECK(value == 6);
    return muster_finalize(m);
}

static void
another_users_connection_is_logged_and_dropped_and_the_job_goes_on(void **state)
{
    struct forked_world w = { .size = 4, .nodes = 2 };
    struct forked_result r;
    const char *first;

    forked_run(&w, stranger_body, NULL, 30, &r);
    for (int k = 0; k < w.size; k++)
        if (r.status[k] != 0)
            fail_msg("rank %d: %d\n%s", k, r.status[k], r.text);
    first = strstr(r.text, "127.0.0.1 dropped: its proof of this job's token is wrong");
    assert_non_null(first);
    assert_non_null(strstr(strstr(first, "token"),
                           "dropped: its proof of this job's token is wrong"));
    assert_non_null(strstr(r.text, "it closed before it proved the job's token"));
    if (geteuid() == 0)
        assert_non_null(strstr(r.text, "user id 65534"));
    if (geteuid() == 0)
        assert_non_null(strstr(r.text, "dropped: it belongs to another user"));
    forked_clear(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_forked_child_holds_no_connection),
        cmocka_unit_test(
            another_users_connection_is_logged_and_dropped_and_the_job_goes_on),
    };

    return cmocka_run_group_tests_name("other_processes", tests, NULL, NULL);
}
