/* SPDX-License-Identifier: BSD-3-Clause */
/* preload.c - NCCL's functions that libmuster-nccl carries out or must see
 *
 * All of them call NCCL's own function, but ncclAllReduce where Muster carries it out.
 * Nothing that Muster does changes the result of another function.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/log.h"
#include "runtime/nccl/nccl_abi.h"
#include "runtime/nccl/real.h"
#include "runtime/nccl/served.h"
#include "runtime/nccl/tally.h"

#define EXPORT __attribute__((visibility("default")))
#define LINE 600

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

/* Is the communicator complete, and on which GPU? A non-blocking one is not. */
static bool is_complete(void *comm, int *device)
{
    mu_nccl_result (*async)(void *, mu_nccl_result *), (*gpu)(void *, int *);
    mu_nccl_result state = MU_NCCL_INVALID_USAGE;

    *(void **)(void *)&async = mu_real("ncclCommGetAsyncError");
    *(void **)(void *)&gpu = mu_real("ncclCommCuDevice");
    return async && gpu && async(comm, &state) == MU_NCCL_SUCCESS &&
           state == MU_NCCL_SUCCESS && gpu(comm, device) == MU_NCCL_SUCCESS;
}

static bool begin_making(void)
{
    bool outer = !making;

    making = true;
    return outer;
}

static void made(mu_nccl_result rc, void **comm, const void *id, size_t id_len,
                 int rank, int size)
{
    struct mu_served_new n = { .id = id, .id_len = id_len, .rank = rank, .size = size };

    making = false;
    if (preload.mode == OFF || rc != MU_NCCL_SUCCESS)
        return;
    if (rank == 0 && preload.wrong)
        mu_log(&preload.log, MU_LOG_WARN, "MUSTER_NCCL is on, off or watch, not '%s'",
               getenv("MUSTER_NCCL"));
    if (rank == 0)
        atomic_store(&preload.leader, (int)getpid());
    if (size < 2)
        return;
    if (preload.mode == WATCH) {
        mu_tally_reason("MUSTER_NCCL=on is not set");
    } else if (group_depth > 0) {
        mu_tally_reason("it was made inside a group");
    } else if (!is_complete(*comm, &n.device)) {
        mu_tally_reason("it is non-blocking");
    } else {
        n.comm = *comm;
        mu_served_open(&n, &preload.log);
    }
}

mu_nccl_result ncclCommInitRank(void **comm, int size, struct mu_nccl_id id, int rank)
{
    REAL(ncclCommInitRank);
    bool outer = begin_making();
    mu_nccl_result rc = real(comm, size, id, rank);

    if (outer)
        made(rc, comm, &id, sizeof id, rank, size);
    return rc;
}

mu_nccl_result ncclCommInitRankConfig(void **comm, int size, struct mu_nccl_id id,
                                      int rank, void *config)
{
    REAL(ncclCommInitRankConfig);
    bool outer = begin_making();
    mu_nccl_result rc = real(comm, size, id, rank, config);

    if (outer)
        made(rc, comm, &id, sizeof id, rank, size);
    return rc;
}

mu_nccl_result ncclCommInitRankScalable(void **comm, int size, int rank, int n,
                                        struct mu_nccl_id *ids, void *config)
{
    REAL(ncclCommInitRankScalable);
    bool outer = begin_making();
    mu_nccl_result rc = real(comm, size, rank, n, ids, config);

    if (outer)
        made(rc, comm, ids, n > 0 ? (size_t)n * sizeof *ids : 0, rank, size);
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
    mu_served_end(comm, false);
    return real(comm);
}

mu_nccl_result ncclCommAbort(void *comm)
{
    REAL(ncclCommAbort);
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
    if (group_depth > 0)
        group_depth--;
    return real();
}

/* Inside a group too, Muster starts its kernel at once: it waits for no other call of
 * the group, and whether there is a group may differ among the ranks.
 */
mu_nccl_result ncclAllReduce(const void *send, void *recv, size_t count, int type,
                             int op, void *comm, void *stream)
{
    REAL(ncclAllReduce);
    const struct mu_served_call call = { .comm = comm,
                                         .send = send,
                                         .recv = recv,
                                         .count = count,
                                         .type = type,
                                         .op = op,
                                         .stream = stream };
    mu_nccl_result rc = MU_NCCL_SUCCESS;
    enum mu_fate fate;
    size_t bytes = 0;

    if (preload.mode == OFF)
        return real(send, recv, count, type, op, comm, stream);
    fate = mu_served_allreduce(&call, &bytes, &rc);
    mu_tally_add(fate, bytes);
    return fate == MU_CARRIED ? rc : real(send, recv, count, type, op, comm, stream);
}
