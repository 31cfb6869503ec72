/* SPDX-License-Identifier: BSD-3-Clause */
/* shm_open.c - distribute the segment and the doorbells. The leader, the domain's
 * lowest rank, creates the memfd. Every other rank connects to it, proves its rank,
 * sends its doorbell and receives the segment, all doorbells and all process ids.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "runtime/backend/host/rendezvous.h"
#include "runtime/backend/host/shm.h"
#include "runtime/base/clock.h"
#include "runtime/base/proof.h"

#define HELLO "muster shm 1"
#define FDS_PER_MESSAGE 128 /* the kernel takes up to 253 */
#define HELLO_NS 5000000000LL
#define TURN_NS 200000000LL

struct hello {
    char magic[16];
    int32_t rank, pad;
    uint8_t token[MU_TOKEN_LEN];
};

/* From the leader: one message per FDS_PER_MESSAGE doorbells. The first message also
 * carries the segment's descriptor, before the doorbells.
 */
struct welcome {
    int32_t first, n; /* doorbells of local ranks first .. first + n - 1 */
    int32_t pid[FDS_PER_MESSAGE];
};

/* A connection to the leader whose rank is not known yet. */
struct caller {
    int fd;
    pid_t pid;
    int64_t until;
};

struct opening {
    struct mu_host_backend *b;
    struct mu_shm *shm;
    int64_t deadline;
    int *socket; /* by local rank, -1 none */
    int *pid;
};

static int send_fds(int to, const void *data, size_t len, const int *fds, int nfds)
{
    char control[CMSG_SPACE((FDS_PER_MESSAGE + 1) * sizeof(int))] = { 0 };
    struct iovec iov = { (void *)(uintptr_t)data, len };
    struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control };
    struct cmsghdr *cmsg;

    msg.msg_controllen = CMSG_SPACE((size_t)nfds * sizeof(int));
    cmsg = CMSG_FIRSTHDR(&msg);
    cmsg->cmsg_level = SOL_SOCKET;
    cmsg->cmsg_type = SCM_RIGHTS;
    cmsg->cmsg_len = CMSG_LEN((size_t)nfds * sizeof(int));
    memcpy(CMSG_DATA(cmsg), fds, (size_t)nfds * sizeof(int));
    return sendmsg(to, &msg, MSG_NOSIGNAL) == (ssize_t)len ? 0 : -1;
}

/* Returns the bytes received, like recvmsg; up to max descriptors into fds. */
static ssize_t recv_fds(int from, void *data, size_t len, int *fds, int max, int *nfds)
{
    char control[CMSG_SPACE((FDS_PER_MESSAGE + 1) * sizeof(int))];
    struct iovec iov = { data, len };
    struct msghdr msg = { .msg_iov = &iov,
                          .msg_iovlen = 1,
                          .msg_control = control,
                          .msg_controllen = sizeof control };
    ssize_t n = recvmsg(from, &msg, MSG_CMSG_CLOEXEC);

    *nfds = 0;
    if (n < 0)
        return n;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c)) {
        int got = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));

        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        for (int i = 0; i < got; i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(c) + (size_t)i * sizeof fd, sizeof fd);
            if (*nfds < max)
                fds[(*nfds)++] = fd;
            else
                close(fd);
        }
    }
    return n;
}

static int wait_readable(const struct mu_host_backend *b, int fd, int64_t deadline)
{
    struct pollfd p = { .fd = fd, .events = POLLIN };

    return mu_host_open_poll(b, &p, 1, deadline) > 0 ? 0 : -1;
}

/* Reject processes of other users. */
static bool same_user(const struct mu_host_backend *b, int fd, pid_t *pid)
{
    struct ucred cred;
    socklen_t len = sizeof cred;

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0)
        return false;
    *pid = cred.pid;
    if (cred.uid == geteuid())
        return true;
    mu_log(b->env.log, MU_LOG_WARN,
           "foreign local connection dropped: process %d of user %u", (int)cred.pid,
           (unsigned)cred.uid);
    return false;
}

static int local_of(const struct mu_shm *shm, int rank)
{
    for (int i = 0; i < shm->nlocal; i++)
        if (shm->rank_of[i] == rank)
            return i;
    return -1;
}

