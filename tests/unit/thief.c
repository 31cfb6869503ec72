/* SPDX-License-Identifier: BSD-3-Clause */
/* thief.c - another user's process that listens where a rank was expected */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/thief.h"

#define NOBODY 65534
#define PROOF 16
#define ANSWER 44 /* bytes of a caller's answer to a nonce */

/* What the callers of all three kinds of connection expect first. */
static const struct {
    uint32_t magic;
    uint8_t nonce[16];
} greeting = { 0x4d755432u, "thief's nonce" };

static void record(struct loot *l, const uint8_t *bytes, size_t n)
{
    if (l->len + n <= sizeof l->bytes) {
        memcpy(l->bytes + l->len, bytes, n);
        l->len += n;
    }
}

static void serve(struct loot *l, int fd)
{
    struct pollfd p = { fd, POLLIN, 0 };
    uint8_t bytes[4096];
    size_t got = 0;
    ssize_t n;

    l->calls++;
    send(fd, &greeting, sizeof greeting, MSG_NOSIGNAL);
    while (poll(&p, 1, 200) > 0 && (n = recv(fd, bytes, sizeof bytes, 0)) > 0) {
        record(l, bytes, (size_t)n);
        got += (size_t)n;
        if (got == ANSWER)
            send(fd, bytes + n - PROOF, PROOF, MSG_NOSIGNAL);
    }
    close(fd);
    l->done++;
}

void thief_begin(struct thief *t, uint32_t port)
{
    struct sockaddr_in6 at = { .sin6_family = AF_INET6,
                               .sin6_port = htons((uint16_t)port) };
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0), off = 0, on = 1;
    socklen_t len = sizeof at;

    t->loot = mmap(NULL, sizeof *t->loot, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(t->loot != MAP_FAILED);
    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(fd, 64), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &len), 0);
    t->port = ntohs(at.sin6_port);
    t->pid = fork();
    assert_true(t->pid >= 0);
    if (t->pid == 0) {
        if (geteuid() == 0 && (setgid(NOBODY) < 0 || setuid(NOBODY) < 0))
            _exit(1);
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* setuid would take it back */
        for (;;)
            serve(t->loot, accept(fd, NULL, NULL));
    }
    close(fd);
}

bool thief_has(const struct thief *t, const uint8_t *secret, size_t len)
{
    for (size_t i = 0; i + 8 <= len; i++)
        if (memmem(t->loot->bytes, t->loot->len, secret + i, 8))
            return true;
    return false;
}

void thief_end(struct thief *t)
{
    kill(t->pid, SIGKILL);
    waitpid(t->pid, NULL, 0);
    munmap(t->loot, sizeof *t->loot);
}
