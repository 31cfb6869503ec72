/* SPDX-License-Identifier: BSD-3-Clause */
/* elastic.c - elastic worlds: when ranks die the others go on with fewer
 *
 *   a wait fails, or the control connections bring word of a death
 *        |  every survivor, at the end of the call that it is in or makes next
 *   what has begun is given up; control connections closed
 *        |
 *   mu_survive_agree: who is left, how many syncs each has behind it      <---.
 *        |                                                                     |
 *   ranks, nodes, local ranks numbered anew                                    |
 *        |                                                                     |
 *   control and backend opened again, over the survivors' own exchange; the    |
 *   new backend takes the memory over where it is -- another death? -----------'
 *        |
 *   the call returns MUSTER_ESHRUNK
 *
 * Equal weights: a sync ends with a vote, and returns MUSTER_OK only when every rank
 * has said that its gradients are complete. So when one survivor has had that OK, each
 * other one has voted, has the very same gradients, and is told OK here as well; its
 * next call then brings it MUSTER_ESHRUNK. And when one has not voted, none has had the
 * OK. Either way the same number of steps lies behind all of them.
 */
#include "runtime/ddp/ddp.h"
#include "runtime/recover/streams.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/boot/survive.h"
#include "runtime/core/text.h"

#define LINK_SECONDS 5.0 /* all are there: who dies on the way costs that at most */
#define SAME_AGAIN 2     /* attempts with the same survivors */

enum word { COMMITS, VOTING, FINISHING };

/* What one shrink knows; ranks are those at its start. */
struct shrink {
    double began;
    int size_before;
    int *was; /* by present rank: the rank at the start */
    char dead[512];
    size_t dead_len;
    int ndead, nsilent;
    int64_t commits; /* of all, as agreed */
};

/* ---- Before anything happens ------------------------------------------------------
 */

/* A launcher that knew of a death would end the step. What it was good for, the
 * exchange, the ranks can do for each other: they agree for the first time, on all of
 * them.
 */
static int leave_launcher(struct muster *m, struct mu_err *err)
{
    const int64_t words[MU_SURVIVE_WORDS] = { 0 };

    if (mu_survive_agree(m->survive, words, m->config.init_timeout, err) < 0)
        return -1;
    for (int r = 0; r < m->world->size; r++)
        if (mu_survive_life(m->survive, r) != MU_LIVES)
            return mu_err_set(
                err, MUSTER_EPEER,
                "rank %d (node %s) died, or cannot be reached, before all "
                "ranks had met",
                r, m->world->host_of[r]);
    m->world->exchange = mu_survive_exchange(m->survive);
    mu_world_leave(m->world);
    return 0;
}

int mu_elastic_open(struct muster *m, struct mu_err *err)
{
    char card[MU_SURVIVE_CARD];
    struct mu_gathered all;
    int rc = 0;

    if (!m->config.elastic || !m->control)
        return 0;
    if (mu_survive_open(m->world, m->address, &m->log, card, &m->survive, err) < 0 ||
        mu_gather(m, "muster_init", card, sizeof card, &all, err) < 0)
        return -1;
    for (int r = 0; rc == 0 && r < m->world->size; r++)
        rc = mu_survive_learn(m->survive, r, all.at[r], all.len[r], err);
    mu_gathered_clear(&all);
    return rc < 0 ? -1 : leave_launcher(m, err);
}

bool mu_elastic_takes(struct muster *m, int status)
{
    return m->survive && status == MUSTER_EPEER && atomic_load(&m->armed) &&
           !atomic_load(&m->giving_up);
}

bool mu_shrink_wanted(struct muster *m)
{
    struct mu_err why = { 0 };

    return m->control && !m->nested && mu_control_failed(m->control, &why) &&
           mu_elastic_takes(m, why.code);
}

int mu_shrink_pending(struct muster *m, struct mu_err *err)
{
    if (m->over.code)
        return mu_err_set(err, m->over.code, "%s", m->over.text);
    if (!m->shrunk)
        return 0;
    m->shrunk = false;
    return mu_err_set(err, MUSTER_ESHRUNK, "%s", m->shrunk_text);
}

int mu_elastic_commit(struct muster *m, void *stream, const char *what,
                      struct mu_err *err)
{
    struct mu_gathered all;
    int rc = 0;

