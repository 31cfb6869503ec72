/* SPDX-License-Identifier: BSD-3-Clause */
/* served.c - the program's communicators that Muster serves, by NCCL's handle */
#include "runtime/nccl/served.h"

#include "config.h"
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/backend/serve.h"
#include "runtime/base/clock.h"
#include "runtime/nccl/choose.h"
#include "runtime/nccl/eligible.h"
#include "runtime/nccl/meet.h"
#include "runtime/nccl/meet_link.h"

#define MEET_SECONDS 1.0
#define OPEN_SECONDS 30.0
#define CLOSE_SECONDS 10.0
#define NO_LIMIT 1e9 /* seconds: NCCL's collectives have none */

struct served {
    void *comm;
    int rank, size;
    bool left;            /* under the table's lock */
    int users;            /* the same: calls under way */
    pthread_mutex_t work; /* one call at a time enters the backend */
    struct mu_meet *meet;
    struct mu_backend *backend;
    const struct mu_log *log;
    struct mu_limits limits;
    int node_of[MU_MEET_RANKS];
    const char *host_of[MU_MEET_RANKS];
    char host[128], job[40];
    struct served *next;
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t idle;
    struct served *first;
    /* The backend, once a communicator has wanted it. */
    const struct mu_backend_ops *ops;
    const struct mu_nccl_serve *serve;
} table = { .lock = PTHREAD_MUTEX_INITIALIZER, .idle = PTHREAD_COND_INITIALIZER };

/* ---- The backend ---------------------------------------------------------------- */

/* Beside a library in /tmp/mine/lib, /tmp/mine/lib/.. may be another user's. */
static bool is_foreign(const char *folder, const char *library)
{
    struct stat at, own;

    return stat(folder, &at) == 0 && stat(library, &own) == 0 &&
           ((at.st_uid != 0 && at.st_uid != geteuid() && at.st_uid != own.st_uid) ||
            at.st_mode & S_IWOTH);
}

/* Installed, LIBDIR/muster or LIBDIR/muster/nccl/.. ; as built, in one folder. */
static void *open_module(struct mu_err *err)
{
    static const char *const folders[] = { "muster", ".", ".." };
    static const char here;
    const char *slash;
    Dl_info info;

    if (!dladdr(&here, &info) || !(slash = strrchr(info.dli_fname, '/'))) {
        mu_err_set(err, ENOENT, "the folder of libmuster-nccl.so is unknown");
        return NULL;
    }
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        char folder[PATH_MAX - 32], path[PATH_MAX];
        void *module;

        if (snprintf(folder, sizeof folder, "%.*s/%s", (int)(slash - info.dli_fname),
                     info.dli_fname, folders[i]) >= (int)sizeof folder)
            continue;
        snprintf(path, sizeof path, "%s/backend_nccl.so", folder);
        if (access(path, R_OK) < 0)
            continue;
        if (is_foreign(folder, info.dli_fname)) {
            mu_err_set(err, EPERM,
                       "another user can write in %s: make it yours, or chmod o-w",
                       folder);
            return NULL;
        }
        module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (!module)
            mu_err_set(err, ENOENT, "%s", dlerror());
        return module;
    }
    mu_err_set(err, ENOENT, "backend_nccl.so is not installed");
    return NULL;
}

static bool load(struct mu_err *err)
{
    bool ok;

    pthread_mutex_lock(&table.lock);
    if (!table.ops) {
        void *module = open_module(err);

        if (module) {
            table.ops = dlsym(module, "mu_backend_nccl");
            table.serve = dlsym(module, "mu_nccl_serve");
        }
        if (module && (!table.ops || !table.serve)) {
            mu_err_set(err, EPROTO, "backend_nccl.so is of another version");
            table.ops = NULL;
            dlclose(module);
        }
    }
    ok = table.ops != NULL;
    pthread_mutex_unlock(&table.lock);
    return ok;
}

/* The variable with which the program chooses this allocator of PyTorch, or NULL. */
static const char *variable_with(const char *word)
{
    static const char *const variables[] = { "PYTORCH_CUDA_ALLOC_CONF",
                                             "PYTORCH_ALLOC_CONF" };

    for (int i = 0; i < 2; i++) {
        const char *value = getenv(variables[i]);

        if (value && strstr(value, word))
            return variables[i];
    }
    return NULL;
}

