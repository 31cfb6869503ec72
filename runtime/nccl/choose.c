/* SPDX-License-Identifier: BSD-3-Clause */
/* choose.c - the limits of a communicator's ranks: from the file of their machine, or
 * measured now and written there
 */
#include "runtime/nccl/choose.h"

#include "config.h"
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/fresh.h"
#include "runtime/base/text.h"
#include "runtime/nccl/nccl_abi.h"
#include "runtime/nccl/real.h"
#include "runtime/nccl/times.h"

#define FILE_MOST ((size_t)1 << 16) /* bytes */
#define PATH 1024
#define GPU 160
#define MACHINE 2048
#define VARIABLE "MUSTER_NCCL_TIMES"

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

/* ---- The file -------------------------------------------------------------------- */

/* FNV-1a: names of files need no more. */
static uint32_t hash_of(const char *text)
{
    uint32_t h = 2166136261u;

    for (; *text; text++)
        h = (h ^ (unsigned char)*text) * 16777619u;
    return h;
}

static int folder_make(const char *path, struct mu_err *err)
{
    if (mkdir(path, 0700) == 0 || errno == EEXIST)
        return 0;
    return mu_err_set(err, errno, "%s: the folder cannot be made: %s", path,
                      strerror(errno));
}

/* MUSTER_NCCL_TIMES, else a file of this machine in the user's cache. */
static int path_of(const char *machine, char *path, struct mu_err *err)
{
    const char *named = getenv(VARIABLE), *cache = getenv("XDG_CACHE_HOME"),
               *home = getenv("HOME");
    char folder[PATH - 64];
    int n;

    if (named && *named) {
        n = snprintf(path, PATH, "%s", named);
        return n < PATH ? 0 : mu_err_set(err, ENAMETOOLONG, VARIABLE " is too long");
    }
    if (cache && *cache == '/')
        n = snprintf(folder, sizeof folder, "%s", cache);
    else if (home && *home == '/')
        n = snprintf(folder, sizeof folder, "%s/.cache", home);
    else
        return mu_err_set(err, ENOENT, "neither " VARIABLE " nor HOME is set");
    if (n < 0 || n >= (int)sizeof folder - 8)
        return mu_err_set(err, ENAMETOOLONG, "the path of the cache is too long");
    if (folder_make(folder, err) < 0)
        return -1;
    strcat(folder, "/muster");
    if (folder_make(folder, err) < 0)
        return -1;
    snprintf(path, PATH, "%s/nccl-times-%08x", folder, hash_of(machine));
    return 0;
}

/* NULL: there is none, or not for this machine; a wrong one is reported. */
static char *load(const struct mu_choose *c, const char *path, const char *machine)
{
    struct mu_err err = { 0 };
    struct mu_times times;
    char *text = access(path, F_OK) == 0 ? mu_text_read(path, FILE_MOST, &err) : NULL;

    if (text && mu_times_parse(&times, text, machine, path, &err) == 0)
        return text;
    if (err.text[0])
        mu_log(c->log, err.code == EXDEV ? MU_LOG_INFO : MU_LOG_WARN,
               "nccl: %s: the times are measured again", err.text);
    free(text);
    return NULL;
}

static int write_whole(const char *path, const char *text)
{
    int fd = mu_fresh_open(path);
    size_t len = strlen(text);
    ssize_t n = 0;

    if (fd < 0)
        return -1;
    while (len > 0 && (n = write(fd, text, len)) > 0) {
        text += n;
        len -= (size_t)n;
    }
    return close(fd) == 0 && n >= 0 ? 0 : -1;
}

/* At once: other jobs of the node may read it. */
static void store(const struct mu_choose *c, const char *path, const char *text)
{
    char fresh[PATH + 32];

    snprintf(fresh, sizeof fresh, "%s.%d", path, (int)getpid());
    if (write_whole(fresh, text) == 0 && rename(fresh, path) == 0) {
        mu_log(c->log, MU_LOG_INFO, "nccl: the times are kept in %s", path);
        return;
    }
    mu_log(c->log, MU_LOG_INFO, "nccl: %s: the times cannot be kept: %s", path,
           strerror(errno));
    unlink(fresh);
}

