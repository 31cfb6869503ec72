/* SPDX-License-Identifier: BSD-3-Clause */
/* elastic.c - elastic worlds: when ranks die the others go on with fewer, and newcomers
 * join between two steps
 *
 *   a wait fails, or the control connections report a death
 *        |  every survivor, at the end of its present call or of the next one
 *   drop the work that has begun; close the control connections
 *        |
 *   mu_survive_agree: which ranks are left, how many syncs each has done  <---.
 *        |                                                                    |
 *   number ranks, nodes and local ranks anew                                  |
 *        |                                                                    |
 *   open control and backend again, over the survivors' exchange; the new     |
 *   backend takes over the memory in place -- another death? -----------------'
 *        |
 *   the call returns MUSTER_ESHRUNK
 *
 * For newcomers the ranks agree to begin the same way, without a death. The agreement
 * then contains the newcomers, and muster_grow returns MUSTER_OK.
 *
 * Equal weights: a sync ends with a vote, and returns MUSTER_OK only when every rank
 * has voted that its gradients are complete. When one survivor has returned MUSTER_OK,
 * each other one has voted and has the same gradients. It returns MUSTER_OK too, and
 * its next call returns MUSTER_ESHRUNK. When one survivor has not voted, none has
 * returned MUSTER_OK. Either way all of them have done the same number of steps.
 */
#include "runtime/recover/recover.h"

#include <dlfcn.h>
#include <stdlib.h>

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/parse.h"
#include "runtime/core/text.h"
#include "runtime/recover/change.h"

#define LINK_SECONDS 5.0 /* all ranks are up: a death meanwhile costs at most this */
#define SAME_AGAIN 2     /* attempts with the same survivors */

/* ---- Before a death ---- */

static int lost_early(const struct mu_recover *recover, int rank, struct mu_err *err)
{
    const struct mu_world *w = recover->comm->world;
    const struct mu_rank_name who = { .rank = rank, .host = w->host_of[rank] };
    enum mu_death death = mu_change_death(recover, rank);

    return mu_death_err(death == MU_DEATH_ENDED ? MU_DEATH_EARLY : death, &who, err);
}

/* An MPI library is in this program, and MPI_Init was not called. */
static bool mpi_is_late(void)
{
    int (*initialized)(int *) = NULL;
    int flag = 1;

    *(void **)&initialized = dlsym(RTLD_DEFAULT, "MPI_Initialized");
    return initialized && initialized(&flag) == 0 && !flag;
}

/* A launcher that notices a death ends the step, so the ranks leave it. Its only
 * service, the exchange, they do themselves: their first agreement is on all of them.
 */
static int leave_launcher(struct mu_recover *recover, struct mu_err *err)
{
    struct mu_comm *comm = recover->comm;
    const int64_t ballot[MU_SURVIVE_BALLOT] = { 0 };

    if (mu_survive_agree(recover->survive, ballot, false, comm->config.init_timeout,
                         err) < 0)
        return -1;
    for (int r = 0; r < comm->world->size; r++)
        if (mu_survive_life(recover->survive, r) != MU_LIVES)
            return lost_early(recover, r, err);
    comm->world->exchange = mu_survive_exchange(recover->survive);
    comm->world->generation = mu_survive_generation(recover->survive);
    if (comm->world->rank == 0 && comm->world->leave && mpi_is_late())
        mu_log(&comm->log, MU_LOG_WARN,
               "rank 0 (node %s) is elastic and leaves PMIx, so that a later MPI_Init "
               "fails: call MPI_Init before muster_init",
               comm->world->host);
    mu_world_leave(comm->world);
    return 0;
}

/* The ranks survive a death from now on. */
static void arm(struct mu_comm *comm)
{
    if (!atomic_exchange(&comm->armed, true) && comm->control)
        mu_control_report_immediately(comm->control, true);
}