    if (!m->survive)
        return 0;
    if (m->control) {
        if (m->ops->drain(m->backend, stream, err) < 0)
            return mu_failure_settle(m, err);
        if (!atomic_exchange(&m->armed, true))
            mu_control_all_speak(m->control);
        m->voting = true;
        if (mu_gather(m, what, NULL, 0, &all, err) == 0)
            mu_gathered_clear(&all);
        else
            rc = mu_shrink_wanted(m) ? mu_shrink(m, err) : -1;
        m->voting = false;
    }
    m->commits += rc == 0;
    return rc;
}

/* ---- What has been agreed ----------------------------------------------------------
 */

static void name_dead(const struct muster *m, struct shrink *s, int rank)
{
    const struct mu_world *w = m->world;
    bool silent = mu_survive_life(m->survive, rank) == MU_SILENT;

    s->nsilent += silent;
    if (s->ndead++ < 4)
        mu_text_add(s->dead, sizeof s->dead, &s->dead_len,
                    "%srank %d (node %s, pid %d)%s", s->dead_len ? ", " : "",
                    s->was[rank], w->host_of[rank], w->pid_of[rank],
                    silent ? " cannot be reached any more" : " died");
    else if (s->ndead == 5)
        mu_text_add(s->dead, sizeof s->dead, &s->dead_len, " and others");
}

/* Of two halves that cannot reach each other one may go on. */
static bool is_minority(const struct shrink *s, int left, bool first_lives)
{
    return s->nsilent > 0 &&
           (2 * left < s->size_before || (2 * left == s->size_before && !first_lives));
}

static int look_at_words(struct muster *m, struct shrink *s, int *finishing)
{
    int64_t most = 0;

    s->commits = INT64_MAX;
    for (int r = 0; r < m->world->size; r++) {
        const int64_t *words = mu_survive_words(m->survive, r);

        if (mu_survive_life(m->survive, r) != MU_LIVES)
            continue;
        *finishing += words[FINISHING] != 0;
        if (words[COMMITS] + words[VOTING] < s->commits)
            s->commits = words[COMMITS] + words[VOTING];
        if (words[COMMITS] > most)
            most = words[COMMITS];
    }
    return most <= s->commits ? 0 : -1;
}

/* May they go on? Every survivor comes to the same answer, but for a minority. */
static int judge(struct muster *m, struct shrink *s, int left, bool first_lives,
                 bool *alone, struct mu_err *err)
{
    int finishing = 0, rc = look_at_words(m, s, &finishing);

    *alone = is_minority(s, left, first_lives);
    if (*alone)
        return mu_err_set(err, MUSTER_EPEER,
                          "%s; the %d rank%s here end%s, since the others may go on",
                          s->dead, left, mu_plural(left), left == 1 ? "s" : "");
    if (left < m->config.elastic)
        return mu_err_set(
            err, MUSTER_EPEER,
            "%s; %d rank%s %s left, and MUSTER_ELASTIC asks for at least %d", s->dead,
            left, mu_plural(left), left == 1 ? "is" : "are", m->config.elastic);
    if (finishing > 0 && finishing < left)
        return mu_err_set(
            err, MUSTER_EPEER,
            "%s when %d of the others were in muster_finalize and %d were "
            "not",
            s->dead, finishing, left - finishing);
    if (rc < 0)
        return mu_err_set(err, MUSTER_EINTERNAL,
                          "%s, and the others are in different steps", s->dead);
    return 0;
}

/* Agree, judge, and number the survivors anew. Returns how many are left, or -1. */
static int regroup(struct muster *m, struct shrink *s, double patience, bool *alone,
                   struct mu_err *err)
{
    int64_t words[MU_SURVIVE_WORDS] = { [COMMITS] = (int64_t)m->commits,
                                        [VOTING] = m->voting,
                                        [FINISHING] = m->finishing };
    bool *keep = calloc((size_t)m->world->size, sizeof *keep);
    int left = 0;

    if (!keep)
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory");
    if (mu_survive_agree(m->survive, words, patience, err) < 0) {
        free(keep);
        return -1;
    }
    for (int r = 0; r < m->world->size; r++) {
        keep[r] = mu_survive_life(m->survive, r) == MU_LIVES;
        if (!keep[r])
            name_dead(m, s, r);
        else
            s->was[left++] = s->was[r];
    }
    if (judge(m, s, left, s->was[0] == 0, alone, err) < 0) {
        left = -1;
    } else {
        mu_world_shrink(m->world, keep);
        mu_survive_settle(m->survive);
    }
    free(keep);
    return left;
}

/* ---- Connect again -----------------------------------------------------------------
 */

