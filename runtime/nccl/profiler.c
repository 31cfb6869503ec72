/* SPDX-License-Identifier: BSD-3-Clause */
/* profiler.c - NCCL's profiler interfaces 1 to 7: each collective becomes a record of
 * the ledger file
 *
 * The plugin never makes NCCL fail. Where the ledger cannot be written, one line
 * reports it, and NCCL is asked for no event.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/parse.h"
#include "runtime/ledger/ledger_out.h"
#include "runtime/nccl/profiler_abi.h"
#include "runtime/nccl/timing.h"

#define EXPORT __attribute__((visibility("default")))

/* NCCL unloads its plugins with the last communicator. This library stays loaded
 * (-z nodelete), so that later communicators go to the same file.
 */
static struct {
    pthread_mutex_t lock;
    bool opened; /* or failed */
    struct mu_ledger_out out;
    struct mu_timing timing;
    int *mask;    /* NCCL's, of all communicators */
    bool untimed; /* for good */
} profiler = { .lock = PTHREAD_MUTEX_INITIALIZER };

static int64_t real_now(void)
{
    return mu_time_ns(mu_time_of(CLOCK_REALTIME));
}

/* The file of this process; false: there is none. */
static bool have_ledger(int interface)
{
    const struct mu_log log = { .level = MU_LOG_WARN };
    struct mu_err err = { 0 };

    pthread_mutex_lock(&profiler.lock);
    if (!profiler.opened) {
        profiler.opened = true;
        if (mu_timing_open_asked(&profiler.timing, real_now(), &err) < 0 ||
            mu_ledger_open_asked(&profiler.out, false, &err) < 0)
            mu_log(&log, MU_LOG_WARN, "profile: %s; nothing is recorded", err.text);
        else
            profiler.out.head->interface = (uint32_t)interface;
    }
    pthread_mutex_unlock(&profiler.lock);
    return profiler.out.head != NULL;
}

/* ---- Times of the GPU ------------------------------------------------------------ */

/* NCCL reads its mask at the begin of each group. */
static void ask(bool timed)
{
    int *mask = __atomic_load_n(&profiler.mask, __ATOMIC_RELAXED);

    __atomic_store_n(mask, MU_NCCL_EVENT_COLL | (timed ? MU_NCCL_EVENT_CHANNEL : 0),
                     __ATOMIC_RELAXED);
}

static bool is_asked(void)
{
    int *mask = __atomic_load_n(&profiler.mask, __ATOMIC_RELAXED);

    return __atomic_load_n(mask, __ATOMIC_RELAXED) & MU_NCCL_EVENT_CHANNEL;
}

static bool is_due(void)
{
    return !__atomic_load_n(&profiler.untimed, __ATOMIC_RELAXED) &&
           mu_timing_due(&profiler.timing, real_now());
}

/* NCCL's host counts the works of a channel when they are captured, its GPU when they
 * run. Where they were captured untimed, later works would get the times of others, or
 * be waited for without an end.
 */
static void end_times(void)
{
    const struct mu_log log = { .level = MU_LOG_WARN };

    if (__atomic_exchange_n(&profiler.untimed, true, __ATOMIC_RELAXED))
        return;
    mu_log(&log, MU_LOG_WARN,
           "profile: a collective was captured in a CUDA graph outside of the window "
           "for times of the GPU; no more are recorded. MUSTER_PROFILE_SHARE=100 "
           "records all");
}

/* Handles of groups, of which nothing is recorded. Before NCCL 2.28 a group without a
 * handle has no collectives; later on its captured ones share a number. A timed group
 * has the second handle: its collectives see by it that they are timed.
 */
static char groups[2];

static bool is_group(const void *handle)
{
    return handle == &groups[false] || handle == &groups[true];
}

/* NCCL has read its mask for this group; what is asked for now is for the next one.
 * Captured groups stay as they began.
 */
static void *begin_group(bool captured)
{
    bool timed = is_asked();

    if (captured && !timed)
        end_times();
    if (!captured && is_due() != timed)
        ask(!timed);
    return &groups[timed];
}

static bool is_untimed(int interface, const void *parent)
{
    return interface >= 5 &&
           (is_group(parent) ? parent == &groups[false] : !is_asked());
}

/* ---- Communicators --------------------------------------------------------------- */

