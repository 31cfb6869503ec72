/* SPDX-License-Identifier: BSD-3-Clause */
/* shm_open.c - distribute the segment and the doorbells. The leader, the domain's
 * lowest rank, creates the memfd. Every other rank connects to it, sends its doorbell
 * and receives the segment, all doorbells and all process ids.
 */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/backend/host/cores.h"
#include "runtime/backend/host/domains.h"
#include "runtime/backend/host/fds.h"
#include "runtime/backend/host/shm.h"

#define FDS_PER_MESSAGE (MU_FDS_MOST - 1) /* the segment goes with the first ones */

/* From each other rank to the leader, with its doorbell. */
struct join {
    uint64_t arena; /* mu_host_arena_used of the previous backend */
};

/* From the leader: one message per FDS_PER_MESSAGE doorbells. The first message also
 * carries the segment's descriptor, before the doorbells.
 */
struct welcome {
    int32_t first, n; /* doorbells of local ranks first .. first + n - 1 */
    int32_t pid[FDS_PER_MESSAGE];
    uint64_t arena; /* the largest of all ranks */
};

struct opening {
    struct mu_host_backend *b;
    struct mu_shm *shm;
    double deadline;
    int *socket; /* by local rank, -1 none */
    int *pid;
};

static int local_of(const struct mu_shm *shm, int rank)
{
    for (int i = 0; i < shm->nlocal; i++)
        if (shm->rank_of[i] == rank)
            return i;
    return -1;
}

/* Read what a rank that connected sends. */
static int admit(struct opening *o, const struct mu_arrival *a, struct mu_err *err)
{
    int doorbell = -1, nfds = 0, local = local_of(o->shm, a->claim.rank);
    struct join join;
    char who[128];

    if (local <= 0 || o->socket[local] >= 0) {
        mu_endpoint_refuse(o->b->env.endpoint, a,
                           "its rank is not expected in this shared memory");
        return 0;
    }
    o->socket[local] = a->fd;
    o->pid[local] = a->pid;
    if (mu_host_await_readable(o->b, a->fd, o->deadline) < 0 ||
        mu_fds_recv(a->fd, &join, sizeof join, &doorbell, 1, &nfds) != sizeof join ||
        nfds != 1) {
        if (nfds)
            close(doorbell);
        return mu_err_set(err, MUSTER_ERENDEZVOUS,
                          "%s connected to the shared segment, and left",
                          mu_rank_text(o->b, a->claim.rank, who, sizeof who));
    }
    if (join.arena > o->b->arena_used)
        o->b->arena_used = join.arena;
    o->shm->doorbell[local] = doorbell;
    return 0;
}

static int missing(const struct opening *o)
{
    for (int i = 1; i < o->shm->nlocal; i++)
        if (o->socket[i] < 0)
            return i;
    return 0;
}

/* Every other rank of the domain connects. */
static int admit_all(struct opening *o, struct mu_err *err)
{
    struct mu_arrival a;
    char who[128];

    while (missing(o)) {
        if (!mu_host_await_call(o->b, o->deadline, MU_SERVICE_SHM, &a))
            return mu_err_set(
                err, MUSTER_ERENDEZVOUS,
                "%s did not connect to the shared segment within %g s",
                mu_rank_text(o->b, o->shm->rank_of[missing(o)], who, sizeof who),
                o->b->env.init_timeout);
        if (admit(o, &a, err) < 0)
            return -1;
    }
    return 0;
}

