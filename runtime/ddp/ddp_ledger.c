/* SPDX-License-Identifier: BSD-3-Clause */
/* ddp_ledger.c - when each bucket was ready, started, ended, and waited for; the times
 * of the step
 *
 * muster_ddp_ledger adds up the steps. The ledger file has the buckets too, with times
 * of the host and of its backend, or of the GPU (ddp_ledger_gpu.c). Its records are
 * written at the end of a step or later, so a step that is dropped has none.
 */
#include "runtime/base/clock.h"
#include "runtime/ddp/ddp.h"

static bool records(const struct muster_ddp *ddp)
{
    return ddp->comm->ledger.buckets;
}

void mu_ddp_ledger_ready(struct muster_ddp *ddp, int b, void *stream)
{
    if (ddp->ready.pending[b] != 0)
        return;
    ddp->bucket[b].times =
        (struct mu_ledger_bucket){ .step = ddp->step,
                                   .ready = (uint64_t)mu_clock_ns(),
                                   .bytes = ddp->plan.bucket[b].bytes,
                                   .ddp = (uint32_t)ddp->id,
                                   .bucket = (uint32_t)b };
    mu_ddp_gpu_ready(ddp, b, stream);
}

void mu_ddp_ledger_begin(struct muster_ddp *ddp)
{
    ddp->times = (struct mu_ledger_step){ .begin = mu_clock_s() };
}

void mu_ddp_ledger_launched(struct muster_ddp *ddp, int b)
{
    if (ddp->times.first_start == 0)
        ddp->times.first_start = mu_clock_s();
    if (records(ddp))
        ddp->bucket[b].times.launched = (uint64_t)mu_clock_ns();
}

void mu_ddp_ledger_sync(struct muster_ddp *ddp, void *stream)
{
    ddp->times.sync_begin = mu_clock_s();
    if (records(ddp))
        mu_ddp_gpu_sync(ddp, stream);
}

void mu_ddp_ledger_joined(struct muster_ddp *ddp, int b, int64_t since)
{
    struct mu_ddp_bucket *bucket = &ddp->bucket[b];
    struct mu_ledger_bucket *t = &bucket->times;

    mu_ddp_gpu_joined(ddp, b);
    for (int s = 0; s < bucket->nstarted; s++) {
        t->started =
            mu_ledger_earlier(t->started, (uint64_t)bucket->started[s].times.began);
        t->ended = mu_ledger_later(t->ended, (uint64_t)bucket->started[s].times.ended);
    }
    t->joined = (uint64_t)mu_clock_ns();
    t->exposed += t->joined - (uint64_t)since;
}

static void write_step(struct muster_ddp *ddp)
{
    const struct mu_ledger_step *times = &ddp->times;
    struct mu_ledger_bucket step = {
        .step = ddp->step - 1, /* it has ended */
        .begin = (uint64_t)(times->begin * 1e9),
        .joined = (uint64_t)(times->sync_end * 1e9),
        .exposed = (uint64_t)((times->sync_end - times->sync_begin) * 1e9),
        .comm = mu_record_comm(ddp->comm),
        .ddp = (uint32_t)ddp->id,
        .bucket = MU_LEDGER_STEP
    };

    if (ddp->comm->ops->moment) {
        mu_ddp_gpu_step(ddp, &step);
        return;
    }
    for (int k = 0; k < ddp->plan.nbuckets; k++)
        mu_ledger_add_to_step(&ddp->comm->ledger, &step,
                              &ddp->bucket[ddp->ready.order[k]].times);
    mu_ledger_add_bucket(&ddp->comm->ledger, &step);
}

void mu_ddp_ledger_step(struct muster_ddp *ddp)
{
    ddp->times.sync_end = mu_clock_s();
    mu_ledger_add(&ddp->ledger, &ddp->times);
    if (records(ddp))
        write_step(ddp);
    ddp->times = (struct mu_ledger_step){ .begin = ddp->times.sync_end };
}
