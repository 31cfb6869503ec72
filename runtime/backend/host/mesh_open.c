/* SPDX-License-Identifier: BSD-3-Clause */
/* mesh_open.c - connect to every lower rank, take the connection of every higher one
 *
 * The endpoints answer at any time: no rank waits until another one opens its mesh.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/backend/host/domains.h"
#include "runtime/backend/host/mesh.h"
#include "runtime/backend/host/shm.h"

#define INPUT_BYTES ((size_t)2 << 20) /* for inputs that wait to be summed */
#define SMALL_BYTES ((size_t)1 << 20)
#define CHUNK_MAX ((size_t)256 << 10)
#define WINDOW 2
#define DEFAULT_LINK_TIMEOUT 20.0

static int tune(const struct mu_host_backend *b, int fd, struct mu_err *err)
{
    double t = b->env.link_timeout > 0 ? b->env.link_timeout : DEFAULT_LINK_TIMEOUT;
    int idle = t >= 2 ? (int)(t / 2) : 1, gap = t >= 6 ? (int)(t / 6) : 1;
    int one = 1, count = ((int)t - idle) / gap > 1 ? ((int)t - idle) / gap : 1;

    unsigned no_timeout = 0;

    /* TCP_USER_TIMEOUT would also end connections to a peer that is only stopped, once
     * its window is full. mesh.c watches for missing acknowledgements instead.
     */
    if (setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &no_timeout, sizeof no_timeout) <
            0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) < 0 ||
        setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one) < 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle) < 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &gap, sizeof gap) < 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count) < 0)
        return mu_err_set(err, MUSTER_ERENDEZVOUS, "setsockopt: %s", strerror(errno));
    return 0;
}

static int call(struct mu_host_backend *b, const struct mu_host_domains *d, int rank,
                struct mu_err *err)
{
    struct mu_dial dial;

    if (mu_host_call(b, d->deadline, rank, MU_SERVICE_MESH, true, &dial, err) < 0)
        return -1;
    b->mesh->peer[rank].fd = dial.fd;
    return tune(b, dial.fd, err);
}

static bool is_missing(const struct mu_host_backend *b, int rank)
{
    return rank > b->env.rank && rank < b->env.size && b->mesh->peer[rank].fd < 0 &&
           b->mesh->peer[rank].local < 0;
}

static int first_missing(const struct mu_host_backend *b)
{
    for (int r = b->env.rank + 1; r < b->env.size; r++)
        if (is_missing(b, r))
            return r;
    return -1;
}

/* Wait for every higher rank. */
static int accept_all(struct mu_host_backend *b, const struct mu_host_domains *d,
                      struct mu_err *err)
{
    struct mu_arrival a;
    char who[128];
    int missing;

    while ((missing = first_missing(b)) >= 0) {
        if (!mu_host_await_call(b, d->deadline, MU_SERVICE_MESH, &a))
            return mu_err_set(err, MUSTER_ERENDEZVOUS, "%s did not connect within %g s",
                              mu_rank_text(b, missing, who, sizeof who),
                              b->env.init_timeout);
        if (!is_missing(b, a.claim.rank)) {
            mu_endpoint_refuse(b->env.endpoint, &a,
                               "it sent a rank that is not expected");
            continue;
        }
        b->mesh->peer[a.claim.rank].fd = a.fd;
        if (tune(b, a.fd, err) < 0)
            return -1;
    }
    return 0;
}

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
static int open_domain(struct mu_host_backend *b, const struct mu_host_domains *d,
                       struct mu_err *err)
{
    int local = 0;

    for (int r = 0; r < b->env.size; r++)
        local += d->of[r] == d->of[b->env.rank];
    if (local == 1)
        return 0;
    if (mu_shm_open(b, d, err) < 0)
        return -1;
    for (int i = 0; i < b->shm->nlocal; i++)
        if (i != b->shm->me)
            b->mesh->peer[b->shm->rank_of[i]].local = i;
    return 0;
}

int mu_mesh_open(struct mu_host_backend *b, const struct mu_host_domains *domains,
                 const struct mu_mesh_sink *sink, struct mu_err *err)
{
    b->mesh = mesh_new(b);
    if (!b->mesh)
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory");
    b->mesh->sink = sink;
    b->tick = b->mesh->link_timeout / 8;
    if (open_domain(b, domains, err) < 0)
        return -1;
    for (int r = 0; r < b->env.rank; r++)
        if (b->mesh->peer[r].local < 0 && call(b, domains, r, err) < 0)
            return -1;
    if (accept_all(b, domains, err) < 0)
        return -1;
    for (int r = 0; r < b->env.size; r++)
        if (b->mesh->peer[r].fd >= 0 &&
            mu_engine_watch(b, b->mesh->peer[r].fd, r, EPOLLIN | EPOLLRDHUP, err) < 0)
            return -1;
    return 0;
}