/* Check a caller's hello. Keeps the connection or closes it. */
static void admit(struct opening *o, const struct caller *caller)
{
    struct hello hello;
    int doorbell = -1, nfds, local = -1;
    ssize_t n = recv_fds(caller->fd, &hello, sizeof hello, &doorbell, 1, &nfds);

    if (n == sizeof hello && nfds == 1 &&
        memcmp(hello.magic, HELLO, sizeof HELLO) == 0 &&
        mu_secret_equal(hello.token, o->b->env.token))
        local = local_of(o->shm, hello.rank);
    if (local <= 0 || o->socket[local] >= 0) {
        mu_log(o->b->env.log, MU_LOG_WARN,
               "foreign local connection dropped: process %d is not of this job",
               (int)caller->pid);
        if (nfds)
            close(doorbell);
        close(caller->fd);
        return;
    }
    o->socket[local] = caller->fd;
    o->pid[local] = caller->pid;
    o->shm->doorbell[local] = doorbell;
}

static int missing(const struct opening *o)
{
    for (int i = 1; i < o->shm->nlocal; i++)
        if (o->socket[i] < 0)
            return i;
    return 0;
}

#define MAX_CALLERS 64

/* Accept until every local rank has connected. A silent caller does not delay the
 * others.
 */
static int admit_all(struct opening *o, int listen_fd, struct mu_err *err)
{
    struct caller callers[MAX_CALLERS];
    int n = 0, rc = 0;

    while (missing(o)) {
        struct pollfd fds[MAX_CALLERS + 1];
        int64_t now = mu_clock_ns();
        char who[128];

        if (mu_host_open_is_over(o->b, o->deadline)) {
            rc = mu_err_set(
                err, MUSTER_ERENDEZVOUS,
                "%s did not connect to the shared segment within %g s",
                mu_rank_text(o->b, o->shm->rank_of[missing(o)], who, sizeof who),
                o->b->env.init_timeout);
            break;
        }
        for (int i = 0; i < n; i++)
            fds[i] = (struct pollfd){ .fd = callers[i].fd, .events = POLLIN };
        fds[n] =
            (struct pollfd){ .fd = n < MAX_CALLERS ? listen_fd : -1, .events = POLLIN };
        mu_host_open_poll(o->b, fds, n + 1, now + TURN_NS);
        now = mu_clock_ns();
        if (fds[n].revents & POLLIN) {
            struct caller c = { .fd = accept4(listen_fd, NULL, NULL,
                                              SOCK_CLOEXEC | SOCK_NONBLOCK),
                                .until = now + HELLO_NS };

            fds[n].revents = 0;
            if (c.fd >= 0 && same_user(o->b, c.fd, &c.pid))
                callers[n++] = c;
            else if (c.fd >= 0)
                close(c.fd);
        }
        for (int i = n - 1; i >= 0; i--) {
            if (fds[i].revents)
                admit(o, &callers[i]);
            else if (now >= callers[i].until)
                close(callers[i].fd);
            else
                continue;
            /* The last caller, already checked, moves into this place. */
            callers[i] = callers[--n];
        }
    }
    while (n > 0)
        close(callers[--n].fd);
    return rc;
}

static int welcome_all(struct opening *o, struct mu_err *err)
{
    struct mu_shm *shm = o->shm;

    o->pid[0] = (int)getpid();
    for (int local = 1; local < shm->nlocal; local++) {
        for (int first = 0; first < shm->nlocal; first += FDS_PER_MESSAGE) {
            struct welcome w = { .first = first };
            int fds[FDS_PER_MESSAGE + 1], nfds = 0;
            char who[128];

            if (first == 0)
                fds[nfds++] = shm->fd;
            for (; w.n < FDS_PER_MESSAGE && first + w.n < shm->nlocal; w.n++) {
                w.pid[w.n] = o->pid[first + w.n];
                fds[nfds++] = shm->doorbell[first + w.n];
            }
            if (send_fds(o->socket[local], &w, sizeof w, fds, nfds) < 0)
                return mu_err_set(
                    err, MUSTER_ERENDEZVOUS,
                    "%s closed its connection before the shared segment was sent: %s",
                    mu_rank_text(o->b, shm->rank_of[local], who, sizeof who),
                    strerror(errno));
        }
    }
    return 0;
}