/* Memory of CUDA's pools has no handle for peers. Where a rank does not ask for
 * mapping, no rank maps, and NCCL does the large calls.
 */
static bool memory_can_be_mapped(const struct mu_log *log)
{
    const char *variable = variable_with("backend:cudaMallocAsync");

    if (variable)
        mu_log(log, MU_LOG_INFO,
               "nccl: peers cannot map the memory that %s=%s asks for: NCCL does the "
               "larger calls",
               variable, getenv(variable));
    return !variable;
}

static int open_backend(struct served *s, const struct mu_served_new *n,
                        const struct mu_log *log, struct mu_err *err)
{
    struct mu_backend_env env = {
        .rank = n->rank,
        .size = n->size,
        .local_rank = n->rank,
        .local_size = n->size,
        .nnodes = 1,
        .node_of = s->node_of,
        .host_of = s->host_of,
        .job = s->job,
        .gpus = "",
        .map_memory = memory_can_be_mapped(log),
        .virtual_memory = variable_with("expandable_segments:True") != NULL,
        .init_timeout = CLOSE_SECONDS,
        .timeout = NO_LIMIT,
        .exchange = mu_meet_exchange(s->meet),
        .log = log,
        .communicator = n->comm,
    };

    if (table.ops->open(&env, &s->backend, err) < 0)
        return -1;
    if (table.ops->device(s->backend) != n->device)
        return mu_err_set(err, EINVAL, "the communicator's GPU is not the current one");
    return 0;
}

static void discard(struct served *s)
{
    if (s->backend)
        table.ops->close(s->backend);
    mu_meet_close(s->meet);
    pthread_mutex_destroy(&s->work);
    free(s);
}

/* ---- Open ----------------------------------------------------------------------- */

static struct served *create(const struct mu_served_new *n, const struct mu_log *log)
{
    struct served *s = calloc(1, sizeof *s);
    char mark[MU_MEET_MARK];

    if (!s)
        return NULL;
    s->comm = n->comm;
    s->rank = n->rank;
    s->size = n->size;
    s->log = log;
    pthread_mutex_init(&s->work, NULL);
    if (gethostname(s->host, sizeof s->host - 1) < 0)
        s->host[0] = '\0';
    for (int r = 0; r < n->size; r++)
        s->host_of[r] = s->host;
    mu_meet_mark(n->id, n->id_len, mark);
    snprintf(s->job, sizeof s->job, "nccl.%.16s", mark);
    return s;
}

static int choose(struct served *s, struct mu_err *err)
{
    const struct mu_choose c = { .rank = s->rank,
                                 .size = s->size,
                                 .exchange = mu_meet_exchange(s->meet),
                                 .timeout = OPEN_SECONDS,
                                 .comm = s->comm,
                                 .backend = s->backend,
                                 .serve = table.serve,
                                 .log = s->log };

    return mu_choose(&c, &s->limits, err);
}

static void insert(struct served *s)
{
    pthread_mutex_lock(&table.lock);
    s->next = table.first;
    table.first = s;
    pthread_mutex_unlock(&table.lock);
}

void mu_served_open(const struct mu_served_new *n, const struct mu_log *log)
{
    const struct mu_meet_call call = { .id = n->id,
                                       .id_len = n->id_len,
                                       .rank = n->rank,
                                       .size = n->size,
                                       .version = PACKAGE_VERSION,
                                       .seconds = MEET_SECONDS };
    struct mu_err err = { 0 };
    struct served *s;
    bool ok;

    if (n->size > MU_MEET_RANKS) {
        mu_tally_reason("it has more than 8 ranks");
        return;
    }
    s = create(n, log);
    if (!s)
        return; /* the other ranks do without */
    s->meet = mu_meet_open(&call, &err);
    ok = s->meet && mu_meet_vote(s->meet, load(&err), OPEN_SECONDS);
    ok = ok && mu_meet_vote(s->meet, open_backend(s, n, log, &err) == 0, OPEN_SECONDS);
    ok = ok && mu_meet_vote(s->meet, choose(s, &err) == 0, OPEN_SECONDS);
    if (ok) {
        insert(s);
        return;
    }
    mu_tally_reason(err.text[0] ? err.text : "another rank cannot");
    discard(s);
}

