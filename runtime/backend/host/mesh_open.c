/* SPDX-License-Identifier: BSD-3-Clause */
/* mesh_open.c - connect to every lower rank, accept every higher one, prove the token
 *
 * Rank r first connects to ranks 0 .. r-1, then accepts the others: a rank waits only
 * for lower ranks, so there is no deadlock. The acceptor sends its nonce, the caller
 * sends its proof, then the acceptor sends its own. All other data follows that.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/backend/host/rendezvous.h"
#include "runtime/backend/host/mesh.h"
#include "runtime/backend/host/shm.h"
#include "runtime/base/clock.h"
#include "runtime/base/parse.h"
#include "runtime/base/proof.h"
#include "runtime/base/random.h"

#define MAGIC 0x4d75737465723101ull /* also detects a different byte order */
#define CALL_NS 5000000000LL
#define INPUT_BYTES ((size_t)2 << 20) /* for inputs that wait to be summed */
#define SMALL_BYTES ((size_t)1 << 20)
#define CHUNK_MAX ((size_t)256 << 10)
#define WINDOW 2
#define DEFAULT_LINK_TIMEOUT 20.0

struct greeting { /* sent by the acceptor */
    uint64_t magic;
    uint8_t nonce[MU_PROOF_NONCE];
};

struct answer { /* sent by the caller */
    uint64_t magic;
    int32_t from, to;
    uint8_t nonce[MU_PROOF_NONCE], proof[MU_PROOF_LEN];
};

/* An accepted connection that is not authenticated yet. */
struct pending {
    int fd;
    int64_t until;
    uint8_t nonce[MU_PROOF_NONCE];
    struct answer answer;
    size_t got;
};

static int poll_until(const struct mu_host_backend *b, int fd, short events,
                      int64_t deadline)
{
    struct pollfd p = { .fd = fd, .events = events };

    return mu_host_open_poll(b, &p, 1, deadline) > 0 ? 0 : -1;
}

static int read_all(const struct mu_host_backend *b, int fd, void *data, size_t len,
                    int64_t deadline)
{
    char *p = data;

    while (len > 0) {
        ssize_t n = recv(fd, p, len, MSG_DONTWAIT);

        if (n > 0) {
            p += n;
            len -= (size_t)n;
        } else if (n == 0 || (errno != EAGAIN && errno != EINTR) ||
                   poll_until(b, fd, POLLIN, deadline) < 0) {
            return -1;
        }
    }
    return 0;
}

static int tune(const struct mu_host_backend *b, int fd, struct mu_err *err)
{
    double t = b->env.link_timeout > 0 ? b->env.link_timeout : DEFAULT_LINK_TIMEOUT;
    int idle = t >= 2 ? (int)(t / 2) : 1, gap = t >= 6 ? (int)(t / 6) : 1;
    int one = 1, count = ((int)t - idle) / gap > 1 ? ((int)t - idle) / gap : 1;

    /* TCP_USER_TIMEOUT would also end connections to a peer that is only stopped, once
     * its window is full. mesh.c watches for missing acknowledgements instead.
     */
    if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) < 0 ||
        setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one) < 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle) < 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &gap, sizeof gap) < 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count) < 0)
        return mu_err_set(err, MUSTER_ERENDEZVOUS, "setsockopt: %s", strerror(errno));
    return 0;
}

/* ---- Connecting to lower ranks ---- */

