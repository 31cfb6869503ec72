/* SPDX-License-Identifier: BSD-3-Clause */
/* strangers.c - processes of another user that call and listen where ranks do */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "runtime/endpoint/hello.h"
#include "tests/unit/strangers.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOBODY 65534
#define KNOWN 4096

/* ---- What listens in this namespace --------------------------------------------- */

/* port 0: the name */
struct listener {
    int port;
    char name[80];
};

static bool same(const struct listener *a, const struct listener *b)
{
    return a->port == b->port && strcmp(a->name, b->name) == 0;
}

static int add(struct listener *l, int n, struct listener one)
{
    for (int i = 0; i < n; i++)
        if (same(&l[i], &one))
            return n;
    if (n < KNOWN)
        l[n++] = one;
    return n;
}

static int scan_tcp(const char *file, struct listener *l, int n)
{
    FILE *f = fopen(file, "re");
    char line[512];

    while (f && fgets(line, sizeof line, f)) {
        unsigned port, state;

        if (sscanf(line, "%*d: %*[0-9A-F]:%x %*[0-9A-F]:%*x %x", &port, &state) == 2 &&
            state == 10)
            n = add(l, n, (struct listener){ (int)port, "" });
    }
    if (f)
        fclose(f);
    return n;
}

static int scan_unix(struct listener *l, int n)
{
    FILE *f = fopen("/proc/net/unix", "re");
    char line[512];

    while (f && fgets(line, sizeof line, f)) {
        struct listener one = { 0 };
        char *at = strstr(line, "@muster");

        if (at && strstr(line, " 00010000 ") && sscanf(at + 1, "%79s", one.name) == 1)
            n = add(l, n, one);
    }
    if (f)
        fclose(f);
    return n;
}

static int scan(struct listener *l)
{
    int n = scan_tcp("/proc/net/tcp", l, 0);

    return scan_unix(l, scan_tcp("/proc/net/tcp6", l, n));
}

static socklen_t address_of(const struct listener *l, struct sockaddr_storage *out,
                            bool any)
{
    struct sockaddr_in6 in = { .sin6_family = AF_INET6,
                               .sin6_port = htons((uint16_t)l->port) };
    struct sockaddr_un un = { .sun_family = AF_UNIX };
    socklen_t len = sizeof in;

    if (!any) { /* ::ffff:127.0.0.1 */
        in.sin6_addr.s6_addr[10] = in.sin6_addr.s6_addr[11] = 0xff;
        in.sin6_addr.s6_addr[12] = 127;
        in.sin6_addr.s6_addr[15] = 1;
    }
    memset(out, 0, sizeof *out);
    memcpy(out, &in, sizeof in);
    if (!l->port) {
        memcpy(un.sun_path + 1, l->name, strlen(l->name));
        memcpy(out, &un, sizeof un);
        len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(l->name));
    }
    return len;
}

static int socket_for(const struct listener *l, int flags)
{
    int fd =
        socket(l->port ? AF_INET6 : AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);
    int off = 0, on = 1;

    if (l->port) {
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    }
    return fd;
}

/* -1: refused, or its queue is full. */
static int call(const struct listener *l)
{
    struct sockaddr_storage at;
    socklen_t len = address_of(l, &at, false);
    int fd = socket_for(l, SOCK_NONBLOCK);

    if (fd >= 0 && connect(fd, (struct sockaddr *)&at, len) < 0 &&
        errno != EINPROGRESS) {
        close(fd);
        return -1;
    }
    return fd;
}

/* ---- Callers -------------------------------------------------------------------- */

static pid_t fork_stranger(int netns)
{
    struct rlimit many = { 1 << 20, 1 << 20 };
    pid_t pid = fork();

    if (pid != 0)
        return pid;
    setrlimit(RLIMIT_NOFILE, &many);
    if (netns >= 0 && setns(netns, CLONE_NEWNET) < 0)
        _exit(1);
    if (geteuid() == 0 && (setgid(NOBODY) < 0 || setuid(NOBODY) < 0))
        _exit(1);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* setuid would take it back */
    return 0;
}

