/* SPDX-License-Identifier: BSD-3-Clause */
/* session.c - open and close what connects the ranks: control connections, backend */
#include "runtime/comm/comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/core/text.h"

/* ---- What the control connections and the backend call ---- */

/* What keeps this process away from comm. */
static void add_elsewhere(struct mu_comm *comm, struct mu_flight *out)
{
    struct mu_comm *top = comm->top ? comm->top : comm;

    pthread_mutex_lock(&top->flight_lock);
    if (top->waits.in && top->waits.in != comm) {
        const char *name = top->waits.in->name;

        snprintf(out->elsewhere, sizeof out->elsewhere, "%s in %s%s%s", top->waits.what,
                 name[0] ? "group '" : "the world", name, name[0] ? "'" : "");
        out->elsewhere_for = mu_clock_s() - top->waits.since;
    }
    pthread_mutex_unlock(&top->flight_lock);
}

static void record(void *arg, struct mu_flight *out)
{
    struct mu_comm *comm = arg;

    pthread_mutex_lock(&comm->flight_lock);
    *out = comm->flight;
    pthread_mutex_unlock(&comm->flight_lock);
    add_elsewhere(comm, out);
    out->now = mu_clock_s();
    out->rank = comm->world->rank;
    out->pid = getpid();
}

static int judge(void *arg, const struct mu_flight *const *records,
                 const int *parent_of, int *status, char *text, size_t len)
{
    struct mu_comm *comm = arg;
    struct mu_flight_names names = mu_comm_names(comm, parent_of);

    return mu_flight_verdict(records, comm->world->size, &names, status, text, len);
}

static bool alarmed(void *arg)
{
    const struct mu_comm *comm = arg;

    return !comm->hooks.alarmed || comm->hooks.alarmed(comm->hooks.arg);
}

static void ended(void *arg, const struct mu_ending *e)
{
    struct mu_comm *comm = arg;

    pthread_mutex_lock(&comm->swap_lock);
    if (comm->backend)
        comm->ops->abort(comm->backend, e->status, e->text);
    pthread_mutex_unlock(&comm->swap_lock);
    atomic_store(&comm->ended, true);
    if (comm->hooks.ended)
        comm->hooks.ended(comm->hooks.arg, e);
}

static void extended(void *arg, double seconds)
{
    struct mu_comm *comm = arg;

    pthread_mutex_lock(&comm->swap_lock);
    if (comm->backend && comm->ops->extend)
        comm->ops->extend(comm->backend, seconds);
    pthread_mutex_unlock(&comm->swap_lock);
}

static void backend_failed(void *arg, int rank, int status, const char *why)
{
    struct mu_comm *comm = arg;

    pthread_mutex_lock(&comm->swap_lock);
    if (!comm->control || atomic_load(&comm->closing))
        ; /* too early or too late to report */
    else if (status == MUSTER_ETIMEOUT)
        mu_control_overdue(comm->control);
    else
        mu_control_fail(comm->control, status, rank, why);
    pthread_mutex_unlock(&comm->swap_lock);
}

static void peer_died(void *arg, int rank, enum mu_death death)
{
    struct mu_comm *comm = arg;

    pthread_mutex_lock(&comm->swap_lock);
    if (comm->control && !atomic_load(&comm->closing))
        mu_control_report_death(comm->control, rank, death);
    pthread_mutex_unlock(&comm->swap_lock);
}

/* ---- Open ---- */

int mu_open_control(struct mu_comm *comm, double init_timeout, struct mu_err *err)
{
    struct mu_control *control = NULL;
    struct mu_control_env env = {
        .world = comm->world,
        .init_timeout = init_timeout,
        .timeout = comm->config.timeout,
        .report_immediately = comm->config.return_failure,
        .log = &comm->log,
        .hooks = { comm, record, judge, alarmed, ended, extended },
    };
    int rc;

    if (comm->world->size == 1)
        return 0;
    env.report_immediately |= atomic_load(&comm->armed);
    rc = mu_control_open(&env, &control, err);
    pthread_mutex_lock(&comm->swap_lock);
    comm->control = control;
    pthread_mutex_unlock(&comm->swap_lock);
    return rc;
}

static void forget_gpus(struct mu_comm *comm)
{
    for (int r = 0; comm->gpu_of && comm->gpu_of[r]; r++)
        free(comm->gpu_of[r]);
    free(comm->gpu_of);
    comm->gpu_of = NULL;
}

/* What must be equal on all ranks. */
static int describe_world(const struct mu_comm *comm, struct mu_contract *c,
                          struct mu_err *err)
{
    const struct mu_world *w = comm->world;

    if (mu_contract_add(c, err, "libmuster %s", comm->version) < 0 ||
        mu_contract_add(c, err, "backend %s", comm->ops->name) < 0 ||
        mu_contract_add(c, err, "on_failure %s",
                        comm->config.return_failure ? "return" : "end") < 0 ||
        mu_contract_add(c, err, "elastic %d", comm->config.elastic) < 0 ||
        mu_contract_add(c, err, "grow %s", comm->config.grow[0] ? "yes" : "no") < 0 ||
        mu_contract_add(c, err, "world of %d rank%s on %d node%s", w->size,
                        mu_plural(w->size), w->nnodes, mu_plural(w->nnodes)) < 0)
        return -1;
    for (int r = 0; r < w->size; r++)
        if (mu_contract_add(c, err, "rank %d on node %d", r, w->node_of[r]) < 0)
            return -1;
    return 0;
}