/* ---- The measurement ------------------------------------------------------------- */

static int by_nccl(void *arg, const struct mu_coll *c)
{
    mu_nccl_result (*sum)(const void *, void *, size_t, int, int, void *, void *);
    mu_nccl_result (*move)(const void *, void *, size_t, int, void *, void *);
    mu_nccl_result (*from)(const void *, void *, size_t, int, int, void *, void *);

    switch (c->kind) {
    case MU_COLL_ALLREDUCE:
    case MU_COLL_REDUCE_SCATTER:
        *(void **)(void *)&sum = mu_real(
            c->kind == MU_COLL_ALLREDUCE ? "ncclAllReduce" : "ncclReduceScatter");
        return sum ? sum(c->send, c->recv, c->count, MU_NCCL_FLOAT32, MU_NCCL_SUM, arg,
                         c->stream)
                   : -1;
    case MU_COLL_ALLGATHER:
        *(void **)(void *)&move = mu_real("ncclAllGather");
        return move ? move(c->send, c->recv, c->count, MU_NCCL_INT8, arg, c->stream)
                    : -1;
    default:
        *(void **)(void *)&from = mu_real("ncclBroadcast");
        return from ? from(c->send, c->recv, c->count, MU_NCCL_INT8, c->root, arg,
                           c->stream)
                    : -1;
    }
}

/* Collective: the slowest rank's times. *done is false on all ranks if one failed. */
static int measure(const struct mu_choose *c, struct mu_times *times, bool *done,
                   struct mu_err *err)
{
    struct mu_times *all = calloc((size_t)c->size, sizeof *all);
    struct mu_err why = { 0 };
    double from = mu_clock_s();
    int rc;

    if (!all)
        return mu_err_set(err, ENOMEM, "no memory for the ranks' times");
    mu_times_plan(times);
    if (c->serve->measure(c->backend, times->row, times->n, by_nccl, c->comm, &why) < 0)
        times->n = 0;
    rc = collect(c, "nccl.times", times, sizeof *times, all, err);
    *done = true;
    for (int r = 0; r < c->size && rc == 0; r++) {
        *done = *done && all[r].n > 0;
        if (*done && r != c->rank)
            mu_times_slowest(times, &all[r]);
    }
    if (why.text[0])
        mu_log(c->log, MU_LOG_WARN, "nccl: nothing was measured: %s", why.text);
    else if (rc == 0 && *done && c->rank == 0)
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
    char *text = c->rank == 0 && *path ? load(c, path, machine) : NULL;
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

static void keep(const struct mu_choose *c, const char *path, const char *machine,
                 const struct mu_times *times)
{
    char *text = mu_times_text(times, machine);

    if (text)
        store(c, path, text);
    free(text);
}

int mu_choose(const struct mu_choose *c, struct mu_limits *out, struct mu_err *err)
{
    char machine[MACHINE], path[PATH] = "";
    struct mu_err why = { 0 };
    struct mu_times times;
    bool done = true;

    if (machine_text(c, machine, sizeof machine, err) < 0)
        return -1;
    if (c->rank == 0 && path_of(machine, path, &why) < 0)
        mu_log(c->log, MU_LOG_INFO, "nccl: the times are not kept: %s", why.text);
    if (from_file(c, path, machine, &times, err) < 0)
        return -1;
    if (times.n == 0) {
        if (measure(c, &times, &done, err) < 0)
            return -1;
        if (done && *path && mu_times_complete(&times))
            keep(c, path, machine, &times);
    }
    if (done) {
        mu_times_limits(&times, out);
        return 0;
    }
    if (mu_limits_known(c->size, out))
        return 0;
    return mu_err_set(err, ENOTSUP, "%d ranks cannot be measured here", c->size);
}
