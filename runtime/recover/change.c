/* SPDX-License-Identifier: BSD-3-Clause */
/* change.c - the agreement on a change of an elastic world: who is left or joins, may
 * they go on, and which rank each one is
 */
#include "runtime/recover/change.h"

#include <stdlib.h>

#include "runtime/base/array.h"
#include "runtime/core/text.h"

enum mu_death mu_change_death(const struct mu_recover *recover, int rank)
{
    return mu_survive_life(recover->survive, rank) == MU_SILENT ? MU_DEATH_UNREACHABLE
                                                                : MU_DEATH_ENDED;
}

int mu_change_ddps(const struct mu_recover *recover)
{
    int64_t most = 0;

    for (int r = 0; r < recover->comm->world->size; r++)
        if (mu_survive_ballot(recover->survive, r)[MU_BALLOT_DDPS] > most)
            most = mu_survive_ballot(recover->survive, r)[MU_BALLOT_DDPS];
    return (int)most;
}

static void name_dead(const struct mu_recover *recover, struct mu_change *s, int rank)
{
    struct mu_comm *comm = recover->comm;
    const struct mu_world *w = comm->world;
    const struct mu_rank_name who = { s->was[rank], w->host_of[rank], w->pid_of[rank] };
    enum mu_death death = mu_change_death(recover, rank);
    char phrase[256];

    mu_death_phrase(death, &who, phrase, sizeof phrase);
    s->nsilent += death == MU_DEATH_UNREACHABLE;
    if (s->ndead++ < 4)
        mu_text_add(s->dead, sizeof s->dead, &s->dead_len, "%s%s",
                    s->dead_len ? ", " : "", phrase);
    else if (s->ndead == 5)
        mu_text_add(s->dead, sizeof s->dead, &s->dead_len, " and others");
}

/* Two halves that cannot reach each other must not both go on: the smaller one ends. */
static bool is_minority(const struct mu_change *s, bool first_lives)
{
    return s->nsilent > 0 && (2 * s->old < s->size_before ||
                              (2 * s->old == s->size_before && !first_lives));
}

static int count_ballots(struct mu_recover *recover, struct mu_change *s,
                         int *finishing)
{
    struct mu_comm *comm = recover->comm;
    int64_t most = 0;

    s->commits = INT64_MAX;
    for (int r = 0; r < comm->world->size; r++) {
        const int64_t *ballot = mu_survive_ballot(recover->survive, r);

        if (mu_survive_life(recover->survive, r) != MU_LIVES)
            continue;
        *finishing += ballot[MU_BALLOT_FINISHING] != 0;
        if (ballot[MU_BALLOT_COMMITS] + ballot[MU_BALLOT_VOTING] < s->commits)
            s->commits = ballot[MU_BALLOT_COMMITS] + ballot[MU_BALLOT_VOTING];
        if (ballot[MU_BALLOT_COMMITS] > most)
            most = ballot[MU_BALLOT_COMMITS];
    }
    return most <= s->commits ? 0 : -1;
}

/* May the survivors go on? All come to the same answer, except a minority that is cut
 * off.
 */
static int judge(struct mu_recover *recover, struct mu_change *s, int left,
                 bool first_lives, bool *alone, struct mu_err *err)
{
    struct mu_comm *comm = recover->comm;
    int finishing = 0, rc = count_ballots(recover, s, &finishing);

    s->all_finish = finishing == left;
    *alone = is_minority(s, first_lives);
    if (*alone)
        return mu_err_set(
            err, MUSTER_EPEER,
            "%s; the %d rank%s on this side end%s, because the others may go on",
            s->dead, left, mu_plural(left), left == 1 ? "s" : "");
    /* In muster_finalize nothing is lost, and the others may have left it in order. */
    if (left < comm->config.elastic && !s->all_finish)
        return mu_err_set(
            err, MUSTER_EPEER,
            "%s; %d rank%s %s left, but MUSTER_ELASTIC asks for at least %d", s->dead,
            left, mu_plural(left), left == 1 ? "is" : "are", comm->config.elastic);
    if (finishing > 0 && !s->all_finish)
        return mu_err_set(err, MUSTER_EPEER,
                          "%s; cannot continue: %d ranks had already called "
                          "muster_finalize, %d had not",
                          s->dead, finishing, left - finishing);
    if (rc < 0)
        return mu_err_set(err, MUSTER_EINTERNAL,
                          "%s; cannot continue: the other ranks are in different steps",
                          s->dead);
    return 0;
}

/* The ranks that the agreement has added become the last ones of the world. */
static int append_newcomers(struct mu_recover *recover, struct mu_change *s,
                            struct mu_err *err)
{
    struct mu_world *w = recover->comm->world;
    int n = mu_survive_newcomers(recover->survive);

    if (mu_array_extend(&s->was, sizeof *s->was, w->size, w->size + n) < 0)
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory");
    for (int i = 0; i < n; i++) {
        s->was[w->size] = s->size_before + s->njoined;
        if (mu_world_append(w, mu_survive_newcomer(recover->survive, i), err) < 0)
            return -1;
        s->njoined++;
    }
    return 0;
}

int mu_change_agree(struct mu_recover *recover, struct mu_change *s, double patience,
                    bool *alone, struct mu_err *err)
{
    struct mu_comm *comm = recover->comm;
    int64_t ballot[MU_SURVIVE_BALLOT] = { [MU_BALLOT_COMMITS] =
                                              (int64_t)recover->commits,
                                          [MU_BALLOT_VOTING] = recover->voting,
                                          [MU_BALLOT_FINISHING] = recover->finishing,
                                          [MU_BALLOT_DDPS] = comm->ddps };
    bool *keep = NULL;
    int left = 0;

    if (mu_survive_agree(recover->survive, ballot, recover->growing, patience, err) <
            0 ||
        append_newcomers(recover, s, err) < 0)
        return -1;
    keep = calloc((size_t)comm->world->size, sizeof *keep);
    if (!keep)
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory");
    s->old = 0;
    for (int r = 0; r < comm->world->size; r++) {
        keep[r] = mu_survive_life(recover->survive, r) == MU_LIVES;
        if (!keep[r]) {
            name_dead(recover, s, r);
            continue;
        }
        s->old += s->was[r] < s->size_before;
        s->was[left++] = s->was[r];
    }
    if (judge(recover, s, left, s->was[0] == 0, alone, err) < 0) {
        left = -1;
    } else {
        mu_world_shrink(comm->world, keep);
        mu_survive_settle(recover->survive);
        comm->ddps = mu_change_ddps(recover);
        comm->world->generation = mu_survive_generation(recover->survive);
    }
    free(keep);
    return left;
}