/* Agree on what holds for the whole world; gather the GPU of each rank for messages. */
int mu_agree_on_world(struct mu_comm *comm, struct mu_err *err)
{
    struct mu_contract c = { 0 };
    struct mu_gathered all;
    int rc = -1;

    if (describe_world(comm, &c, err) < 0 ||
        mu_agree(comm, "muster_init", &c, err) < 0 ||
        (!comm->ops->host_memory && mu_agree_on_network(comm, comm->fabric, err) < 0) ||
        mu_gather(comm, "muster_init", comm->gpus, strlen(comm->gpus) + 1, &all, err) <
            0)
        goto out;
    forget_gpus(comm);
    comm->gpu_of = calloc((size_t)comm->world->size + 1, sizeof *comm->gpu_of);
    for (int r = 0; comm->gpu_of && r < comm->world->size; r++)
        comm->gpu_of[r] = strndup(all.at[r], all.len[r]);
    mu_gathered_clear(&all);
    rc = 0;
out:
    mu_contract_clear(&c);
    return rc;
}

static int open_backend(struct mu_comm *comm, struct mu_backend *parent,
                        struct mu_backend **out, struct mu_err *err)
{
    struct mu_world *w = comm->world;
    struct mu_backend_env env = {
        .rank = w->rank,
        .size = w->size,
        .local_rank = w->local_rank,
        .local_size = w->local_size,
        .node = w->node,
        .nnodes = w->nnodes,
        .node_of = w->node_of,
        .host_of = (const char *const *)w->host_of,
        .job = w->job,
        .gpus = comm->gpus,
        .endpoint = w->endpoint,
        .address = w->address,
        .generation = w->generation,
        .force_tcp = comm->config.force_tcp,
        .map_memory = comm->config.map_memory,
        .init_timeout = comm->config.init_timeout,
        .timeout = MU_FOREVER,
        .exchange = w->exchange,
        .log = &comm->log,
        .failed = backend_failed,
        .died = peer_died,
        .failed_arg = comm,
        .parent = parent,
        .elastic = comm->elastic,
        .lost = &comm->ended,
    };

    memcpy(env.token, w->token, sizeof env.token);
    /* libmuster times a wait on the host itself, because it can extend and explain it.
     * Only the backend sees a wait on a GPU.
     */
    if (!comm->ops->host_memory)
        env.timeout = comm->config.timeout;
    return comm->ops->open(&env, out, err);
}

int mu_open_backend(struct mu_comm *comm, struct mu_err *err)
{
    struct mu_world *w = comm->world;
    struct mu_backend *backend;
    struct mu_err why;

    if (comm->top && comm->control)
        w->exchange =
            mu_control_exchange(&comm->exchange, comm->control, "muster_split", w);
    if (open_backend(comm, NULL, &backend, err) < 0)
        return -1;
    pthread_mutex_lock(&comm->swap_lock);
    comm->backend = backend;
    /* A failure before this line had no backend to abort. */
    if (comm->control && mu_control_failed(comm->control, &why))
        comm->ops->abort(backend, why.code, why.text);
    pthread_mutex_unlock(&comm->swap_lock);
    return 0;
}

/* ---- Open again ---- */

/* Threads of the backend and of the control connections use both pointers. */
void mu_comm_disconnect(struct mu_comm *comm, bool together)
{
    struct mu_control *c = comm->control;
    struct mu_err why;

    comm->failed = comm->announced = false;
    pthread_mutex_lock(&comm->flight_lock); /* the ranks were at different places */
    comm->flight.entered = 0;
    memset(comm->flight.ring, 0, sizeof comm->flight.ring);
    pthread_mutex_unlock(&comm->flight_lock);
    mu_endpoint_retire(comm->world->endpoint, comm->world->generation);
    pthread_mutex_lock(&comm->swap_lock);
    comm->control = NULL;
    pthread_mutex_unlock(&comm->swap_lock);
    if (c && (together || mu_control_failed(c, &why)))
        mu_control_close(c, NULL);
    else if (c)
        mu_control_discard(c);
    /* The others do so too. None reports it: their control is NULL. */
    if (together)
        comm->ops->abort(comm->backend, MUSTER_EPEER, "newcomers join the world");
}

int mu_comm_reconnect(struct mu_comm *comm, double init_timeout, struct mu_err *err)
{
    struct mu_backend *old = comm->backend, *now = NULL;
    struct mu_err why;
    int rc;

    atomic_store(&comm->ended, false);
    if (mu_open_control(comm, init_timeout, err) < 0 ||
        mu_agree_on_world(comm, err) < 0 || open_backend(comm, old, &now, err) < 0)
        return -1;
    pthread_mutex_lock(&comm->swap_lock);
    comm->backend = now;
    pthread_mutex_unlock(&comm->swap_lock);
    rc = comm->ops->adopt(now, old, err);
    if (old)
        comm->ops->close(old);
    if (rc == 0 && comm->control && mu_control_failed(comm->control, &why))
        rc = mu_err_set(err, why.code, "%s", why.text);
    if (rc < 0) /* the next attempt starts from the new backend */
        comm->ops->abort(now, MUSTER_EPEER,
                         "a rank died while the survivors connected again");
    return rc;
}

/* ---- Close ---- */

/* A failure in the meantime must not reach a backend that is closed. */
static void close_backend(struct mu_comm *comm)
{
    struct mu_backend *backend = comm->backend;

    if (comm->stage)
        comm->ops->free_private(backend, comm->stage, NULL);
    pthread_mutex_lock(&comm->swap_lock);
    comm->backend = NULL;
    pthread_mutex_unlock(&comm->swap_lock);
    comm->ops->close(backend);
}

int mu_comm_close(struct mu_comm *comm, struct mu_err *err)
{
    atomic_store(&comm->closing, true);
    close_backend(comm);
    return comm->control ? mu_control_close(comm->control, err) : 0;
}