static int welcome_all(struct opening *o, struct mu_err *err)
{
    struct mu_shm *shm = o->shm;

    o->pid[0] = (int)getpid();
    for (int local = 1; local < shm->nlocal; local++) {
        for (int first = 0; first < shm->nlocal; first += FDS_PER_MESSAGE) {
            struct welcome w = { .first = first, .arena = o->b->arena_used };
            int fds[FDS_PER_MESSAGE + 1], nfds = 0;
            char who[128];

            if (first == 0)
                fds[nfds++] = shm->fd;
            for (; w.n < FDS_PER_MESSAGE && first + w.n < shm->nlocal; w.n++) {
                w.pid[w.n] = o->pid[first + w.n];
                fds[nfds++] = shm->doorbell[first + w.n];
            }
            if (mu_fds_send(o->socket[local], &w, sizeof w, fds, nfds) < 0)
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

static int lead(struct opening *o, struct mu_err *err)
{
    if (make_segment(o->shm, err) < 0 || admit_all(o, err) < 0)
        return -1;
    return welcome_all(o, err);
}

static int call_leader(struct opening *o, struct mu_err *err)
{
    const struct join join = { o->b->arena_used };
    int leader = o->shm->rank_of[0];
    struct mu_dial dial;
    char who[128];

    if (mu_host_call(o->b, o->deadline, leader, MU_SERVICE_SHM, false, &dial, err) < 0)
        return -1;
    o->socket[0] = dial.fd;
    if (mu_fds_send(dial.fd, &join, sizeof join, &o->shm->doorbell[o->shm->me], 1) < 0)
        return mu_err_set(err, MUSTER_ERENDEZVOUS, "cannot send the doorbell to %s: %s",
                          mu_rank_text(o->b, leader, who, sizeof who), strerror(errno));
    return 0;
}

static int follow(struct opening *o, struct mu_err *err)
{
    struct mu_shm *shm = o->shm;
    int got = 0;

    if (call_leader(o, err) < 0)
        return -1;
    while (got < shm->nlocal) {
        struct welcome w;
        int fds[FDS_PER_MESSAGE + 1], nfds = 0, k = 0;
        char who[128];

        mu_rank_text(o->b, shm->rank_of[0], who, sizeof who);
        if (mu_host_await_readable(o->b, o->socket[0], o->deadline) < 0)
            return mu_err_set(err, MUSTER_ERENDEZVOUS,
                              "%s did not send the shared segment within %g s", who,
                              o->b->env.init_timeout);
        if (mu_fds_recv(o->socket[0], &w, sizeof w, fds, FDS_PER_MESSAGE + 1, &nfds) !=
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
        o->b->arena_used = w.arena;
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
        int rank = shm->rank_of[i];

        if (i == shm->me)
            continue;
        shm->watch[i] = (int)syscall(SYS_pidfd_open, o->pid[i], 0);
        if (shm->watch[i] < 0 && errno == ESRCH)
            return mu_death_err(
                MU_DEATH_ENDED,
                &(struct mu_rank_name){ rank, o->b->host_of[rank], o->pid[i] }, err);
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
    struct mu_shm_mailbox *mailbox;
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
    mailbox = mu_shm_mailbox_of(shm, shm->me);
    mu_cores_own(&mailbox->cores[MU_AT_OPEN]);
    atomic_store(&mailbox->opened, true);
    return 0;
}

static struct mu_shm *shm_new(const struct mu_host_backend *b,
                              const struct mu_host_domains *d)
{
    struct mu_shm *shm = calloc(1, sizeof *shm);
    size_t n;

    if (!shm)
        return NULL;
    for (int r = 0; r < b->env.size; r++)
        shm->nlocal += d->of[r] == d->of[b->env.rank];
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
        if (d->of[r] != d->of[b->env.rank])
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

int mu_shm_open(struct mu_host_backend *b, const struct mu_host_domains *domains,
                struct mu_err *err)
{
    struct opening o = { .b = b, .deadline = domains->deadline };
    int rc = -1;

    b->shm = o.shm = shm_new(b, domains);
    if (!o.shm)
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory");
    o.socket = malloc((size_t)o.shm->nlocal * sizeof(int));
    o.pid = calloc((size_t)o.shm->nlocal, sizeof(int));
    for (int i = 0; o.socket && i < o.shm->nlocal; i++)
        o.socket[i] = -1;
    if (!o.socket || !o.pid) {
        mu_err_set(err, MUSTER_EMEMORY, "out of memory");
        goto out;
    }
    rc = o.shm->me == 0 ? lead(&o, err) : follow(&o, err);
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