/* ---- Calls ---------------------------------------------------------------------- */

static struct served **find(void *comm)
{
    struct served **at = &table.first;

    while (*at && (*at)->comm != comm)
        at = &(*at)->next;
    return at;
}

static struct served *take(void *comm, bool *left)
{
    struct served *s;

    pthread_mutex_lock(&table.lock);
    s = *find(comm);
    if (s) {
        *left = s->left;
        s->users++;
    }
    pthread_mutex_unlock(&table.lock);
    return s;
}

static void put(struct served *s)
{
    pthread_mutex_lock(&table.lock);
    if (--s->users == 0)
        pthread_cond_broadcast(&table.idle);
    pthread_mutex_unlock(&table.lock);
}

/* The send buffer of a broadcast is valid on the root alone. */
static struct mu_coll coll_of(const struct mu_served_call *c,
                              const struct mu_eligible *as, const struct served *s)
{
    static const char *const names[] = { [MU_COLL_ALLREDUCE] = "ncclAllReduce",
                                         [MU_COLL_REDUCE_SCATTER] = "ncclReduceScatter",
                                         [MU_COLL_ALLGATHER] = "ncclAllGather",
                                         [MU_COLL_BROADCAST] = "ncclBroadcast" };

    return (struct mu_coll){
        .kind = c->kind,
        .dtype = as->dtype,
        .op = as->op,
        .send = c->kind == MU_COLL_BROADCAST && c->root != s->rank ? c->recv : c->send,
        .recv = c->recv,
        .count = as->count,
        .root = c->root,
        .scale = as->mean ? 1.0 / s->size : 1.0,
        .stream = c->stream,
        .direct = true,
        .what = names[c->kind],
    };
}

/* A wrong root is NCCL's to report. */
static bool root_is_right(const struct mu_served_call *c, const struct served *s)
{
    return c->kind != MU_COLL_BROADCAST || (c->root >= 0 && c->root < s->size);
}

enum mu_fate mu_served_carry(const struct mu_served_call *c, size_t *bytes,
                             mu_nccl_result *rc)
{
    bool left = false, carried = false;
    struct served *s = take(c->comm, &left);
    static const struct mu_limits none;
    struct mu_eligible as;
    enum mu_fate fate = mu_eligible(s ? &s->limits : &none, c->kind, s ? s->size : 0,
                                    c->count, c->type, c->op, &as);

    *bytes = as.bytes;
    if (!s)
        return MU_NO_RANKS;
    if (left)
        fate = MU_WINDOW;
    if (fate == MU_CARRIED && !root_is_right(c, s))
        fate = MU_OTHER_SIZE;
    if (fate == MU_CARRIED) {
        struct mu_coll coll = coll_of(c, &as, s);
        struct mu_err err = { 0 };

        pthread_mutex_lock(&s->work);
        *rc = MU_NCCL_SUCCESS;
        if (table.serve->carry(s->backend, &coll, as.mapped, &carried, &err) < 0) {
            mu_log(s->log, MU_LOG_ERROR, "nccl: %s", err.text);
            *rc = MU_NCCL_CUDA_ERROR;
        } else if (!carried) {
            fate = MU_OTHER_SIZE;
        }
        pthread_mutex_unlock(&s->work);
    }
    put(s);
    return fate;
}

void mu_served_leave(void *comm)
{
    struct served *s;

    pthread_mutex_lock(&table.lock);
    s = *find(comm);
    if (s)
        s->left = true;
    pthread_mutex_unlock(&table.lock);
}

void mu_served_end(void *comm, bool abort)
{
    struct served **at, *s;

    pthread_mutex_lock(&table.lock);
    at = find(comm);
    s = *at;
    if (s)
        *at = s->next;
    pthread_mutex_unlock(&table.lock);
    if (!s)
        return;
    /* A call of another thread may wait for room in the stream, behind a kernel that
     * waits for a dead rank: the abort ends that kernel.
     */
    if (abort)
        table.ops->abort(s->backend, MUSTER_EPEER,
                         "the program has aborted its communicator");
    pthread_mutex_lock(&table.lock);
    while (s->users > 0)
        pthread_cond_wait(&table.idle, &table.lock);
    pthread_mutex_unlock(&table.lock);
    discard(s);
}
