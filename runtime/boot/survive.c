/* SPDX-License-Identifier: BSD-3-Clause */
/* survive.c - who is left: follow the lowest rank that lives, or lead */
#include "runtime/boot/survive_impl.h"

#include <string.h>
#include <sys/socket.h>

#include "runtime/base/clock.h"
#include "runtime/endpoint/net.h"
#include "runtime/muster.h"

/* ---- Following ----------------------------------------------------------------------
 */

static bool receive_verdict(struct mu_survive *s, int origin, double until)
{
    int fd = s->fd[origin];
    struct mu_verdict v;
    bool ok;

    s->blind[origin] = true;
    ok = mu_net_receive(fd, &v, sizeof v, until) && v.magic == MU_VERDICT_MAGIC &&
         mu_survive_receive(s, fd, &v, until) && s->fate[s->me].life == MU_LIVES;
    if (ok)
        s->blind[origin] = false;
    return ok;
}

/* Wait until something arrives; false: the leader has ended before it answered. */
static bool await_leader(struct mu_survive *s, int origin, double until)
{
    struct pollfd p = { s->fd[origin], POLLIN, 0 };
    uint64_t word;
    double left;

    while ((left = until - mu_clock_s()) > 0)
        if (poll(&p, 1, left < 1 ? (int)(left * 1000) + 1 : 1000) > 0)
            break;
    return recv(p.fd, &word, sizeof word, MSG_DONTWAIT | MSG_PEEK) > 0 ||
           !mu_survive_ended(s, origin, &s->fd[origin]);
}

/* Connect to that rank and send join. */
static bool join_leader(struct mu_survive *s, int origin, const struct mu_join *join)
{
    struct mu_dial d;

    mu_survive_dial(s, origin, &d);
    mu_dial_wait(&d, mu_clock_s() + mu_survive_call_seconds(s, origin));
    if (d.answer != MU_ANSWER_PROVED) {
        mu_survive_judge(s, origin, &d);
        mu_dial_stop(&d);
        return false;
    }
    mu_survive_set_fd(s, origin, d.fd);
    return mu_survive_send(s, origin, join, sizeof *join,
                           mu_clock_s() + MU_CALL_SECONDS);
}

/* 1: the verdict of `origin` is there; 0: it is dead; -1: late. */
static int follow(struct mu_survive *s, int origin, const struct mu_join *join,
                  double until, double patience, struct mu_err *err)
{
    while (s->fate[origin].life == MU_LIVES) {
        if (mu_clock_s() >= until)
            return mu_survive_late(s, origin, patience, err);
        s->leader = origin;
        if (join_leader(s, origin, join) && await_leader(s, origin, until) &&
            receive_verdict(s, origin, until))
            return 1;
        /* It died, or its own reach for the others failed: then it lives, and we call
         * again.
         */
        mu_survive_part(s, origin);
        mu_pause(0.005);
    }
    return 0;
}

/* ---- The agreement ------------------------------------------------------------------
 */

int mu_survive_agree(struct mu_survive *s, const int64_t ballot[MU_SURVIVE_BALLOT],
                     bool admits, double patience, struct mu_err *err)
{
    double until = mu_clock_s() + patience;
    /* Followers wait longer than the leader, so that the leader times out first and
     * names the missing rank.
     */
    double follow_until = until + MU_CALL_SECONDS;
    struct mu_join join = { MU_JOIN_MAGIC, (uint32_t)s->n, admits, { 0 } };
    int rc = 0;

    memcpy(join.ballot, ballot, sizeof join.ballot);
    mu_survive_hang_up(s);
    mu_published_clear(&s->published);
    s->nnewcomers = 0;
    for (int o = 0; o < s->n; o++)
        if (s->old_fd[o] >= 0)
            mu_survive_ended(s, o, &s->old_fd[o]);
    for (int o = 0; o < s->me && rc == 0; o++)
        rc = follow(s, o, &join, follow_until, patience, err);
    return rc == 0 ? mu_survive_lead(s, &join, until, patience, err) : rc < 0 ? -1 : 0;
}

enum mu_life mu_survive_life(const struct mu_survive *s, int rank)
{
    return (enum mu_life)s->fate[s->origin_of[rank]].life;
}

const int64_t *mu_survive_ballot(const struct mu_survive *s, int rank)
{
    return s->fate[s->origin_of[rank]].ballot;
}

uint64_t mu_survive_generation(const struct mu_survive *s)
{
    return s->generation;
}

bool mu_survive_leads(const struct mu_survive *s)
{
    return s->leader == s->me;
}