static int make_segment(struct mu_shm *shm, struct mu_err *err)
{
    shm->fd = memfd_create("muster", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (shm->fd < 0)
        return mu_err_set(err, MUSTER_EMEMORY, "memfd_create: %s", strerror(errno));
    /* The seals keep a peer from shortening the file, which would raise SIGBUS here. */
    if (fchmod(shm->fd, 0600) < 0 || ftruncate(shm->fd, (off_t)shm->len) < 0 ||
        fcntl(shm->fd, F_ADD_SEALS, F_SEAL_SHRINK) < 0)
        return mu_err_set(err, MUSTER_EMEMORY,
                          "cannot make a shared segment of %zu bytes: %s", shm->len,
                          strerror(errno));
    return 0;
}

static int lead(struct opening *o, struct mu_host_rendezvous *rendezvous,
                struct mu_err *err)
{
    if (make_segment(o->shm, err) < 0 || admit_all(o, rendezvous->unix_fd, err) < 0)
        return -1;
    return welcome_all(o, err);
}

static int call_leader(struct opening *o, const struct mu_host_address *leader,
                       struct mu_err *err)
{
    struct sockaddr_un name = { .sun_family = AF_UNIX };
    struct hello hello = { HELLO, o->b->env.rank, 0, { 0 } };
    char who[128];
    pid_t pid;

    mu_rank_text(o->b, o->shm->rank_of[0], who, sizeof who);
    memcpy(name.sun_path + 1, leader->local, strlen(leader->local));
    o->socket[0] = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (o->socket[0] < 0 || connect(o->socket[0], (struct sockaddr *)&name,
                                    (socklen_t)(offsetof(struct sockaddr_un, sun_path) +
                                                1 + strlen(leader->local))) < 0)
        return mu_err_set(err, MUSTER_ERENDEZVOUS,
                          "cannot connect to %s on this node: %s", who,
                          strerror(errno));
    if (!same_user(o->b, o->socket[0], &pid))
        return mu_err_set(err, MUSTER_ERENDEZVOUS,
                          "the local socket of %s belongs to another user", who);
    memcpy(hello.token, o->b->env.token, sizeof hello.token);
    if (send_fds(o->socket[0], &hello, sizeof hello, &o->shm->doorbell[o->shm->me], 1) <
        0)
        return mu_err_set(err, MUSTER_ERENDEZVOUS,
                          "cannot send the handshake to %s: %s", who, strerror(errno));
    return 0;
}

static int follow(struct opening *o, struct mu_host_rendezvous *rendezvous,
                  struct mu_err *err)
{
    struct mu_shm *shm = o->shm;
    int got = 0;

    if (call_leader(o, &rendezvous->address[shm->rank_of[0]], err) < 0)
        return -1;
    while (got < shm->nlocal) {
        struct welcome w;
        int fds[FDS_PER_MESSAGE + 1], nfds = 0, k = 0;
        char who[128];

        mu_rank_text(o->b, shm->rank_of[0], who, sizeof who);
        if (wait_readable(o->b, o->socket[0], o->deadline) < 0)
            return mu_err_set(err, MUSTER_ERENDEZVOUS,
                              "%s did not send the shared segment within %g s", who,
                              o->b->env.init_timeout);
        if (recv_fds(o->socket[0], &w, sizeof w, fds, FDS_PER_MESSAGE + 1, &nfds) !=
                sizeof w ||
            w.first != got || w.n < 1 || w.n > FDS_PER_MESSAGE ||
            w.n > shm->nlocal - got || nfds != w.n + (got == 0)) {
            while (nfds > 0)
                close(fds[--nfds]);
            return mu_err_set(
                err, MUSTER_ERENDEZVOUS,
                "%s ended, or refused this rank, before the shared segment "
                "was sent",
                who);
        }
        if (got == 0)
            shm->fd = fds[k++];
        for (int i = 0; i < w.n; i++, got++, k++) {
            o->pid[got] = w.pid[i];
            if (got == shm->me)
                close(fds[k]);
            else
                shm->doorbell[got] = fds[k];
        }
    }
    return 0;
}

/* A pidfd reports the end of the process, whether or not it has children. Where the
 * kernel has none (before 5.3, or under a seccomp filter), the sockets replace them:
 * the leader detects every end; the others detect the leader's end or receive its
 * abort.
 */
static int watch_peers(struct opening *o, struct mu_err *err)
{
    struct mu_shm *shm = o->shm;

    for (int i = 0; i < shm->nlocal; i++) {
        char who[128];

        if (i == shm->me)
            continue;
        shm->watch[i] = (int)syscall(SYS_pidfd_open, o->pid[i], 0);
        if (shm->watch[i] < 0 && errno == ESRCH)
            return mu_err_set(err, MUSTER_EPEER, "%s has ended already",
                              mu_rank_text(o->b, shm->rank_of[i], who, sizeof who));
        if (shm->watch[i] < 0) {
            shm->watch[i] = o->socket[i];
            o->socket[i] = -1;
        }
        if (shm->watch[i] >= 0 &&
            mu_engine_watch(o->b, shm->watch[i], MU_INDEX_LOCAL + i, EPOLLIN, err) < 0)
            return -1;
    }
    return 0;
}

static int map_segment(struct mu_shm *shm, struct mu_err *err)
{
    void *base;
    off_t own = (off_t)mu_shm_slot_offset(shm, shm->me, 0);

    /* Reserve the slots' pages now: a shortage later would raise SIGBUS. */
    if (fallocate(shm->fd, 0, own, (off_t)MU_SHM_NSLOTS * MU_SHM_SLOT) < 0)
        return mu_err_set(err, MUSTER_EMEMORY,
                          "cannot reserve %d bytes of shared memory: %s",
                          MU_SHM_NSLOTS * MU_SHM_SLOT, strerror(errno));
    base = mmap(NULL, shm->len, PROT_READ | PROT_WRITE, MAP_SHARED, shm->fd, 0);
    if (base == MAP_FAILED)
        return mu_err_set(err, MUSTER_EMEMORY, "cannot map the shared segment: %s",
                          strerror(errno));
    shm->base = base;
    return 0;
}

static struct mu_shm *shm_new(const struct mu_host_backend *b,
                              const struct mu_host_rendezvous *m)
{
    struct mu_shm *shm = calloc(1, sizeof *shm);
    size_t n;

    if (!shm)
        return NULL;
    for (int r = 0; r < b->env.size; r++)
        shm->nlocal += m->domain_of[r] == m->domain_of[b->env.rank];
    n = (size_t)shm->nlocal;
    shm->fd = -1;
    shm->rank_of = calloc(n, sizeof(int));
    shm->doorbell = calloc(n, sizeof(int));
    shm->watch = calloc(n, sizeof(int));
    shm->src = calloc(n, sizeof *shm->src);
    shm->dst = calloc(n + 1, sizeof *shm->dst);
    shm->len = mu_shm_length(shm->nlocal);
    if (!shm->rank_of || !shm->doorbell || !shm->watch || !shm->src || !shm->dst) {
        mu_shm_free(shm);
        return NULL;
    }
    for (int r = 0, i = 0; r < b->env.size; r++) {
        if (m->domain_of[r] != m->domain_of[b->env.rank])
            continue;
        if (r == b->env.rank)
            shm->me = i;
        shm->doorbell[i] = r == b->env.rank ? b->doorbell_fd : -1;
        shm->watch[i] = -1;
        shm->rank_of[i++] = r;
    }
    return shm;
}

void mu_shm_free(struct mu_shm *shm)
{
    if (!shm)
        return;
    if (shm->base)
        munmap(shm->base, shm->len);
    free(shm->rank_of);
    free(shm->doorbell);
    free(shm->watch);
    free(shm->src);
    free(shm->dst);
    free(shm);
}

int mu_shm_open(struct mu_host_backend *b, struct mu_host_rendezvous *rendezvous,
                struct mu_err *err)
{
    struct opening o = { .b = b, .deadline = rendezvous->deadline };
    int rc = -1;

    b->shm = o.shm = shm_new(b, rendezvous);
    if (!o.shm)
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory");
    o.socket = malloc((size_t)o.shm->nlocal * sizeof(int));
    o.pid = calloc((size_t)o.shm->nlocal, sizeof(int));
    if (!o.socket || !o.pid) {
        mu_err_set(err, MUSTER_EMEMORY, "out of memory");
        goto out;
    }
    for (int i = 0; i < o.shm->nlocal; i++)
        o.socket[i] = -1;
    rc = o.shm->me == 0 ? lead(&o, rendezvous, err) : follow(&o, rendezvous, err);
    if (rc == 0)
        rc = map_segment(o.shm, err);
    if (rc == 0)
        rc = watch_peers(&o, err);
out:
    for (int i = 0; o.socket && i < o.shm->nlocal; i++)
        if (o.socket[i] >= 0)
            close(o.socket[i]);
    free(o.socket);
    free(o.pid);
    return rc;
}