static int init(int interface, void **context, int *mask, uint64_t hash,
                const char *name, int rank, int size, int nodes)
{
    *context = NULL;
    if (!have_ledger(interface)) {
        *mask = 0;
        return 0;
    }
    *context = mu_ledger_comm(&profiler.out, hash, name, rank, size, nodes);
    __atomic_store_n(&profiler.mask, mask, __ATOMIC_RELAXED);
    ask(interface >= 5 ? is_due() : interface >= 3);
    return 0;
}

/* ---- Descriptors ----------------------------------------------------------------- */

static const char *numbered(const char *const *names, size_t n, unsigned number)
{
    return number < n ? names[number] : "?";
}

#define NUMBERED(names, number) numbered(names, sizeof names / sizeof names[0], number)

static const struct element {
    const char *name;
    uint8_t bytes;
} elements[] = {
    /* in the order of ncclDataType_t */
    { "ncclInt8", 1 },     { "ncclUint8", 1 },      { "ncclInt32", 4 },
    { "ncclUint32", 4 },   { "ncclInt64", 8 },      { "ncclUint64", 8 },
    { "ncclFloat16", 2 },  { "ncclFloat32", 4 },    { "ncclFloat64", 8 },
    { "ncclBfloat16", 2 }, { "ncclFloat8e4m3", 1 }, { "ncclFloat8e5m2", 1 },
    { "Unknown", 1 }, /* NCCL 2.23 to 2.30 have no name for ncclUint8 */
};

#define NELEMENTS (sizeof elements / sizeof elements[0])

static uint8_t element_bytes(const char *name)
{
    for (size_t i = 0; name && i < NELEMENTS; i++)
        if (strcmp(name, elements[i].name) == 0)
            return elements[i].bytes;
    return 0;
}

static void take_names(struct mu_ledger_call *call, const char *func, const char *algo,
                       const char *proto)
{
    mu_copy(call->func, sizeof call->func, func ? func : "?");
    mu_copy(call->algo, sizeof call->algo, algo ? algo : "?");
    mu_copy(call->proto, sizeof call->proto, proto ? proto : "?");
}

static void take_coll1(const struct mu_nccl_descr *d, struct mu_ledger_call *call)
{
    static const char *const funcs[] = { "Broadcast",     "Reduce",    "AllGather",
                                         "ReduceScatter", "AllReduce", "SendRecv",
                                         "Send",          "Recv" };
    static const char *const algos[] = {
        "TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT"
    };
    static const char *const protos[] = { "LL", "LL128", "SIMPLE" };

    call->sequence = d->u.coll1.sequence;
    call->count = d->u.coll1.count;
    call->channels = d->u.coll1.channels;
    call->warps = d->u.coll1.warps;
    call->element = d->u.coll1.dtype < NELEMENTS ? elements[d->u.coll1.dtype].bytes : 0;
    take_names(call, NUMBERED(funcs, d->u.coll1.func), NUMBERED(algos, d->u.coll1.algo),
               NUMBERED(protos, d->u.coll1.proto));
}

/* The fields of the other interfaces have equal names, at other places. */
#define TAKE(call, coll)                                                               \
    do {                                                                               \
        (call)->sequence = (coll)->sequence;                                           \
        (call)->count = (coll)->count;                                                 \
        (call)->channels = (coll)->channels;                                           \
        (call)->warps = (coll)->warps;                                                 \
        (call)->element = element_bytes((coll)->dtype);                                \
        take_names(call, (coll)->func, (coll)->algo, (coll)->proto);                   \
    } while (0)