int strangers_knock(int each)
{
    _Atomic int *calls = mmap(NULL, sizeof *calls, PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t pid = fork_stranger(-1);
    int total;

    if (pid == 0) {
        static struct listener l[KNOWN];
        int n = scan(l);

        for (int k = 0; k < each; k++)
            for (int i = 0; i < n; i++) {
                int fd = call(&l[i]);

                *calls += fd >= 0;
                if (fd >= 0)
                    close(fd);
            }
        _exit(0);
    }
    waitpid(pid, NULL, 0);
    total = *calls;
    munmap((void *)calls, sizeof *calls);
    return total;
}

/* A complete claim of a service that may have no secret yet. */
static void send_claim(int fd, int service, size_t len)
{
    uint32_t words[MU_HELLO_RESPONSE / 4] = { MU_HELLO_MAGIC, (uint32_t)service };

    send(fd, words, len, MSG_NOSIGNAL);
}

static void send_files(int fd)
{
    char byte = 'f', space[CMSG_SPACE(8 * sizeof(int))] = { 0 };
    struct iovec data = { &byte, 1 };
    struct msghdr message = { .msg_iov = &data,
                              .msg_iovlen = 1,
                              .msg_control = space,
                              .msg_controllen = sizeof space };
    struct cmsghdr *files = CMSG_FIRSTHDR(&message);

    *files = (struct cmsghdr){ CMSG_LEN(8 * sizeof(int)), SOL_SOCKET, SCM_RIGHTS };
    for (int i = 0; i < 8; i++)
        memcpy(CMSG_DATA(files) + (size_t)i * sizeof fd, &fd, sizeof fd);
    sendmsg(fd, &message, MSG_NOSIGNAL);
}

/* What the k-th caller does when it is connected. */
static void misbehave(int fd, int k)
{
    struct linger reset = { 1, 0 };

    switch (k % 5) {
    case 0: /* is silent */
        break;
    case 1:
        send_claim(fd, k / 5 % MU_NSERVICES, MU_HELLO_RESPONSE);
        break;
    case 2:
        send_claim(fd, MU_SERVICE_CONTROL, MU_HELLO_RESPONSE - 1);
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
        close(fd);
        break;
    case 3:
        send_files(fd);
        break;
    default: /* sends a byte now and then */
        break;
    }
}

static void dribble(const int *fd, int n)
{
    for (int i = 0; i < n; i++)
        send(fd[i], "d", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void call_each(struct callers *callers, int each, bool silent)
{
    static struct listener known[KNOWN], now[KNOWN];
    static int dribbles[1 << 14];
    int nknown = 0, ndribbles = 0;

    for (;;) {
        int n = scan(now);

        for (int i = 0; i < n; i++) {
            int before = nknown;

            nknown = add(known, nknown, now[i]);
            for (int k = 0; k < each && nknown > before; k++) {
                int fd = call(&now[i]);

                callers->calls += fd >= 0;
                if (fd < 0 || silent)
                    continue;
                misbehave(fd, k);
                if (k % 5 == 4 && ndribbles < 1 << 14)
                    dribbles[ndribbles++] = fd;
            }
            callers->known = nknown;
        }
        dribble(dribbles, ndribbles);
        usleep(3000);
    }
}

pid_t strangers_begin(int each, bool silent, struct callers *callers)
{
    pid_t pid = fork_stranger(-1);

    if (pid == 0)
        call_each(callers, each, silent);
    return pid;
}

void strangers_end(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

/* ---- Thieves -------------------------------------------------------------------- */

/* What callers of the endpoint expect first. */
static const struct {
    uint32_t magic;
    uint8_t nonce[MU_HELLO_NONCE];
} challenge = { MU_HELLO_MAGIC, "thief's nonce" };

static void watch(int epoll, int fd, bool listens)
{
    struct epoll_event e = { .events = EPOLLIN,
                             .data.u64 = (uint64_t)listens << 32 | (uint32_t)fd };

    epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e);
}

static bool take(int epoll, const struct listener *l)
{
    struct sockaddr_storage at;
    socklen_t len = address_of(l, &at, true);
    int fd = socket_for(l, SOCK_NONBLOCK);

    if (fd < 0 || bind(fd, (struct sockaddr *)&at, len) < 0 || listen(fd, 64) < 0) {
        close(fd);
        return false;
    }
    watch(epoll, fd, true);
    return true;
}

/* Every second caller is greeted as by a rank, the others are not. */
static void accept_caller(struct loot *loot, int epoll, int listener)
{
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    if (fd < 0)
        return;
    if (loot->calls++ % 2 == 0 &&
        send(fd, &challenge, sizeof challenge, MSG_NOSIGNAL) < 0)
        close(fd);
    else
        watch(epoll, fd, false);
}

static void read_caller(struct loot *loot, int fd)
{
    uint8_t bytes[4096];
    ssize_t n = recv(fd, bytes, sizeof bytes, 0);

    if (n <= 0) {
        close(fd);
    } else if (loot->len + (size_t)n <= sizeof loot->bytes) {
        memcpy(loot->bytes + loot->len, bytes, (size_t)n);
        loot->len += (size_t)n;
    }
}

static void steal(struct loot *loot, int epoll, int first, int last)
{
    static struct listener known[KNOWN];
    static bool mine[KNOWN];
    int n = 0;

    for (;;) {
        struct epoll_event e[64];
        int events = epoll_wait(epoll, e, 64, 1);

        for (int i = 0; i < events; i++) {
            int fd = (int)(uint32_t)e[i].data.u64;

            if (e[i].data.u64 >> 32)
                accept_caller(loot, epoll, fd);
            else
                read_caller(loot, fd);
        }
        n = scan_unix(known, scan_tcp("/proc/net/tcp6", known, n));
        for (int i = 0; i < n; i++) {
            if (mine[i] || (known[i].port >= first && known[i].port <= last))
                continue;
            mine[i] = take(epoll, &known[i]);
            loot->taken += mine[i];
        }
    }
}

void thief_begin(struct thief *t, int netns, int first, int last)
{
    int ready[2];
    char byte;

    t->loot = mmap(NULL, sizeof *t->loot, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (t->loot == MAP_FAILED || pipe2(ready, O_CLOEXEC) < 0)
        abort();
    t->pid = fork_stranger(netns);
    if (t->pid == 0) {
        int epoll = epoll_create1(EPOLL_CLOEXEC);

        for (int port = first; port <= last; port++)
            take(epoll, &(struct listener){ port, "" });
        if (write(ready[1], "r", 1) == 1)
            steal(t->loot, epoll, first, last);
        _exit(1);
    }
    if (read(ready[0], &byte, 1) != 1)
        abort();
    close(ready[0]);
    close(ready[1]);
}

bool thief_has(struct thief *t, const uint8_t *secret, size_t len)
{
    size_t n = atomic_exchange(&t->loot->len, 0);

    for (size_t i = 0; i + 8 <= len; i++)
        if (memmem(t->loot->bytes, n, secret + i, 8))
            return true;
    return false;
}

void thief_end(struct thief *t)
{
    strangers_end(t->pid);
    munmap(t->loot, sizeof *t->loot);
}

/* ---- Nodes ---------------------------------------------------------------------- */

static bool sh(const char *fmt, ...)
{
    char command[1024];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(command, sizeof command, fmt, ap);
    va_end(ap);
    return system(command) == 0;
}

bool nodes_leave(void)
{
    return geteuid() == 0 && unshare(CLONE_NEWNET) == 0 && sh("ip link set lo up");
}

static bool set_up(struct nodes *n, int k)
{
    int pid = (int)n->holder[k];

    return sh(
        "nsenter -t %d -n sh -c '"
        "ip link set lo up; "
        "ip link add docker0 type bridge && ip addr add 172.17.0.1/16 dev docker0 "
        "&& ip link set docker0 up; "
        "ip addr add 198.18.79.%d/24 dev mun%d && ip link set mun%d up && "
        "echo %d %d > /proc/sys/net/ipv4/ip_local_port_range'",
        pid, k + 1, k, k, NODES_PORT * (k + 1), NODES_PORT * (k + 1) + NODES_PORTS - 1);
}

bool nodes_open(struct nodes *n)
{
    char name[64];

    if (geteuid() != 0)
        return false;
    for (int k = 0; k < 2; k++) {
        int ready[2];
        char byte = 'n';

        if (pipe(ready) < 0)
            return false;
        n->holder[k] = fork();
        if (n->holder[k] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (unshare(CLONE_NEWNET) == 0)
                byte = 'y';
            if (write(ready[1], &byte, 1) == 1)
                for (;;)
                    pause();
            _exit(1);
        }
        if (read(ready[0], &byte, 1) != 1 || byte != 'y')
            return false;
        close(ready[0]);
        close(ready[1]);
        snprintf(name, sizeof name, "/proc/%d/ns/net", (int)n->holder[k]);
        n->netns[k] = open(name, O_RDONLY | O_CLOEXEC);
    }
    return sh("ip link add mun0 netns %d type veth peer name mun1 netns %d 2>/dev/null",
              (int)n->holder[0], (int)n->holder[1]) &&
           set_up(n, 0) && set_up(n, 1);
}

void nodes_close(struct nodes *n)
{
    for (int k = 0; k < 2; k++) {
        strangers_end(n->holder[k]);
        close(n->netns[k]);
    }
}
