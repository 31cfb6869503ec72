/* SPDX-License-Identifier: BSD-3-Clause */
/* coll.c - start, join and gather, with the flight record and a deadline */
#include "runtime/comm/comm.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/base/parse.h"
#include "runtime/core/dtype.h"

/* The ranks number their collectives alike; a message between two is none. */
static bool is_counted(const struct mu_coll *coll)
{
    return coll->kind != MU_COLL_PAIR;
}

static size_t bytes_of(const struct mu_coll *coll)
{
    return coll->count * mu_dtype_size(coll->dtype);
}

int mu_comm_interrupted(struct mu_comm *comm, struct mu_err *err)
{
    if (comm->interrupt.code == 0)
        return 0;
    mu_err_set(err, comm->interrupt.code, "%s", comm->interrupt.text);
    if (!comm->interrupt_all)
        comm->interrupt.code = 0;
    return -1;
}

void mu_comm_waits(struct mu_comm *comm, const char *what)
{
    struct mu_comm *top = comm->top ? comm->top : comm;

    if (!top->has_groups)
        return;
    pthread_mutex_lock(&top->flight_lock);
    top->waits.in = what ? comm : NULL;
    top->waits.since = what ? mu_clock_s() : 0;
    mu_copy(top->waits.what, sizeof top->waits.what, what ? what : "");
    pthread_mutex_unlock(&top->flight_lock);
}

/* The rank that a message waits for; -1: none. */
static void set_partner(struct mu_comm *comm, int rank)
{
    pthread_mutex_lock(&comm->flight_lock);
    comm->flight.partner = rank + 1;
    pthread_mutex_unlock(&comm->flight_lock);
}

static void enter(struct mu_comm *comm, const struct mu_coll *coll,
                  struct mu_started *out)
{
    pthread_mutex_lock(&comm->flight_lock);
    out->number = mu_flight_enter(
        &comm->flight, coll->what,
        coll->owner.object == MU_OWNER_LIBRARY ? 0 : bytes_of(coll), mu_clock_tick_s());
    if (!comm->ops->compares)
        mu_flight_order(&comm->flight, out->number, comm->ordered, comm->order);
    comm->flight.mixes = comm->mixes;
    pthread_mutex_unlock(&comm->flight_lock);
}

int mu_coll_start(struct mu_comm *comm, const struct mu_coll *coll,
                  struct mu_started *out, struct mu_err *err)
{
    struct mu_coll recorded = *coll;

    if (mu_comm_interrupted(comm, err) < 0)
        return -1;
    *out = (struct mu_started){ .partner = -1 };
    if (is_counted(coll)) {
        enter(comm, coll, out);
        if (comm->ledger.head)
            mu_record_begin(comm, &recorded, out);
    } else {
        out->partner = coll->from >= 0 ? coll->from : coll->to;
    }
    if (comm->ops->start(comm->backend, &recorded, &out->request, err) == 0) {
        if (out->record)
            mu_ledger_end(&comm->ledger, out->record);
        return 0;
    }
    if (is_counted(coll)) {
        pthread_mutex_lock(&comm->flight_lock);
        mu_flight_cancel(&comm->flight, out->number);
        pthread_mutex_unlock(&comm->flight_lock);
    }
    return mu_comm_fail(comm, err);
}

int mu_coll_join(struct mu_comm *comm, const struct mu_started *started,
                 const char *what, void *stream, struct mu_err *err)
{
    int rc;

    if (started->partner >= 0)
        set_partner(comm, started->partner);
    mu_comm_waits(comm, what);
    if (comm->control)
        mu_control_wait_begin(comm->control, what, started->within);
    rc = comm->ops->join(comm->backend, started->request, stream, err);
    if (comm->control)
        mu_control_wait_end(comm->control);
    mu_comm_waits(comm, NULL);
    if (started->partner >= 0)
        set_partner(comm, -1);
    if (rc < 0)
        return mu_comm_fail(comm, err);
    if (started->number == 0)
        return 0;
    if (started->record)
        mu_record_joined(comm, started);
    pthread_mutex_lock(&comm->flight_lock);
    mu_flight_leave(&comm->flight, started->number, mu_clock_tick_s());
    pthread_mutex_unlock(&comm->flight_lock);
    return 0;
}

int mu_coll_run(struct mu_comm *comm, const struct mu_coll *coll, struct mu_err *err)
{
    struct mu_coll joined = *coll;
    struct mu_started started;

    joined.joined = true;
    if (mu_coll_start(comm, &joined, &started, err) < 0)
        return -1;
    return mu_coll_join(comm, &started, coll->what, coll->stream, err);
}

/* A world of one has only its own data. */
static int gather_alone(const void *data, size_t len, struct mu_gathered *out,
                        struct mu_err *err)
{
    struct mu_gathered g = { malloc(len + 1), malloc(sizeof *g.at),
                             malloc(sizeof *g.len) };