/* The agreement of the ranks that this process has joined. */
static void take_over(struct mu_recover *recover)
{
    struct mu_comm *comm = recover->comm;

    recover->survive = comm->world->survive;
    comm->world->survive = NULL;
    recover->commits = (uint64_t)mu_survive_ballot(
        recover->survive, comm->world->rank)[MU_BALLOT_COMMITS];
    comm->syncs = recover->commits;
    comm->ddps = mu_change_ddps(recover);
    comm->elastic = true;
    mu_endpoint_set_log(comm->world->endpoint, &comm->log, 1);
    arm(comm);
}

int mu_elastic_open(struct mu_recover *recover, struct mu_err *err)
{
    struct mu_comm *comm = recover->comm;

    if (!comm->config.elastic || !comm->control)
        return 0;
    comm->elastic = true;
    if (mu_survive_open(comm->world, &recover->survive, err) < 0 ||
        leave_launcher(recover, err) < 0)
        return -1;
    return mu_grow_publish(recover, err);
}

bool mu_elastic_wanted(struct mu_recover *recover)
{
    struct mu_comm *comm = recover->comm;
    struct mu_err why = { 0 };

    return comm->control && !recover->group && !recover->nested &&
           mu_control_failed(comm->control, &why) &&
           mu_verdict_survived(recover, why.code, mu_control_guilty(comm->control));
}

int mu_elastic_commit(struct mu_recover *recover, void *stream, const char *what,
                      const void *data, size_t len, struct mu_gathered *all,
                      struct mu_err *err)
{
    struct mu_comm *comm = recover->comm;
    int rc = 0;

    if (!recover->survive || !comm->control) {
        rc = len > 0 ? mu_gather(comm, what, data, len, all, err) : 0;
    } else {
        if (mu_drain(comm, stream, err) < 0)
            return -1;
        arm(comm);
        recover->voting = true;
        if (mu_gather(comm, what, data, len, all, err) < 0) {
            mu_verdict_await(recover, err);
            rc = mu_elastic_wanted(recover) ? mu_elastic_shrink(recover, err) : -1;
        }
        recover->voting = false;
    }
    recover->commits += rc == 0;
    return rc;
}

/* ---- The job ends, or goes on ---- */

static void end_job(struct mu_recover *recover, const struct mu_err *err, bool alone)
{
    struct mu_comm *comm = recover->comm;
    const struct mu_view view = { .sight = MU_SAW_DECISION,
                                  .mine = mu_survive_leads(recover->survive),
                                  .cut_off = alone,
                                  .returns = comm->config.return_failure };

    comm->interrupt = *err;
    comm->interrupt_all = true;
    mu_verdict_take_turn(recover, &view, err);
}

/* Rank 0 prints it once for the user; the next collective of each rank fails with it.
 * seen: the death that this rank was interrupted by. The survivors also miss the ranks
 * that have left muster_finalize in order.
 */
static void report_shrink(struct mu_recover *recover, struct mu_change *s,
                          const struct mu_err *seen)
{
    struct mu_comm *comm = recover->comm;

    if (s->all_finish && s->ndead > 1)
        mu_copy(s->dead, sizeof s->dead, seen->text);
    mu_err_set(&comm->interrupt, MUSTER_ESHRUNK,
               "%s; %d of %d ranks go on, and this rank is now rank %d", s->dead,
               comm->world->size, s->size_before, comm->world->rank);
    if (comm->world->rank == 0)
        mu_print_line("%s; %d of %d ranks go on, after %.2f s", s->dead,
                      comm->world->size, s->size_before, mu_clock_s() - s->began);
}

static void report_growth(struct mu_recover *recover, const struct mu_change *s)
{
    struct mu_comm *comm = recover->comm;

    comm->grown++;
    comm->order = comm->ordered = 0;
    comm->mixes = false;
    if (comm->world->rank == 0)
        mu_print_line("%s%s%d rank%s joined; %d ranks go on, after %.2f s", s->dead,
                      s->dead_len ? "; " : "", s->njoined, mu_plural(s->njoined),
                      comm->world->size, mu_clock_s() - s->began);
}

