/* SPDX-License-Identifier: BSD-3-Clause */
/* preload.c - NCCL's functions that libmuster-nccl carries out or must see
 *
 * All of them call NCCL's own function, but the collectives that Muster carries out.
 * Nothing that Muster does changes the result of another function.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/log.h"
#include "runtime/nccl/comm_id.h"
#include "runtime/nccl/nccl_abi.h"
#include "runtime/nccl/real.h"
#include "runtime/nccl/served.h"
#include "runtime/nccl/tally.h"

#define EXPORT __attribute__((visibility("default")))
#define LINE 600
#define GROUP_COMMS 16 /* most communicators of one group that are served */

/* The address of NCCL's function of this name, looked up once. */
#define REAL(name)                                                                     \
    static _Atomic(void *) address;                                                    \
    __typeof__(name) *real;                                                            \
    void *at = atomic_load_explicit(&address, memory_order_relaxed);                   \
    if (!at) {                                                                         \
        at = mu_real(#name);                                                           \
        atomic_store_explicit(&address, at, memory_order_relaxed);                     \
    }                                                                                  \
    if (!at)                                                                           \
        return missing(#name);                                                         \
    memcpy(&real, &at, sizeof real)

enum mode { WATCH, ON, OFF };

static struct {
    enum mode mode;
    struct mu_log log;
    bool log_asked;    /* by MUSTER_LOG */
    bool wrong;        /* MUSTER_NCCL has another word */
    atomic_int leader; /* the process that is rank 0 of a communicator, or 0 */
} preload = { .log = { .level = MU_LOG_WARN } };

/* Calls of ncclGroupStart that are open in this thread. */
static __thread int group_depth;
/* NCCL is making a communicator in this thread, perhaps by another function here. */
static __thread bool making;
/* Communicators that the open group of this thread makes. */
static __thread struct made {
    void *comm;
    struct mu_nccl_id id;
    int rank, size; /* -1: to be asked for */
} group[GROUP_COMMS];
static __thread int group_n;

static mu_nccl_result missing(const char *name)
{
    mu_log(&preload.log, MU_LOG_ERROR,
           "%s is not found: MUSTER_NCCL_LIBRARY can name the path of libnccl.so.2",
           name);
    return MU_NCCL_INVALID_USAGE;
}

/* ---- The process ---------------------------------------------------------------- */

/* The position of a word among `words`; 0: not set; -1: another word. */
static int word_of(const char *variable, const char *const *words)
{
    const char *value = getenv(variable);
    int i = 0;

    if (!value || !*value)
        return 0;
    while (words[i] && strcmp(value, words[i]) != 0)
        i++;
    return words[i] ? i : -1;
}

__attribute__((constructor)) static void begin(void)
{
    static const char *const modes[] = { "watch", "on", "off", NULL };
    static const char *const levels[] = { "", "error", "warn", "info", "debug", NULL };
    int mode = word_of("MUSTER_NCCL", modes), level = word_of("MUSTER_LOG", levels);

    preload.log_asked = level > 0;
    if (level > 0)
        preload.log.level = (enum mu_log_level)(level - 1);
    if (mode >= 0)
        preload.mode = (enum mode)mode;
    preload.wrong = mode < 0;
}

/* One line by rank 0, where the program was asked to run with Muster or MUSTER_LOG
 * wants it.
 */
__attribute__((destructor)) static void end(void)
{
    const struct mu_log always = { .level = MU_LOG_INFO };
    bool wanted =
        preload.log_asked ? preload.log.level >= MU_LOG_INFO : preload.mode == ON;
    char text[LINE];

    if (wanted && atomic_load(&preload.leader) == (int)getpid() &&
        mu_tally_text(text, sizeof text))
        mu_log(&always, MU_LOG_INFO, "nccl: %s", text);
}

/* ---- Communicators -------------------------------------------------------------- */

EXPORT mu_nccl_result ncclCommInitRank(void **comm, int size, struct mu_nccl_id id,
                                       int rank);
EXPORT mu_nccl_result ncclCommInitRankConfig(void **comm, int size,
                                             struct mu_nccl_id id, int rank,
                                             void *config);
EXPORT mu_nccl_result ncclCommInitRankScalable(void **comm, int size, int rank, int n,
                                               struct mu_nccl_id *ids, void *config);
EXPORT mu_nccl_result ncclCommSplit(void *comm, int color, int key, void **out,
                                    void *config);
EXPORT mu_nccl_result ncclCommFinalize(void *comm);
EXPORT mu_nccl_result ncclCommDestroy(void *comm);
EXPORT mu_nccl_result ncclCommAbort(void *comm);
EXPORT mu_nccl_result ncclCommRevoke(void *comm, int flags);
EXPORT mu_nccl_result ncclCommShrink(void *comm, int *without, int n, void **out,
                                     void *config, int flags);
EXPORT mu_nccl_result ncclCommWindowRegister(void *comm, void *at, size_t bytes,
                                             void **window, int flags);
EXPORT mu_nccl_result ncclGroupStart(void);
EXPORT mu_nccl_result ncclGroupEnd(void);
EXPORT mu_nccl_result ncclAllReduce(const void *send, void *recv, size_t count,
                                    int type, int op, void *comm, void *stream);
EXPORT mu_nccl_result ncclReduceScatter(const void *send, void *recv, size_t count,
                                        int type, int op, void *comm, void *stream);
EXPORT mu_nccl_result ncclAllGather(const void *send, void *recv, size_t count,
                                    int type, void *comm, void *stream);
EXPORT mu_nccl_result ncclBroadcast(const void *send, void *recv, size_t count,
                                    int type, int root, void *comm, void *stream);
EXPORT mu_nccl_result ncclBcast(void *at, size_t count, int type, int root, void *comm,
                                void *stream);

static bool ask(void *comm, const char *name, int *out)
{
    mu_nccl_result (*of)(void *, int *);

    *(void **)(void *)&of = mu_real(name);
    return of && of(comm, out) == MU_NCCL_SUCCESS;
}

/* Is the communicator complete? A non-blocking one is not. */
static bool is_complete(void *comm)
{
    mu_nccl_result state = MU_NCCL_INVALID_USAGE;

    return ask(comm, "ncclCommGetAsyncError", &state) && state == MU_NCCL_SUCCESS;
}

static void serve(const struct made *m)
{
    struct mu_served_new n = { .comm = m->comm,
                               .id = &m->id,
                               .id_len = sizeof m->id,
                               .rank = m->rank,
                               .size = m->size };

    if (!is_complete(m->comm)) {
        mu_tally_reason("it is non-blocking");
        return;
    }
    if (!ask(m->comm, "ncclCommCuDevice", &n.device) ||
        (n.rank < 0 && (!ask(m->comm, "ncclCommUserRank", &n.rank) ||
                        !ask(m->comm, "ncclCommCount", &n.size)))) {
        mu_tally_reason("NCCL reports no GPU or rank of it");
        return;
    }
    if (n.size > 1)
        mu_served_open(&n, &preload.log);
}

static bool begin_making(void)
{
    bool outer = !making;

    making = true;
    return outer;
}

/* NCCL gives the handle at once, in a group too, where the rest is made at its end. */
static void made(mu_nccl_result rc, void *const *comm, const struct mu_nccl_id *id,
                 int rank, int size)
{
    making = false;
    if (preload.mode == OFF || (rc != MU_NCCL_SUCCESS && rc != MU_NCCL_IN_PROGRESS) ||
        !*comm)
        return;
    if (rank == 0 && preload.wrong)
        mu_log(&preload.log, MU_LOG_WARN, "MUSTER_NCCL is on, off or watch, not '%s'",
               getenv("MUSTER_NCCL"));
    if (rank == 0)
        atomic_store(&preload.leader, (int)getpid());
    if (preload.mode == WATCH) {
        mu_tally_reason("MUSTER_NCCL=on is not set");
        return;
    }
    struct made m = { *comm, *id, rank, size };

    mu_comm_id_set(m.comm, id);
    if (rc == MU_NCCL_IN_PROGRESS)
        mu_tally_reason("it is non-blocking");
    else if (group_depth == 0)
        serve(&m);
    else if (group_n < GROUP_COMMS)
        group[group_n++] = m;
    else
        mu_tally_reason("its group has made more than 16");
}

static bool is_repeated(int which)
{
    for (int i = 0; i < group_n; i++)
        if (i != which &&
            memcmp(&group[i].id, &group[which].id, sizeof group[i].id) == 0)
            return true;
    return false;
}

/* The ranks of one communicator meet at the same time, which one thread cannot do for
 * two of them.
 */
static void group_made(mu_nccl_result rc)
{
    for (int i = 0; i < group_n && rc == MU_NCCL_SUCCESS; i++)
        if (is_repeated(i))
            mu_tally_reason("several ranks of it are in one process");
        else
            serve(&group[i]);
    group_n = 0;
}

mu_nccl_result ncclCommInitRank(void **comm, int size, struct mu_nccl_id id, int rank)
{
    REAL(ncclCommInitRank);
    bool outer = begin_making();
    mu_nccl_result rc = real(comm, size, id, rank);

    if (outer)
        made(rc, comm, &id, rank, size);
    return rc;
}

mu_nccl_result ncclCommInitRankConfig(void **comm, int size, struct mu_nccl_id id,
                                      int rank, void *config)
{
    REAL(ncclCommInitRankConfig);
    bool outer = begin_making();
    mu_nccl_result rc = real(comm, size, id, rank, config);

    if (outer)
        made(rc, comm, &id, rank, size);
    return rc;
}

/* The first of its ids is this communicator's alone. */
mu_nccl_result ncclCommInitRankScalable(void **comm, int size, int rank, int n,
                                        struct mu_nccl_id *ids, void *config)
{
    REAL(ncclCommInitRankScalable);
    bool outer = begin_making();
    mu_nccl_result rc = real(comm, size, rank, n, ids, config);

    if (outer)
        made(rc, comm, ids, rank, size);
    return rc;
}

/* A rank that joins no part has no handle. */
mu_nccl_result ncclCommSplit(void *comm, int color, int key, void **out, void *config)
{
    REAL(ncclCommSplit);
    bool outer = begin_making();
    struct mu_nccl_id id;
    bool named = outer && preload.mode != OFF && mu_comm_id_split(comm, color, &id);
    mu_nccl_result rc = real(comm, color, key, out, config);

    if (named)
        made(rc, out, &id, -1, -1);
    if (outer)
        making = false;
    return rc;
}

/* NCCL frees the handle, and may give it to the next communicator: Muster leaves
 * first.
 */
mu_nccl_result ncclCommFinalize(void *comm)
{
    REAL(ncclCommFinalize);
    mu_served_end(comm, false);
    return real(comm);
}

mu_nccl_result ncclCommDestroy(void *comm)
{
    REAL(ncclCommDestroy);
    mu_comm_id_drop(comm);
    mu_served_end(comm, false);
    return real(comm);
}

mu_nccl_result ncclCommAbort(void *comm)
{
    REAL(ncclCommAbort);
    mu_comm_id_drop(comm);
    mu_served_end(comm, true);
    return real(comm);
}

mu_nccl_result ncclCommRevoke(void *comm, int flags)
{
    REAL(ncclCommRevoke);
    mu_served_end(comm, true);
    return real(comm, flags);
}

mu_nccl_result ncclCommShrink(void *comm, int *without, int n, void **out, void *config,
                              int flags)
{
    REAL(ncclCommShrink);
    if (flags & MU_NCCL_SHRINK_ABORT)
        mu_served_end(comm, true);
    return real(comm, without, n, out, config, flags);
}

/* All ranks register together, so that all of them leave at the same call. */
mu_nccl_result ncclCommWindowRegister(void *comm, void *at_, size_t bytes,
                                      void **window, int flags)
{
    REAL(ncclCommWindowRegister);
    if (flags & MU_NCCL_WINDOW_SYMMETRIC)
        mu_served_leave(comm);
    return real(comm, at_, bytes, window, flags);
}

/* ---- Calls ---------------------------------------------------------------------- */

mu_nccl_result ncclGroupStart(void)
{
    REAL(ncclGroupStart);
    mu_nccl_result rc = real();

    if (rc == MU_NCCL_SUCCESS)
        group_depth++;
    return rc;
}

mu_nccl_result ncclGroupEnd(void)
{
    REAL(ncclGroupEnd);
    mu_nccl_result rc;

    if (group_depth > 0)
        group_depth--;
    rc = real();
    if (group_depth == 0)
        group_made(rc);
    return rc;
}

/* False: NCCL has to do it. Inside a group too, Muster starts its kernel at once: it
 * waits for no other call of the group, and whether there is a group may differ among
 * the ranks.
 */
static bool carried(const struct mu_served_call *call, mu_nccl_result *rc)
{
    enum mu_fate fate;
    size_t bytes = 0;

    if (preload.mode == OFF)
        return false;
    fate = mu_served_carry(call, &bytes, rc);
    mu_tally_add(call->kind, fate, bytes);
    return fate == MU_CARRIED;
}

static mu_nccl_result reduce(enum mu_coll_kind kind, __typeof__(ncclAllReduce) *real,
                             const void *send, void *recv, size_t count, int type,
                             int op, void *comm, void *stream)
{
    const struct mu_served_call call = { .kind = kind,
                                         .comm = comm,
                                         .send = send,
                                         .recv = recv,
                                         .count = count,
                                         .type = type,
                                         .op = op,
                                         .stream = stream };
    mu_nccl_result rc = MU_NCCL_SUCCESS;

    return carried(&call, &rc) ? rc : real(send, recv, count, type, op, comm, stream);
}

mu_nccl_result ncclAllReduce(const void *send, void *recv, size_t count, int type,
                             int op, void *comm, void *stream)
{
    REAL(ncclAllReduce);
    return reduce(MU_COLL_ALLREDUCE, real, send, recv, count, type, op, comm, stream);
}

mu_nccl_result ncclReduceScatter(const void *send, void *recv, size_t count, int type,
                                 int op, void *comm, void *stream)
{
    REAL(ncclReduceScatter);
    return reduce(MU_COLL_REDUCE_SCATTER, real, send, recv, count, type, op, comm,
                  stream);
}

mu_nccl_result ncclAllGather(const void *send, void *recv, size_t count, int type,
                             void *comm, void *stream)
{
    REAL(ncclAllGather);
    const struct mu_served_call call = { .kind = MU_COLL_ALLGATHER,
                                         .comm = comm,
                                         .send = send,
                                         .recv = recv,
                                         .count = count,
                                         .type = type,
                                         .stream = stream };
    mu_nccl_result rc = MU_NCCL_SUCCESS;

    return carried(&call, &rc) ? rc : real(send, recv, count, type, comm, stream);
}

static mu_nccl_result broadcast(const void *send, void *recv, size_t count, int type,
                                int root, void *comm, void *stream)
{
    REAL(ncclBroadcast);
    const struct mu_served_call call = { .kind = MU_COLL_BROADCAST,
                                         .comm = comm,
                                         .send = send,
                                         .recv = recv,
                                         .count = count,
                                         .type = type,
                                         .root = root,
                                         .stream = stream };
    mu_nccl_result rc = MU_NCCL_SUCCESS;

    return carried(&call, &rc) ? rc : real(send, recv, count, type, root, comm, stream);
}

mu_nccl_result ncclBroadcast(const void *send, void *recv, size_t count, int type,
                             int root, void *comm, void *stream)
{
    return broadcast(send, recv, count, type, root, comm, stream);
}

/* NCCL's own calls ncclBroadcast, perhaps ours: it would be counted twice. */
mu_nccl_result ncclBcast(void *at, size_t count, int type, int root, void *comm,
                         void *stream)
{
    return broadcast(at, at, count, type, root, comm, stream);
}