    if (!g.blob || !g.at || !g.len) {
        mu_gathered_clear(&g);
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory");
    }
    if (len > 0)
        memcpy(g.blob, data, len);
    g.at[0] = g.blob;
    g.len[0] = len;
    *out = g;
    return 0;
}

/* What a rank meets the others for; the last is a gather too. */
enum meeting { BARRIER, GATHER, FINALIZE };

/* A barrier and a gather begin with this all-reduce of the host backend, where the one
 * is all that a barrier needs. *gathers: some rank is in a gather.
 */
static struct mu_coll opening(enum meeting meeting, const char *what, int32_t *gathers)
{
    uint32_t part = meeting == FINALIZE ? MU_PART_FINALIZE : 0;

    return (struct mu_coll){ .kind = MU_COLL_ALLREDUCE,
                             .dtype = MUSTER_I32,
                             .op = MUSTER_MAX,
                             .send = gathers,
                             .recv = gathers,
                             .count = 1,
                             .scale = 1,
                             .joined = true,
                             .what = what,
                             .owner = { MU_OWNER_LIBRARY, part, 0 } };
}

/* The same on all ranks: none has a backend yet, or each one's was aborted. */
static bool has_openings(const struct mu_comm *comm)
{
    return comm->control && comm->backend && comm->ops->compares &&
           !comm->ops->broken(comm->backend);
}

/* A rank that is in a barrier while another one gathers sees it in the opening, and
 * enters that gather: the root of control then compares the names. *out stays empty
 * when all ranks are in a barrier.
 */
static int meet(struct mu_comm *comm, enum meeting meeting, const char *what,
                const void *data, size_t len, struct mu_gathered *out,
                struct mu_err *err)
{
    struct mu_control *control = comm->control;
    bool barrier = meeting == BARRIER;
    int32_t gathers = !barrier;
    struct mu_coll coll = opening(meeting, what, &gathers);
    struct mu_request *request;
    struct mu_err ignored;
    int rc = 0, joined;

    mu_err_clear(&ignored);
    if (!has_openings(comm))
        return mu_control_gather(control, what, data, len, out, err);
    if (comm->ops->start(comm->backend, &coll, &request, err) < 0)
        return -1;
    if (!barrier)
        rc = mu_control_gather(control, what, data, len, out, err);
    /* In a gather all ranks have entered it, or the failure of control ends it. */
    mu_control_wait_begin(control, what, 0);
    joined = comm->ops->join(comm->backend, request, NULL, barrier ? err : &ignored);
    mu_control_wait_end(control);
    if (barrier && joined == 0 && gathers)
        return mu_control_gather(control, what, data, len, out, err);
    return barrier ? joined : rc;
}

static int enter_and_meet(struct mu_comm *comm, enum meeting meeting, const char *what,
                          const void *data, size_t len, struct mu_gathered *out,
                          struct mu_err *err)
{
    uint64_t number;
    int rc;

    if (mu_comm_interrupted(comm, err) < 0)
        return -1;
    if (!comm->control)
        return gather_alone(data, len, out, err);
    pthread_mutex_lock(&comm->flight_lock);
    number = mu_flight_enter(&comm->flight, what, len, mu_clock_s());
    pthread_mutex_unlock(&comm->flight_lock);
    mu_comm_waits(comm, what);
    rc = meet(comm, meeting, what, data, len, out, err);
    mu_comm_waits(comm, NULL);
    if (rc < 0)
        return mu_comm_fail(comm, err);
    pthread_mutex_lock(&comm->flight_lock);
    mu_flight_leave(&comm->flight, number, mu_clock_s());
    pthread_mutex_unlock(&comm->flight_lock);
    return 0;
}

int mu_gather(struct mu_comm *comm, const char *what, const void *data, size_t len,
              struct mu_gathered *out, struct mu_err *err)
{
    return enter_and_meet(comm, GATHER, what, data, len, out, err);
}

int mu_gather_finalize(struct mu_comm *comm, struct mu_gathered *out,
                       struct mu_err *err)
{
    return enter_and_meet(comm, FINALIZE, "muster_finalize", NULL, 0, out, err);
}

int mu_drain(struct mu_comm *comm, void *stream, struct mu_err *err)
{
    return comm->ops->drain(comm->backend, stream, err) < 0 ? mu_comm_fail(comm, err)
                                                            : 0;
}

int mu_quiet(struct mu_comm *comm, struct mu_err *err)
{
    return comm->ops->quiet && comm->ops->quiet(comm->backend, err) < 0
               ? mu_comm_fail(comm, err)
               : 0;
}

int mu_barrier(struct mu_comm *comm, struct mu_err *err)
{
    struct mu_gathered all = { 0 };

    if (mu_drain(comm, NULL, err) < 0 ||
        enter_and_meet(comm, BARRIER, "muster_barrier", NULL, 0, &all, err) < 0)
        return -1;
    mu_gathered_clear(&all);
    return 0;
}
