/* SPDX-License-Identifier: BSD-3-Clause */
/* host.c - the host backend's table of functions */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/backend/host/domains.h"
#include "runtime/backend/host/memory.h"
#include "runtime/base/clock.h"
#include "runtime/base/parse.h"

static void release(struct mu_host_backend *b)
{
    mu_pair_close(b);
    mu_host_arena_close(b);
    mu_engine_close(b);
    for (int r = 0; b->host_of && r < b->env.size; r++)
        free(b->host_of[r]);
    free(b->host_of);
    free(b->node_of);
    free(b);
}

static int copy_world(struct mu_host_backend *b, struct mu_err *err)
{
    size_t n = (size_t)b->env.size;

    b->node_of = calloc(n, sizeof *b->node_of);
    b->host_of = calloc(n, sizeof *b->host_of);
    if (!b->node_of || !b->host_of)
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory");
    for (size_t r = 0; r < n; r++) {
        b->node_of[r] = b->env.node_of ? b->env.node_of[r] : 0;
        b->host_of[r] =
            strdup(b->env.host_of && b->env.host_of[r] ? b->env.host_of[r] : "?");
        if (!b->host_of[r])
            return mu_err_set(err, MUSTER_EMEMORY, "out of memory");
    }
    return 0;
}

static int connect_all(struct mu_host_backend *b, struct mu_err *err)
{
    struct mu_host_domains domains;
    int rc;

    if (mu_host_domains_find(&domains, b, err) < 0)
        return -1;
    b->arena_used = mu_host_arena_used(mu_host_of(b->env.parent));
    b->one_domain = domains.n == 1;
    b->transport = domains.n == 1 ? &mu_transport_shm : &mu_transport_mesh;
    if (domains.n > 1 && domains.n < b->env.size)
        strcpy(b->transport_name, "shared memory + TCP");
    rc = b->transport->connect(b, &domains, err);
    free(domains.of);
    return rc;
}

static void give_up(struct mu_forkable *f)
{
    struct mu_host_backend *b =
        (void *)((char *)f - offsetof(struct mu_host_backend, fork));

    b->in_child = true;
    b->transport->forget(b);
    mu_pair_forget(b);
    close(b->epoll_fd);
    close(b->doorbell_fd);
    close(b->timer_fd);
    b->epoll_fd = b->doorbell_fd = b->timer_fd = -1;
}

static int host_open(const struct mu_backend_env *env, struct mu_backend **out,
                     struct mu_err *err)
{
    struct mu_host_backend *b;

    if (env->size < 1 || env->rank < 0 || env->rank >= env->size)
        return mu_err_set(err, MUSTER_EUSAGE, "rank %d in a world of %d", env->rank,
                          env->size);
    b = calloc(1, sizeof *b);
    if (!b)
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory");
    b->env = *env;
    b->epoll_fd = b->doorbell_fd = b->timer_fd = -1;
    if (mu_engine_open(b, err) < 0 || copy_world(b, err) < 0 ||
        connect_all(b, err) < 0 || mu_host_arena_open(b, err) < 0)
        goto fail;
    b->fork.in_child = give_up;
    mu_fork_enter(&b->fork);
    if (mu_engine_start(b, err) < 0) {
        mu_fork_leave(&b->fork);
        goto fail;
    }
    *out = (struct mu_backend *)b;
    return 0;
fail:
    if (env->endpoint) /* connections of other ranks to this one are refused */
        mu_endpoint_retire(env->endpoint, env->generation);
    if (b->transport)
        b->transport->close(b);
    release(b);
    return -1;
}

static void host_close(struct mu_backend *backend)
{
    struct mu_host_backend *b = mu_host_of(backend);

    if (!b)
        return;
    if (b->in_child) {
        /* The descriptors are closed; only memory remains, and the parent's shared
         * state must not change.
         */
        b->failure.status = MUSTER_EUSAGE;
        b->transport->close(b);
        release(b);
        return;
    }
    mu_pair_stop(b);
    mu_engine_stop(b);
    mu_fork_leave(&b->fork);
    b->transport->close(b);
    release(b);
}

static void host_abort(struct mu_backend *backend, int status, const char *why)
{
    struct mu_host_backend *b = mu_host_of(backend);

    if (!b->in_child)
        mu_engine_abort(b, status, why);
}

static bool host_broken(const struct mu_backend *backend)
{
    const struct mu_host_backend *b = mu_host_of(backend);

    return atomic_load(&b->failed) != 0;
}

static void host_extend(struct mu_backend *backend, double seconds)
{
    struct mu_host_backend *b = mu_host_of(backend);

    if (!b->in_child)
        mu_engine_extend(b, seconds);
}

static const char *host_transport(const struct mu_backend *backend)
{
    const struct mu_host_backend *b = mu_host_of(backend);

    return b->transport_name[0] ? b->transport_name : b->transport->name;
}

