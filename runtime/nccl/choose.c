/* SPDX-License-Identifier: BSD-3-Clause */
/* choose.c - the limits of a communicator's ranks: from the file of their machine, or
 * measured now and written there
 */
#include "runtime/nccl/choose.h"

#include "config.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/nccl/nccl_abi.h"
#include "runtime/nccl/real.h"
#include "runtime/nccl/times.h"
#include "runtime/nccl/times_file.h"

#define GPU 160
#define MACHINE 2048

/* ---- The machine ----------------------------------------------------------------- */

/* Collective: one of these of each rank, by rank. */
static int collect(const struct mu_choose *c, const char *key, const void *mine,
                   size_t len, void *all, struct mu_err *err)
{
    const struct mu_exchange *x = &c->exchange;

    if (x->publish(x->arg, key, mine, len, err) < 0 ||
        x->fence(x->arg, c->timeout, err) < 0)
        return -1;
    for (int r = 0; r < c->size; r++) {
        void *value = NULL;
        size_t got = 0;

        if (x->fetch(x->arg, r, key, &value, &got, c->timeout, err) < 0)
            return -1;
        if (got == len)
            memcpy((char *)all + (size_t)r * len, value, len);
        free(value);
        if (got != len)
            return mu_err_set(err, EPROTO, "rank %d has sent %zu bytes of %s", r, got,
                              key);
    }
    return 0;
}

static int nccl_release(void)
{
    mu_nccl_result (*get)(int *);
    int release = 0;

    *(void **)(void *)&get = mu_real("ncclGetVersion");
    if (get)
        get(&release);
    return release;
}

/* Collective: the lines that a file of times begins with. */
static int machine_text(const struct mu_choose *c, char *text, size_t len,
                        struct mu_err *err)
{
    char mine[GPU] = "", (*all)[GPU] = calloc((size_t)c->size, GPU), host[256] = "";
    int release = nccl_release(), rc = -1, at;

    if (!all)
        return mu_err_set(err, ENOMEM, "no memory for the names of GPUs");
    if (c->serve->describe(c->backend, mine, sizeof mine, err) < 0 ||
        collect(c, "nccl.gpu", mine, sizeof mine, all, err) < 0)
        goto out;
    gethostname(host, sizeof host - 1);
    at = snprintf(text, len, "# muster %s, NCCL %d.%d.%d, node %s\n", PACKAGE_VERSION,
                  release / 10000, release / 100 % 100, release % 100, host);
    for (int r = 0; r < c->size && at >= 0 && (size_t)at < len; r++)
        at += snprintf(text + at, len - (size_t)at, "# rank %d: %.*s\n", r, GPU - 1,
                       all[r]);
    rc = at >= 0 && (size_t)at < len
             ? 0
             : mu_err_set(err, E2BIG, "the names of GPUs are too long");
out:
    free(all);
    return rc;
}

/* ---- The measurement ------------------------------------------------------------- */

/* NCCL's own functions: a look-up takes as long as a launch. */
struct nccl {
    void *comm;
    mu_nccl_result (*allreduce)(const void *, void *, size_t, int, int, void *, void *);
    mu_nccl_result (*reduce_scatter)(const void *, void *, size_t, int, int, void *,
                                     void *);
    mu_nccl_result (*allgather)(const void *, void *, size_t, int, void *, void *);
    mu_nccl_result (*broadcast)(const void *, void *, size_t, int, int, void *, void *);
};

static bool nccl_find(struct nccl *n, void *comm)
{
    n->comm = comm;
    *(void **)(void *)&n->allreduce = mu_real("ncclAllReduce");
    *(void **)(void *)&n->reduce_scatter = mu_real("ncclReduceScatter");
    *(void **)(void *)&n->allgather = mu_real("ncclAllGather");
    *(void **)(void *)&n->broadcast = mu_real("ncclBroadcast");
    return n->allreduce && n->reduce_scatter && n->allgather && n->broadcast;
}

