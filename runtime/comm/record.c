/* SPDX-License-Identifier: BSD-3-Clause */
/* record.c - the ledger's record of a collective, as NCCL's profiler writes it for NCCL
 *
 * On a GPU that plugin has them, in a file of its own; here buckets alone are timed.
 * A rank waits for the others inside a collective. So its time here is what a kernel's
 * is on a GPU, and muster report finds the rank that began last.
 */
#include <string.h>

#include "runtime/base/parse.h"
#include "runtime/comm/comm.h"
#include "runtime/core/dtype.h"

/* Equal on all ranks of a group, and of no other group or generation. */
static uint64_t hash_of(const struct mu_comm *comm)
{
    const struct mu_world *w = comm->world;
    uint64_t hash = mu_hash(0, &w->generation, sizeof w->generation);

    for (int r = 0; r < w->size; r++) {
        hash = mu_hash(hash, w->host_of[r], strlen(w->host_of[r]) + 1);
        if (w->pid_of)
            hash = mu_hash(hash, &w->pid_of[r], sizeof w->pid_of[r]);
    }
    return hash ? hash : 1;
}

uint32_t mu_record_comm(struct mu_comm *comm)
{
    const struct mu_world *w = comm->world;

    if (!comm->recorded || comm->recorded_generation != comm->generation)
        comm->recorded = mu_ledger_comm(&comm->ledger, hash_of(comm), "libmuster",
                                        w->rank, w->size, w->nnodes);
    comm->recorded_generation = comm->generation;
    return (uint32_t)(comm->recorded - comm->ledger.comms);
}

static bool is_shared(const struct mu_comm *comm)
{
    return strcmp(comm->ops->transport(comm->backend), "shared memory") == 0;
}

void mu_record_begin(struct mu_comm *comm, struct mu_coll *coll, struct mu_started *out)
{
    static const char *const names[] = { "AllReduce",     "Broadcast", "AllGather",
                                         "ReduceScatter", "Barrier",   "Reduce",
                                         "AlltoAll" };
    struct mu_ledger_call call;

    if (coll->timed && comm->ledger.buckets && comm->ops->moment) {
        out->times = (struct mu_coll_times){ 0 };
        coll->times = &out->times;
    }
    if (!comm->ops->host_memory || (size_t)coll->kind >= sizeof names / sizeof names[0])
        return;
    call = (struct mu_ledger_call){
        .sequence = out->number, .count = coll->count, .channels = 1, .algo = "HOST"
    };
    call.comm = mu_record_comm(comm);
    call.element = (uint8_t)mu_dtype_size(coll->dtype);
    mu_copy(call.func, sizeof call.func, names[coll->kind]);
    mu_copy(call.proto, sizeof call.proto, is_shared(comm) ? "SHM" : "TCP");
    out->times = (struct mu_coll_times){ 0 };
    coll->times = &out->times;
    out->record = mu_ledger_begin(&comm->ledger, &call);
}

void mu_record_joined(struct mu_comm *comm, const struct mu_started *started)
{
    void *channel;

    if (started->times.ended == 0)
        return;
    channel = mu_ledger_channel(&comm->ledger, started->record,
                                (uint64_t)started->times.began);
    mu_ledger_channel_time(&comm->ledger, channel, (uint64_t)started->times.ended);
    mu_ledger_end(&comm->ledger, channel);
}