/* Threads of the backend and of the control connections look at both pointers. */
static void close_control(struct muster *m)
{
    struct mu_control *c = m->control;
    struct mu_err why;

    pthread_mutex_lock(&m->swap_lock);
    m->control = NULL;
    pthread_mutex_unlock(&m->swap_lock);
    if (c && mu_control_failed(c, &why))
        mu_control_close(c, NULL);
    else if (c)
        mu_control_discard(c);
}

static int connect_again(struct muster *m, struct mu_err *err)
{
    struct mu_backend *old = m->backend, *now = NULL;
    double init = m->config.init_timeout;
    struct mu_err why;
    int rc;

    atomic_store(&m->ended, false);
    m->world->exchange = mu_survive_exchange(m->survive);
    if (mu_open_control(m, init < LINK_SECONDS ? init : LINK_SECONDS, err) < 0 ||
        mu_agree_on_world(m, err) < 0 || mu_open_backend(m, old, &now, err) < 0)
        return -1;
    pthread_mutex_lock(&m->swap_lock);
    m->backend = now;
    pthread_mutex_unlock(&m->swap_lock);
    rc = m->ops->adopt(now, old, err);
    m->ops->close(old);
    if (rc == 0 && m->control && mu_control_failed(m->control, &why))
        rc = mu_err_set(err, why.code, "%s", why.text);
    if (rc < 0) /* the next attempt starts from this one */
        m->ops->abort(now, MUSTER_EPEER, "a rank was lost");
    return rc;
}

/* ---- The end after all
 * ----------------------------------------------------------------
 */

static void end_job(struct muster *m, const struct mu_err *err, bool alone)
{
    m->over = *err;
    if (m->config.return_failure)
        return;
    if (alone) { /* PMIx_Abort would end the others too */
        mu_streams_flush(0.5);
        mu_streams_print("%s", err->text);
        _exit(err->code);
    }
    mu_streams_flush(0.5);
    if (mu_survive_leads(m->survive))
        mu_streams_print("%s", err->text);
    else
        sleep(5); /* the head's word ends this process */
    mu_failure_end_step(m, err->code, err->text);
}

static void tell(struct muster *m, const struct shrink *s)
{
    snprintf(m->shrunk_text, sizeof m->shrunk_text,
             "%s; %d of %d ranks go on, this is rank %d now", s->dead, m->world->size,
             s->size_before, m->world->rank);
    if (m->world->rank == 0)
        fprintf(stderr, "muster: %s; %d of %d ranks go on, after %.2f s\n", s->dead,
                m->world->size, s->size_before, mu_clock_s() - s->began);
}

static int shrink(struct muster *m, struct shrink *s, bool *alone, struct mu_err *err)
{
    double patience = mu_control_patience(m->control);
    int left, before = 0, same = 0, rc = -1;

    while (rc < 0) {
        close_control(m);
        left = regroup(m, s, patience, alone, err);
        if (left < 0)
            return -1;
        same = left == before ? same + 1 : 1;
        before = left;
        rc = connect_again(m, err);
        if (rc < 0 && same == SAME_AGAIN)
            return mu_err_context(err, "%d rank%s %s left, but cannot connect again",
                                  left, mu_plural(left), left == 1 ? "is" : "are");
        if (rc < 0)
            mu_log(&m->log, MU_LOG_INFO, "once more: %s", err->text);
    }
    return 0;
}

int mu_shrink(struct muster *m, struct mu_err *err)
{
    struct shrink s = { .began = mu_clock_s(), .size_before = m->world->size };
    bool alone = false;

    /* The control thread may be about to abort the backend. */
    for (int i = 0; i < 500 && !atomic_load(&m->ended); i++)
        usleep(10000);
    for (struct muster_ddp *ddp = m->first_ddp; ddp; ddp = ddp->next)
        mu_ddp_drop(ddp);
    s.was = calloc((size_t)s.size_before, sizeof *s.was);
    for (int r = 0; s.was && r < s.size_before; r++)
        s.was[r] = r;
    if (!s.was)
        mu_err_set(err, MUSTER_EMEMORY, "out of memory");
    if (!s.was || shrink(m, &s, &alone, err) < 0) {
        free(s.was);
        end_job(m, err, alone);
        return -1;
    }
    free(s.was);
    tell(m, &s);
    m->shrunk = true;
    m->shrinks++;
    if (m->voting && s.commits > (int64_t)m->commits)
        return 0;
    return mu_shrink_pending(m, err);
}
