/* SPDX-License-Identifier: BSD-3-Clause */
/* recover.c - what a public call does with its error */
#include "runtime/recover/recover.h"

#include <string.h>

/* Where another world is open, it ends the job. */
static void end_stuck(void *arg, const struct mu_err *why)
{
    const struct mu_view view = { .sight = MU_SAW_EARLY_FAILURE };

    mu_verdict_take_turn(arg, &view, why);
}

void mu_recover_init(struct mu_recover *recover, struct mu_comm *comm)
{
    *recover = (struct mu_recover){ .comm = comm };
    comm->world->stuck = end_stuck;
    comm->world->stuck_arg = recover;
    comm->hooks =
        (struct mu_comm_hooks){ recover, mu_verdict_alarmed, mu_verdict_ended };
}

void mu_recover_clear(struct mu_recover *recover)
{
    mu_survive_close(recover->survive);
}

void mu_recover_add(struct mu_recover *recover, struct mu_resettable *r)
{
    r->next = recover->resettables;
    recover->resettables = r;
}

void mu_recover_remove(struct mu_recover *recover, const struct mu_resettable *r)
{
    for (struct mu_resettable **at = &recover->resettables; *at; at = &(*at)->next)
        if (*at == r) {
            *at = r->next;
            return;
        }
}

void mu_recover(struct mu_recover *recover, struct mu_err *err)
{
    struct mu_comm *comm = recover->comm;

    mu_verdict_await(recover, err);
    if (mu_elastic_wanted(recover))
        mu_elastic_shrink(recover, err);
    if (err->code != MUSTER_ESHRUNK)
        return;
    for (struct mu_resettable *r = recover->resettables; r; r = r->next)
        r->drop(r->arg);
    /* The ranks were at different places of their step. */
    comm->order = comm->ordered = 0;
    comm->mixes = comm->ddps > 1 && !comm->ops->compares;
}

void mu_recover_start(struct mu_recover *recover, struct mu_err *err)
{
    struct mu_comm *comm = recover->comm;
    struct mu_view view = comm->world->view;
    int rank = comm->world->rank;

    /* The ranks that this process joins go on without it, as after a death. */
    if (comm->world->size == 1 || comm->world->joins)
        return;
    if (comm->control) {
        mu_comm_announce(comm, err->code == MUSTER_EPEER ? -1 : rank, err);
        comm->failed = true;
        mu_verdict_await(recover, err);
        return;
    }
    if (err->code != MUSTER_EPEER) {
        view.place = rank; /* all ranks may fail alike */
        if (view.sight != MU_SAW_EARLY_UNNAMED)
            view.sight = MU_SAW_EARLY_FAILURE;
    }
    view.returns = comm->config.return_failure;
    mu_verdict_take_turn(recover, &view, err);
}

/* A rank that dies meanwhile does not keep the others from a good end. */
int mu_recover_finish(struct mu_recover *recover, struct mu_err *err)
{
    struct mu_comm *comm = recover->comm;
    struct mu_gathered all;

    if (!comm->interrupt_all)
        comm->interrupt.code = 0;
    recover->finishing = true;
    /* A rank that decides alone may do so when others have left in order. */
    if (comm->control && !atomic_load(&comm->armed))
        mu_control_report_immediately(comm->control, false);
    while (mu_gather_finalize(comm, &all, err) < 0) {
        mu_verdict_await(recover, err);
        if (mu_elastic_wanted(recover))
            mu_elastic_shrink(recover, err);
        if (err->code != MUSTER_ESHRUNK) {
            /* The control thread may be about to abort the backend. */
            mu_verdict_await_abort(recover);
            return -1;
        }
    }
    mu_gathered_clear(&all);
    return 0;
}

int mu_grow(struct mu_recover *recover, int *joined, struct mu_err *err)
{
    struct mu_comm *comm = recover->comm;
    struct mu_gathered all = { 0 };
    int32_t waiting = 0;

    *joined = 0;
    if (comm->world->rank == 0)
        waiting = mu_survive_waiting(recover->survive);
    if (mu_quiet(comm, err) < 0 ||
        mu_gather(comm, "muster_grow", &waiting, sizeof waiting, &all, err) < 0) {
        mu_verdict_await(recover, err);
        if (!mu_elastic_wanted(recover))
            return -1;
        return mu_elastic_grow(recover, false, joined, err);
    }
    memcpy(&waiting, all.at[0], sizeof waiting);
    mu_gathered_clear(&all);
    return waiting > 0 ? mu_elastic_grow(recover, true, joined, err) : 0;
}