static int by_nccl(void *arg, const struct mu_coll *c)
{
    const struct nccl *n = arg;

    switch (c->kind) {
    case MU_COLL_ALLREDUCE:
        return n->allreduce(c->send, c->recv, c->count, MU_NCCL_FLOAT32, MU_NCCL_SUM,
                            n->comm, c->stream);
    case MU_COLL_REDUCE_SCATTER:
        return n->reduce_scatter(c->send, c->recv, c->count, MU_NCCL_FLOAT32,
                                 MU_NCCL_SUM, n->comm, c->stream);
    case MU_COLL_ALLGATHER:
        return n->allgather(c->send, c->recv, c->count, MU_NCCL_INT8, n->comm,
                            c->stream);
    default:
        return n->broadcast(c->send, c->recv, c->count, MU_NCCL_INT8, c->root, n->comm,
                            c->stream);
    }
}

/* Into times; none where it fails on this rank. */
static void measure_here(const struct mu_choose *c, struct mu_times *times)
{
    struct mu_err why = { 0 };
    struct nccl nccl;
    int rc;

    mu_times_plan(times);
    rc = nccl_find(&nccl, c->comm)
             ? c->serve->measure(c->backend, times->row, times->n, by_nccl, &nccl, &why)
             : mu_err_set(&why, ENOENT, "NCCL lacks one of its functions");
    if (rc == 0)
        return;
    times->n = 0;
    mu_log(c->log, MU_LOG_WARN, "nccl: nothing was measured: %s", why.text);
}

/* Collective: the slowest rank's times. *done is false on all ranks if one failed. */
static int measure(const struct mu_choose *c, struct mu_times *times, bool *done,
                   struct mu_err *err)
{
    struct mu_times *all = calloc((size_t)c->size, sizeof *all);
    double from = mu_clock_s();
    int rc;

    if (!all)
        return mu_err_set(err, ENOMEM, "no memory for the ranks' times");
    measure_here(c, times);
    rc = collect(c, "nccl.times", times, sizeof *times, all, err);
    *done = true;
    for (int r = 0; r < c->size && rc == 0; r++) {
        *done = *done && all[r].n > 0;
        if (*done && r != c->rank)
            mu_times_slowest(times, &all[r]);
    }
    if (rc == 0 && *done && c->rank == 0)
        mu_log(c->log, MU_LOG_INFO, "nccl: measured against NCCL in %.2f s",
               mu_clock_s() - from);
    free(all);
    return rc;
}

/* ---- The choice ------------------------------------------------------------------ */

/* Collective: rank 0's file. *times is empty where it has none. */
static int from_file(const struct mu_choose *c, const char *path, const char *machine,
                     struct mu_times *times, struct mu_err *err)
{
    const struct mu_exchange *x = &c->exchange;
    char *text = c->rank == 0 && *path ? mu_times_load(path, machine, c->log) : NULL;
    void *shared = NULL;
    size_t len = 0;
    int rc = -1;

    times->n = 0;
    if ((c->rank == 0 && x->publish(x->arg, "nccl.file", text ? text : "",
                                    text ? strlen(text) + 1 : 1, err) < 0) ||
        x->fence(x->arg, c->timeout, err) < 0 ||
        x->fetch(x->arg, 0, "nccl.file", &shared, &len, c->timeout, err) < 0)
        goto out;
    rc = len <= 1 ? 0 : mu_times_parse(times, shared, machine, "rank 0's times", err);
out:
    free(shared);
    free(text);
    return rc;
}

int mu_choose(const struct mu_choose *c, struct mu_limits *out, struct mu_err *err)
{
    char machine[MACHINE], path[MU_TIMES_PATH] = "";
    struct mu_err why = { 0 };
    struct mu_times times;
    bool done = true;

    if (machine_text(c, machine, sizeof machine, err) < 0)
        return -1;
    if (c->rank == 0 && mu_times_path(machine, path, sizeof path, &why) < 0)
        mu_log(c->log, MU_LOG_INFO, "nccl: the times are not kept: %s", why.text);
    if (from_file(c, path, machine, &times, err) < 0)
        return -1;
    if (times.n == 0) {
        if (measure(c, &times, &done, err) < 0)
            return -1;
        if (done && *path && mu_times_complete(&times))
            mu_times_store(path, machine, &times, c->log);
    }
    if (done) {
        mu_times_limits(&times, out);
        return 0;
    }
    if (mu_limits_known(c->size, out))
        return 0;
    return mu_err_set(err, ENOTSUP, "%d ranks cannot be measured here", c->size);
}