static int dial(const struct mu_host_backend *b, const char *host, int port,
                int64_t deadline)
{
    struct sockaddr_in v4 = { .sin_family = AF_INET,
                              .sin_port = htons((uint16_t)port) };
    struct sockaddr_in6 v6 = { .sin6_family = AF_INET6,
                               .sin6_port = htons((uint16_t)port) };
    bool is6 = inet_pton(AF_INET6, host, &v6.sin6_addr) == 1;
    int64_t limit = mu_clock_ns() + CALL_NS;
    int fd, failed = 0;
    socklen_t len = sizeof failed;

    if (!is6 && inet_pton(AF_INET, host, &v4.sin_addr) != 1) {
        errno = EINVAL;
        return -1;
    }
    fd =
        socket(is6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    if (connect(fd, is6 ? (struct sockaddr *)&v6 : (struct sockaddr *)&v4,
                is6 ? sizeof v6 : sizeof v4) == 0)
        return fd;
    if (errno == EINPROGRESS) {
        if (poll_until(b, fd, POLLOUT, limit < deadline ? limit : deadline) < 0)
            failed = ETIMEDOUT;
        else
            getsockopt(fd, SOL_SOCKET, SO_ERROR, &failed, &len);
        if (!failed)
            return fd;
        errno = failed;
    }
    failed = errno;
    close(fd);
    errno = failed;
    return -1;
}

/* Skip addresses of another machine that are also ours (all machines have the same
 * bridge addresses). Use loopback inside one machine.
 */
static bool is_candidate(const struct mu_host_backend *b,
                         const struct mu_host_rendezvous *m, int rank, const char *host)
{
    const struct mu_host_address *own = &m->address[b->env.rank];
    char list[sizeof own->hosts], *rest = list, *item;

    if (mu_host_rendezvous_same_host(m, rank, b->env.rank))
        return true;
    mu_copy(list, sizeof list, own->hosts);
    while ((item = mu_parse_next(&rest, ',')))
        if (strcmp(item, host) == 0)
            return false;
    return strncmp(host, "127.", 4) != 0;
}

static int dial_any(const struct mu_host_backend *b, const struct mu_host_rendezvous *m,
                    int rank, struct mu_err *err)
{
    const struct mu_host_address *a = &m->address[rank];
    bool here = mu_host_rendezvous_same_host(m, rank, b->env.rank);
    char list[sizeof a->hosts + 16], *rest = list, *host, who[128];
    int fd = -1, why = ENETUNREACH;

    strcpy(list, here ? "127.0.0.1," : "");
    strcat(list, a->hosts);
    while (fd < 0 && (host = mu_parse_next(&rest, ','))) {
        if (!is_candidate(b, m, rank, host))
            continue;
        fd = dial(b, host, a->port, m->deadline);
        if (fd < 0)
            why = errno;
    }
    if (fd < 0)
        mu_err_set(err, MUSTER_ERENDEZVOUS, "cannot connect to %s at %s port %d: %s",
                   mu_rank_text(b, rank, who, sizeof who), a->hosts, a->port,
                   strerror(why));
    return fd;
}

static int call(struct mu_host_backend *b, const struct mu_host_rendezvous *m, int rank,
                struct mu_err *err)
{
    struct greeting hello;
    struct answer answer = { MAGIC, b->env.rank, rank, { 0 }, { 0 } };
    uint8_t proof[MU_PROOF_LEN], expected[MU_PROOF_LEN];
    char who[128];
    int fd = dial_any(b, m, rank, err);

    if (fd < 0)
        return -1;
    mu_rank_text(b, rank, who, sizeof who);
    if (tune(b, fd, err) < 0)
        goto fail;
    if (read_all(b, fd, &hello, sizeof hello, m->deadline) < 0) {
        mu_err_set(err, MUSTER_ERENDEZVOUS,
                   "%s accepted but sent no handshake within %g s", who,
                   b->env.init_timeout);
        goto fail;
    }
    if (hello.magic != MAGIC || mu_random(answer.nonce, sizeof answer.nonce) < 0) {
        mu_err_set(
            err, MUSTER_ECONTRACT,
            "%s uses another protocol; does it run another version of libmuster?", who);
        goto fail;
    }
    mu_proof_make(b->env.token, hello.nonce, answer.nonce, 'C', b->env.rank, rank,
                  answer.proof);
    mu_proof_make(b->env.token, answer.nonce, hello.nonce, 'S', rank, b->env.rank,
                  expected);
    if (send(fd, &answer, sizeof answer, MSG_NOSIGNAL) != sizeof answer ||
        read_all(b, fd, proof, sizeof proof, m->deadline) < 0 ||
        !mu_proof_equal(proof, expected)) {
        mu_err_set(err, MUSTER_ERENDEZVOUS,
                   "%s refused this rank, or has no valid job token", who);
        goto fail;
    }
    b->mesh->peer[rank].fd = fd;
    return 0;
fail:
    close(fd);
    return -1;
}

/* ---- Accepting higher ranks ---- */

static void reject(const struct mu_host_backend *b, const struct pending *p,
                   const char *why)
{
    mu_log(b->env.log, MU_LOG_WARN, "foreign connection dropped: %s", why);
    close(p->fd);
}

/* Read more of a caller's answer. Returns true when the connection needs no more. */
static bool read_answer(struct mu_host_backend *b, struct pending *p)
{
    ssize_t n = recv(p->fd, (char *)&p->answer + p->got, sizeof p->answer - p->got,
                     MSG_DONTWAIT);
    uint8_t proof[MU_PROOF_LEN];
    int from;

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (n <= 0) {
        reject(b, p, "it closed before it sent its rank");
        return true;
    }
    p->got += (size_t)n;
    if (p->got < sizeof p->answer)
        return false;
    from = p->answer.from;
    mu_proof_make(b->env.token, p->nonce, p->answer.nonce, 'C', from, b->env.rank,
                  proof);
    if (p->answer.magic != MAGIC || p->answer.to != b->env.rank ||
        !mu_proof_equal(proof, p->answer.proof)) {
        reject(b, p, "its proof of the job token is wrong");
        return true;
    }
    if (from <= b->env.rank || from >= b->env.size || b->mesh->peer[from].fd >= 0 ||
        b->mesh->peer[from].local >= 0) {
        reject(b, p, "it sent a rank that is not expected");
        return true;
    }
    mu_proof_make(b->env.token, p->answer.nonce, p->nonce, 'S', b->env.rank, from,
                  proof);
    if (tune(b, p->fd, NULL) < 0 ||
        send(p->fd, proof, sizeof proof, MSG_NOSIGNAL) != sizeof proof)
        reject(b, p, "it closed before the reply");
    else
        b->mesh->peer[from].fd = p->fd;
    return true;
}

static int first_missing(const struct mu_host_backend *b)
{
    for (int r = b->env.rank + 1; r < b->env.size; r++)
        if (b->mesh->peer[r].fd < 0 && b->mesh->peer[r].local < 0)
            return r;
    return -1;
}

static bool greet(const struct mu_host_backend *b, int listen_fd, struct pending *p)
{
    struct greeting hello = { .magic = MAGIC };

    *p = (struct pending){ .until = mu_clock_ns() + CALL_NS };
    p->fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (p->fd < 0)
        return false;
    if (mu_random(p->nonce, sizeof p->nonce) == 0) {
        memcpy(hello.nonce, p->nonce, sizeof hello.nonce);
        if (send(p->fd, &hello, sizeof hello, MSG_NOSIGNAL) == sizeof hello)
            return true;
    }
    close(p->fd);
    return false;
}

#define MAX_PENDING 64
#define TURN_NS 200000000LL

/* Wait for every higher rank. A silent connection does not delay the others. */
static int accept_all(struct mu_host_backend *b, const struct mu_host_rendezvous *m,
                      struct mu_err *err)
{
    struct pending pending[MAX_PENDING];
    int n = 0, rc = 0, missing;

    while ((missing = first_missing(b)) >= 0) {
        struct pollfd fds[MAX_PENDING + 1];
        int64_t now = mu_clock_ns();
        char who[128];

        if (mu_host_open_is_over(b, m->deadline)) {
            rc = mu_err_set(err, MUSTER_ERENDEZVOUS, "%s did not connect within %g s",
                            mu_rank_text(b, missing, who, sizeof who),
                            b->env.init_timeout);
            break;
        }
        for (int i = 0; i < n; i++)
            fds[i] = (struct pollfd){ .fd = pending[i].fd, .events = POLLIN };
        fds[n] =
            (struct pollfd){ .fd = n < MAX_PENDING ? m->tcp_fd : -1, .events = POLLIN };
        mu_host_open_poll(b, fds, n + 1, now + TURN_NS);
        now = mu_clock_ns();
        for (int i = n - 1; i >= 0; i--) {
            if (fds[i].revents ? !read_answer(b, &pending[i]) : now < pending[i].until)
                continue;
            if (!fds[i].revents)
                reject(b, &pending[i], "it sent no rank in time");
            pending[i] = pending[n - 1];
            fds[i] = fds[n - 1];
            /* Keep the listening socket's entry behind the last one. */
            fds[n - 1] = fds[n];
            n--;
        }
        if ((fds[n].revents & POLLIN) && greet(b, m->tcp_fd, &pending[n]))
            n++;
    }
    while (n > 0)
        close(pending[--n].fd);
    return rc;
}

/* ---- */

static struct mu_mesh *mesh_new(const struct mu_host_backend *b)
{
    struct mu_mesh *mesh = calloc(1, sizeof *mesh);
    size_t n = (size_t)b->env.size, share;

    if (!mesh)
        return NULL;
    mesh->peer = calloc(n, sizeof *mesh->peer);
    for (size_t r = 0; mesh->peer && r < n; r++)
        mesh->peer[r].fd = mesh->peer[r].local = -1;
    share = SMALL_BYTES / MU_MESH_DEPTH / n / 64 * 64;
    mesh->small = share > 8192 ? 8192 : share < 64 ? 64 : share;
    share = INPUT_BYTES / (n - 1) / WINDOW / 64 * 64;
    mesh->chunk = share > CHUNK_MAX ? CHUNK_MAX : share < 1024 ? 1024 : share;
    mesh->window = WINDOW;
    mesh->input = malloc(mesh->window * (n - 1) * mesh->chunk);
    mesh->src = calloc(n, sizeof *mesh->src);
    mesh->link_timeout = (int64_t)((b->env.link_timeout > 0 ? b->env.link_timeout
                                                            : DEFAULT_LINK_TIMEOUT) *
                                   1e9);
    if (!mesh->peer || !mesh->input || !mesh->src) {
        mu_mesh_free(mesh, mesh->peer ? b->env.size : 0);
        return NULL;
    }
    for (size_t r = 0; r < n; r++) {
        mesh->peer[r].buf = malloc(MU_MESH_READ);
        mesh->peer[r].small = malloc(MU_MESH_DEPTH * mesh->small);
        if (!mesh->peer[r].buf || !mesh->peer[r].small) {
            mu_mesh_free(mesh, b->env.size);
            return NULL;
        }
    }
    return mesh;
}

void mu_mesh_free(struct mu_mesh *mesh, int size)
{
    if (!mesh)
        return;
    for (int r = 0; r < size; r++) {
        free(mesh->peer[r].queue);
        free(mesh->peer[r].buf);
        free(mesh->peer[r].small);
    }
    free(mesh->peer);
    free(mesh->input);
    free(mesh->src);
    free(mesh);
}

/* Open shared memory with the ranks of our domain, if any. */
static int open_domain(struct mu_host_backend *b, struct mu_host_rendezvous *m,
                       struct mu_err *err)
{
    int local = 0;

    for (int r = 0; r < b->env.size; r++)
        local += m->domain_of[r] == m->domain_of[b->env.rank];
    if (local == 1)
        return 0;
    if (mu_shm_open(b, m, err) < 0)
        return -1;
    for (int i = 0; i < b->shm->nlocal; i++)
        if (i != b->shm->me)
            b->mesh->peer[b->shm->rank_of[i]].local = i;
    return 0;
}

int mu_mesh_open(struct mu_host_backend *b, struct mu_host_rendezvous *rendezvous,
                 const struct mu_mesh_sink *sink, struct mu_err *err)
{
    b->mesh = mesh_new(b);
    if (!b->mesh)
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory");
    b->mesh->sink = sink;
    b->tick = b->mesh->link_timeout / 8;
    if (open_domain(b, rendezvous, err) < 0)
        return -1;
    for (int r = 0; r < b->env.rank; r++)
        if (b->mesh->peer[r].local < 0 && call(b, rendezvous, r, err) < 0)
            return -1;
    if (accept_all(b, rendezvous, err) < 0)
        return -1;
    for (int r = 0; r < b->env.size; r++)
        if (b->mesh->peer[r].fd >= 0 &&
            mu_engine_watch(b, b->mesh->peer[r].fd, r, EPOLLIN | EPOLLRDHUP, err) < 0)
            return -1;
    return 0;
}