static int connect_again(struct mu_recover *recover, struct mu_err *err)
{
    struct mu_comm *comm = recover->comm;
    double init = comm->config.init_timeout;
    int rc;

    comm->world->exchange = mu_survive_exchange(recover->survive);
    rc = mu_comm_reconnect(comm, init < LINK_SECONDS ? init : LINK_SECONDS, err);
    if (rc < 0)
        mu_verdict_await(recover, err); /* another death, or the end of the job */
    return rc;
}

/* together: no rank has died so far. */
static int reform(struct mu_recover *recover, struct mu_change *s, bool together,
                  bool *alone, struct mu_err *err)
{
    struct mu_comm *comm = recover->comm;
    double patience =
        comm->control ? mu_control_patience(comm->control) : comm->config.timeout;
    int left, before = 0, same = 0, rc = -1;

    while (rc < 0) {
        mu_comm_disconnect(comm, together);
        together = false;
        left = mu_change_agree(recover, s, patience, alone, err);
        if (left < 0)
            return -1;
        same = left == before ? same + 1 : 1;
        before = left;
        rc = connect_again(recover, err);
        if (rc < 0 && same == SAME_AGAIN)
            return mu_err_context(
                err, "%d rank%s %s left, but cannot connect to each other again", left,
                mu_plural(left), left == 1 ? "is" : "are");
        if (rc < 0)
            mu_log(&comm->log, MU_LOG_INFO, "trying again to connect the survivors: %s",
                   err->text);
    }
    return 0;
}

static int change(struct mu_recover *recover, struct mu_change *s, bool together,
                  struct mu_err *err)
{
    bool alone = false;

    for (struct mu_resettable *r = recover->resettables; r; r = r->next)
        r->drop(r->arg);
    s->was = calloc((size_t)s->size_before, sizeof *s->was);
    for (int r = 0; s->was && r < s->size_before; r++)
        s->was[r] = r;
    if (!s->was)
        mu_err_set(err, MUSTER_EMEMORY, "out of memory");
    if (!s->was || reform(recover, s, together, &alone, err) < 0) {
        free(s->was);
        end_job(recover, err, alone);
        return -1;
    }
    free(s->was);
    recover->comm->generation++;
    mu_grow_follow(recover);
    return 0;
}

int mu_elastic_shrink(struct mu_recover *recover, struct mu_err *err)
{
    struct mu_comm *comm = recover->comm;
    struct mu_change s = { .began = mu_clock_s(), .size_before = comm->world->size };
    const struct mu_err seen = *err;

    /* The control thread may be about to abort the backend. */
    mu_verdict_await_abort(recover);
    if (change(recover, &s, false, err) < 0)
        return -1;
    report_shrink(recover, &s, &seen);
    if (recover->voting && s.commits > (int64_t)recover->commits)
        return 0;
    return mu_comm_interrupted(comm, err);
}

int mu_elastic_grow(struct mu_recover *recover, bool together, int *joined,
                    struct mu_err *err)
{
    struct mu_comm *comm = recover->comm;
    struct mu_change s = { .began = mu_clock_s(), .size_before = comm->world->size };
    int rc;

    arm(comm);
    if (!together)
        mu_verdict_await_abort(recover);
    recover->growing = true;
    rc = change(recover, &s, together, err);
    recover->growing = false;
    if (rc < 0)
        return -1;
    *joined = s.njoined;
    if (s.njoined > 0)
        report_growth(recover, &s);
    if (s.njoined > 0 || s.ndead == 0)
        return 0;
    report_shrink(recover, &s, err);
    return mu_comm_interrupted(comm, err);
}

/* The other ranks do the same in mu_elastic_grow. */
int mu_elastic_join(struct mu_recover *recover, struct mu_err *err)
{
    struct mu_change s = { .began = mu_clock_s(),
                           .size_before = recover->comm->world->size };
    int rc;

    take_over(recover);
    recover->growing = true;
    rc = connect_again(recover, err);
    if (rc < 0)
        rc = change(recover, &s, false, err);
    recover->growing = false;
    return rc;
}
