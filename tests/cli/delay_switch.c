/* SPDX-License-Identifier: BSD-3-Clause */
/* delay_switch.c - a network of made-up nodes whose packets take as long as the pair is
 * far apart
 *
 *   delay_switch GROUPS NEAR-US FAR-US
 *
 * GROUPS has a letter per node: two of one letter are near, others far; '-' is a node
 * that reaches the head only. Node i, from 1, is a network namespace with a TUN device
 * and the address 10.77.0.i; the head, 10.77.0.200, has no delay. Prints a line per
 * namespace (the head last), a path for nsenter --net, and forwards packets until its
 * standard input ends. Exit status 77: no right to make network namespaces here.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define NODES 64
#define HEAD 200 /* last byte of its address */
#define PACKET 2048
#define QUEUE 4096

struct waiting {
    double due; /* s */
    int to;     /* index of the port */
    ssize_t len;
    char bytes[PACKET];
};

static struct {
    const char *group;
    int n; /* nodes; port n is the head */
    int port[NODES + 1], ns[NODES + 1];
    double near, far; /* s, one way */
    int nwaiting;
    struct waiting *queue;
} net;

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int fail(const char *what)
{
    perror(what);
    return -1;
}

static int up(int s, const char *name)
{
    struct ifreq ifr = { .ifr_flags = IFF_UP | IFF_RUNNING };

    snprintf(ifr.ifr_name, sizeof ifr.ifr_name, "%s", name);
    return ioctl(s, SIOCSIFFLAGS, &ifr) < 0 ? fail(name) : 0;
}

/* This process moves into a new namespace, whose device it keeps. */
static int open_port(int i)
{
    struct sockaddr_in address = { .sin_family = AF_INET };
    struct ifreq ifr = { .ifr_flags = IFF_TUN | IFF_NO_PI };
    int s, rc;

    if (unshare(CLONE_NEWNET) < 0)
        return fail("unshare");
    net.ns[i] = open("/proc/self/ns/net", O_RDONLY);
    net.port[i] = open("/dev/net/tun", O_RDWR | O_NONBLOCK);
    s = socket(AF_INET, SOCK_DGRAM, 0);
    snprintf(ifr.ifr_name, sizeof ifr.ifr_name, "tun0");
    if (net.ns[i] < 0 || net.port[i] < 0 || s < 0 ||
        ioctl(net.port[i], TUNSETIFF, &ifr) < 0)
        return fail("/dev/net/tun");
    address.sin_addr.s_addr =
        htonl(0x0a4d0000u | (unsigned)(i == net.n ? HEAD : i + 1));
    memcpy(&ifr.ifr_addr, &address, sizeof address);
    rc = ioctl(s, SIOCSIFADDR, &ifr);
    address.sin_addr.s_addr = htonl(0xffffff00u);
    memcpy(&ifr.ifr_netmask, &address, sizeof address);
    if (rc < 0 || ioctl(s, SIOCSIFNETMASK, &ifr) < 0)
        return fail("an address");
    if (up(s, "lo") < 0 || up(s, "tun0") < 0)
        return -1;
    close(s);
    return 0;
}

/* One way, s; -1: the packet is lost. */
static double delay(int from, int to)
{
    if (from == net.n || to == net.n)
        return 0;
    if (net.group[from] == '-' || net.group[to] == '-')
        return -1;
    return net.group[from] == net.group[to] ? net.near : net.far;
}

static void receive(int from)
{
    struct waiting w;
    int to, last;
    double d;

    while ((w.len = read(net.port[from], w.bytes, sizeof w.bytes)) >= 20) {
        last = (unsigned char)w.bytes[19]; /* of the destination */
        to = last == HEAD ? net.n : last - 1;
        if ((w.bytes[0] >> 4) != 4 || to < 0 || to > net.n || net.nwaiting == QUEUE)
            continue;
        d = delay(from, to);
        if (d < 0)
            continue;
        w.to = to;
        w.due = now() + d;
        net.queue[net.nwaiting++] = w;
    }
}

/* Sends what is due; returns when the next one is, or a second from now. */
static double forward(void)
{
    double t = now(), next = t + 1;

    for (int i = 0; i < net.nwaiting; i++) {
        struct waiting *w = &net.queue[i];

        if (w->due <= t) {
            if (write(net.port[w->to], w->bytes, (size_t)w->len) < 0)
                perror("a packet");
            *w = net.queue[--net.nwaiting];
            i--;
        } else if (w->due < next) {
            next = w->due;
        }
    }
    return next;
}

static int run(void)
{
    struct pollfd fds[NODES + 2];
    struct timespec wait;
    double left;
    char scrap;

    for (;;) {
        left = forward() - now();
        left = left > 0 ? left : 0;
        wait.tv_sec = (time_t)left;
        wait.tv_nsec = (long)((left - (double)wait.tv_sec) * 1e9);
        for (int i = 0; i <= net.n; i++)
            fds[i] = (struct pollfd){ net.port[i], POLLIN, 0 };
        fds[net.n + 1] = (struct pollfd){ 0, POLLIN, 0 };
        if (ppoll(fds, (nfds_t)net.n + 2, &wait, NULL) <= 0)
            continue;
        if (fds[net.n + 1].revents && read(0, &scrap, 1) <= 0)
            return 0;
        for (int i = 0; i <= net.n; i++)
            if (fds[i].revents)
                receive(i);
    }
}

int main(int argc, char **argv)
{
    if (argc != 4 || strlen(argv[1]) > NODES) {
        fprintf(stderr, "usage: delay_switch GROUPS NEAR-US FAR-US\n");
        return 2;
    }
    net.group = argv[1];
    net.n = (int)strlen(argv[1]);
    net.near = atof(argv[2]) * 1e-6 / 2;
    net.far = atof(argv[3]) * 1e-6 / 2;
    net.queue = malloc(QUEUE * sizeof *net.queue);
    if (!net.queue)
        return 1;
    for (int i = 0; i <= net.n; i++)
        if (open_port(i) < 0)
            return 77;
    for (int i = 0; i <= net.n; i++)
        printf("/proc/%d/fd/%d\n", (int)getpid(), net.ns[i]);
    fflush(stdout);
    return run();
}