static void *host_alloc(struct mu_backend *backend, size_t bytes, struct mu_err *err)
{
    struct mu_host_backend *b = mu_host_of(backend);
    void *p;

    if (b->in_child) {
        mu_err_set(err, MUSTER_EUSAGE, "a forked child cannot use its parent's world");
        return NULL;
    }
    pthread_mutex_lock(&b->lock);
    p = mu_host_arena_alloc(b, bytes, err);
    pthread_mutex_unlock(&b->lock);
    return p;
}

static void host_free(struct mu_backend *backend, void *p)
{
    struct mu_host_backend *b = mu_host_of(backend);

    if (!p || b->in_child)
        return;
    pthread_mutex_lock(&b->lock);
    mu_host_arena_free(b, p);
    pthread_mutex_unlock(&b->lock);
}

static int host_adopt(struct mu_backend *backend, struct mu_backend *from,
                      struct mu_err *err)
{
    struct mu_host_backend *b = mu_host_of(backend);
    int rc;

    if (!from)
        return 0;
    pthread_mutex_lock(&b->lock);
    rc = mu_host_arena_adopt(b, mu_host_of(from), err);
    pthread_mutex_unlock(&b->lock);
    return rc;
}

static int host_start(struct mu_backend *backend, const struct mu_coll *coll,
                      struct mu_request **out, struct mu_err *err)
{
    struct mu_host_backend *b = mu_host_of(backend);
    struct mu_host_request *rq;

    if (b->in_child)
        return mu_err_set(err, MUSTER_EUSAGE,
                          "a forked child cannot use its parent's world");
    rq = mu_host_request_make(b, coll, err);
    if (!rq)
        return -1;
    /* a failure is final: reading it needs no lock */
    if (atomic_load(&b->failed)) {
        mu_host_request_free(rq);
        return mu_err_set(err, b->failure.status, "%s", b->failure.text);
    }
    rq->deadline = mu_clock_tick_ns() + (int64_t)(b->env.timeout * 1e9);
    if (coll->kind != MU_COLL_PAIR) {
        mu_engine_submit(b, rq);
    } else {
        mu_copy(rq->what, sizeof rq->what, coll->what ? coll->what : "a message");
        if (mu_pair_start(b, rq, err) < 0) {
            mu_host_request_free(rq);
            return -1;
        }
    }
    *out = (struct mu_request *)rq;
    return 0;
}

static int host_join(struct mu_backend *backend, struct mu_request *request,
                     void *stream, struct mu_err *err)
{
    struct mu_host_backend *b = mu_host_of(backend);
    struct mu_host_request *rq = (struct mu_host_request *)request;
    int rc = rq->coll.kind == MU_COLL_PAIR ? mu_pair_join(b, rq, err)
                                           : mu_engine_join(b, rq, err);

    /* Done by the caller, so that it cannot write there at the same time. */
    if (rc < 0 && rq->exposed)
        mu_host_arena_detach(b, rq->coll.recv, rq->coll.count * rq->esize);
    mu_host_request_free(rq);
    return rc;
}

static bool host_test(struct mu_backend *backend, const struct mu_request *request)
{
    struct mu_host_backend *b = mu_host_of(backend);
    const struct mu_host_request *rq = (const struct mu_host_request *)request;

    return rq->coll.kind == MU_COLL_PAIR ? mu_pair_test(b, rq) : mu_engine_test(b, rq);
}

static int host_pack(struct mu_backend *b, const struct mu_piece *pieces, int n,
                     enum muster_dtype from, void *bucket, enum muster_dtype to,
                     double scale, void *stream, struct mu_err *err)
{
    for (int i = 0; i < n; i++)
        mu_elements_convert((char *)bucket + pieces[i].offset, to, pieces[i].at, from,
                            scale, pieces[i].count);
    return 0;
}

static int host_unpack(struct mu_backend *b, const struct mu_piece *pieces, int n,
                       enum muster_dtype to, const void *bucket, enum muster_dtype from,
                       double scale, void *stream, struct mu_err *err)
{
    for (int i = 0; i < n; i++)
        mu_elements_convert(pieces[i].at, to, (const char *)bucket + pieces[i].offset,
                            from, scale, pieces[i].count);
    return 0;
}

const struct mu_backend_ops mu_backend_host = {
    .name = "host",
    .host_memory = true,
    .compares = true,
    .open = host_open,
    .close = host_close,
    .abort = host_abort,
    .broken = host_broken,
    .transport = host_transport,
    .device = mu_memory_device,
    .alloc = host_alloc,
    .free = host_free,
    .adopt = host_adopt,
    .start = host_start,
    .join = host_join,
    .test = host_test,
    .drain = mu_memory_drain,
    .pack = host_pack,
    .unpack = host_unpack,
    .copy = mu_memory_copy,
    .zero = mu_memory_zero,
    .squares = mu_memory_squares,
    .int8 = mu_memory_int8,
    .lowrank = mu_memory_lowrank,
    .extend = host_extend,
};