/* Before interface 4 the first call names the communicator. */
static void name_comm(struct mu_ledger_comm *comm, const struct mu_nccl_descr *d)
{
    uint64_t unknown = 0;

    if (__atomic_compare_exchange_n(&comm->hash, &unknown, d->u.coll3.comm_hash, false,
                                    __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
        comm->rank = d->rank;
        mu_copy(comm->name, sizeof comm->name,
                d->u.coll3.comm_name ? d->u.coll3.comm_name : "");
    }
}

static void *begin_coll(int interface, struct mu_ledger_comm *comm,
                        const struct mu_nccl_descr *d)
{
    struct mu_ledger_call call = { .comm = (uint32_t)(comm - profiler.out.comms),
                                   .untimed = is_untimed(interface, d->parent) };

    if (interface < 4)
        name_comm(comm, d);
    if (interface == 1)
        take_coll1(d, &call);
    else if (interface == 2)
        TAKE(&call, &d->u.coll2);
    else if (interface == 3)
        TAKE(&call, &d->u.coll3);
    else
        TAKE(&call, &d->u.coll4);
    return mu_ledger_begin(&profiler.out, &call);
}

/* ---- Events ---------------------------------------------------------------------- */

static int start(int interface, void *context, void **handle,
                 const struct mu_nccl_descr *d)
{
    uint64_t type = interface >= 5 ? d->type.wide : d->type.narrow;

    *handle = NULL;
    if (context && type == MU_NCCL_EVENT_GROUP)
        *handle = &groups[false];
    else if (context && type == MU_NCCL_EVENT_GROUP_API)
        *handle = begin_group(d->u.group_api.captured);
    else if (context && type == MU_NCCL_EVENT_COLL_API)
        *handle = d->parent;
    else if (context && type == MU_NCCL_EVENT_COLL)
        *handle = begin_coll(interface, context, d);
    else if (context && type == MU_NCCL_EVENT_CHANNEL)
        *handle = mu_ledger_channel(&profiler.out, d->parent,
                                    interface >= 4 ? d->u.channel.start : 0);
    return 0;
}

static int stop(void *handle)
{
    if (!is_group(handle))
        mu_ledger_end(&profiler.out, handle);
    return 0;
}

/* Interface 3 has no times of the GPU. */
static int stop3(void *handle)
{
    if (!is_group(handle))
        mu_ledger_channel_time(&profiler.out, handle, 0);
    return stop(handle);
}

static int record(void *handle, int state, union mu_nccl_state *args)
{
    if (state == MU_NCCL_STATE_CHANNEL_STOP && args && args->stop && !is_group(handle))
        mu_ledger_channel_time(&profiler.out, handle, args->stop);
    return 0;
}

static int record_none(void *handle, int state, union mu_nccl_state *args)
{
    (void)handle, (void)state, (void)args;
    return 0;
}

static int finalize(void *context)
{
    struct mu_ledger_comm *comm = context;

    if (comm)
        comm->finalized = 1;
    return 0;
}

/* ---- The versions ---------------------------------------------------------------- */

#define START(v)                                                                       \
    static int start_v##v(void *context, void **handle, struct mu_nccl_descr *descr)   \
    {                                                                                  \
        return start(v, context, handle, descr);                                       \
    }

#define BARE(v)                                                                        \
    static int init_v##v(void **context, int *mask)                                    \
    {                                                                                  \
        return init(v, context, mask, 0, NULL, -1, 0, 0);                              \
    }                                                                                  \
    START(v)

#define HASHED(v)                                                                      \
    static int init_v##v(void **context, uint64_t hash, int *mask, const char *name,   \
                         int nodes, int size, int rank, mu_nccl_logger logger)         \
    {                                                                                  \
        (void)logger;                                                                  \
        return init(v, context, mask, hash, name, rank, size, nodes);                  \
    }                                                                                  \
    START(v)

BARE(1)
BARE(2)
BARE(3)
START(4)
HASHED(5)
HASHED(6)
HASHED(7)

static int init_v4(void **context, int *mask, const char *name, uint64_t hash,
                   int nodes, int size, int rank, mu_nccl_logger logger)
{
    (void)logger;
    return init(4, context, mask, hash, name, rank, size, nodes);
}

EXPORT struct mu_nccl_profiler1 ncclProfiler_v1 = { "muster", init_v1,     start_v1,
                                                    stop,     record_none, finalize };
EXPORT struct mu_nccl_profiler1 ncclProfiler_v2 = { "muster", init_v2,     start_v2,
                                                    stop,     record_none, finalize };
EXPORT struct mu_nccl_profiler1 ncclProfiler_v3 = { "muster", init_v3,     start_v3,
                                                    stop3,    record_none, finalize };
EXPORT struct mu_nccl_profiler4 ncclProfiler_v4 = { "muster", init_v4, start_v4,
                                                    stop,     record,  finalize };
EXPORT struct mu_nccl_profiler5 ncclProfiler_v5 = { "muster", init_v5, start_v5,
                                                    stop,     record,  finalize };
EXPORT struct mu_nccl_profiler5 ncclProfiler_v6 = { "muster", init_v6, start_v6,
                                                    stop,     record,  finalize };
EXPORT struct mu_nccl_profiler5 ncclProfiler_v7 = { "muster", init_v7, start_v7,
                                                    stop,     record,  finalize };
