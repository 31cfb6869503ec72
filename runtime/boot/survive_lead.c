/* SPDX-License-Identifier: BSD-3-Clause */
/* survive_lead.c - the leader: wait for all ranks that live, send the verdict */
#include "runtime/boot/survive_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/random.h"
#include "runtime/muster.h"

#define LOOK_SECONDS 0.2    /* between looks at the calls */
#define FINISH_SECONDS 0.05 /* for the hello of a call that is not needed any more */

/* What the leader has of one rank. */
struct member {
    bool joined;
    size_t got; /* of join, on s->fd */
    struct mu_join join;
    struct mu_dial *dial; /* a call that shows whether it lives, or NULL */
    double until;         /* ... and its end */
};

struct lead {
    struct mu_survive *s;
    struct member *member; /* by origin */
    struct pollfd *poll;   /* the endpoint, then each rank */
};

/* A living rank would report a call that is ended before its proof as a stranger's. */
static void end_call(struct member *m)
{
    if (m->dial && m->dial->connected)
        mu_dial_wait(m->dial, mu_clock_s() + FINISH_SECONDS);
    if (m->dial)
        mu_dial_stop(m->dial);
    free(m->dial);
    m->dial = NULL;
}

/* ---- Ranks that join ------------------------------------------------------------ */

static void take_arrivals(struct lead *l)
{
    struct mu_survive *s = l->s;
    struct mu_arrival a;

    while (mu_endpoint_take(s->endpoint, MU_SERVICE_SURVIVE, 0, &a)) {
        int o = a.claim.rank;

        if (o < 0 || o >= s->n || o == s->me) {
            mu_endpoint_refuse(s->endpoint, &a,
                               "its rank is not expected to connect here");
            continue;
        }
        end_call(&l->member[o]);
        mu_survive_set_fd(s, o, a.fd);
        s->blind[o] = true; /* it may have given up this call, until it joins */
        s->fate[o].life = MU_LIVES;
        l->member[o].joined = false;
        l->member[o].got = 0;
    }
}

/* What rank o sends: its join, then nothing. A rank that leads too sends nothing. */
static void read_rank(struct lead *l, int o)
{
    struct member *m = &l->member[o];
    struct mu_survive *s = l->s;
    size_t left = sizeof m->join - m->got;
    ssize_t n = 0;

    if (s->fd[o] >= 0 && left > 0)
        n = recv(s->fd[o], (char *)&m->join + m->got, left, MSG_DONTWAIT);
    if (n > 0) {
        m->got += (size_t)n;
        m->joined = m->got == sizeof m->join && m->join.magic == MU_JOIN_MAGIC;
        s->blind[o] = !m->joined;
        memcpy(s->fate[o].ballot, m->join.ballot, sizeof m->join.ballot);
    } else if (mu_survive_ended(s, o, s->fd[o] >= 0 ? &s->fd[o] : &s->old_fd[o])) {
        m->joined = false; /* it calls again, or is dead */
    }
}

/* ---- Ranks that have not joined ------------------------------------------------- */

/* A connection that was made now shows its end. One of the last agreement does so too,
 * but its link may be dead: the rank is called.
 */
static void see_whether_it_lives(struct lead *l, int o, double now)
{
    struct member *m = &l->member[o];
    struct mu_survive *s = l->s;
    enum mu_answer answer;

    if (s->old_fd[o] >= 0)
        mu_survive_ended(s, o, &s->old_fd[o]);
    if (s->fd[o] >= 0 || s->fate[o].life != MU_LIVES)
        return;
    if (!m->dial) {
        m->dial = malloc(sizeof *m->dial);
        if (!m->dial)
            return;
        mu_survive_dial(s, o, m->dial);
        m->until = now + mu_survive_call_seconds(s, o);
    }
    answer = mu_dial_step(m->dial);
    if (answer == MU_ANSWER_NONE && now < m->until)
        return;
    mu_survive_judge(s, o, m->dial);
    if (answer == MU_ANSWER_PROVED) {
        mu_survive_set_fd(s, o, m->dial->fd);
        m->got = sizeof m->join; /* it sends nothing here */
        m->dial->fd = -1;
    }
    end_call(m);
}

/* Have all who live joined? */
static bool complete(struct lead *l, int *missing)
{
    struct mu_survive *s = l->s;
    double now = mu_clock_s();
    bool all_here = true;

    for (int o = s->n - 1; o >= 0; o--) {
        if (o == s->me || l->member[o].joined || s->fate[o].life != MU_LIVES)
            continue;
        see_whether_it_lives(l, o, now);
        if (s->fate[o].life != MU_LIVES)
            continue;
        all_here = false;
        *missing = o;
    }
    return all_here;
}

static void listen_once(struct lead *l, double until)
{
    struct mu_survive *s = l->s;
    double soon = mu_clock_s() + LOOK_SECONDS;

    for (int o = 0; o < s->n; o++) {
        const struct member *m = &l->member[o];
        int fd = s->fd[o] >= 0 ? s->fd[o] : s->old_fd[o];

        l->poll[1 + o] = (struct pollfd){ fd, POLLIN, 0 };
        if (m->dial)
            l->poll[1 + o] =
                (struct pollfd){ m->dial->fd, m->dial->connected ? POLLIN : POLLOUT,
                                 0 };
    }
    if (mu_endpoint_poll(s->endpoint, l->poll, 1 + s->n, soon < until ? soon : until) <=
        0)
        return;
    for (int o = 0; o < s->n; o++)
        if (l->poll[1 + o].revents && !l->member[o].dial)
            read_rank(l, o);
    take_arrivals(l);
}

/* Newcomers are taken while all ranks live and each one is in muster_grow. */
static bool all_admit(const struct lead *l, const struct mu_join *mine)
{
    const struct mu_survive *s = l->s;

    for (int r = 0; r < s->size; r++) {
        int o = s->origin_of[r];

        if (s->fate[o].life != MU_LIVES || (o != s->me && !l->member[o].join.admits))
            return false;
    }
    return mine->admits;
}

/* In the order of origins; see survive.h. A rank that does not receive it finds its
 * connection closed, at the next fence at the latest.
 */
static int send_verdict(const struct lead *l, int before, struct mu_err *err)
{
    struct mu_survive *s = l->s;
    struct mu_member *all = mu_survive_members(s);
    double until = mu_clock_s() + MU_CALL_SECONDS;

    if (!all)
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory for %d ranks", s->n);
    for (int o = 0; o < s->n; o++) {
        uint32_t n = (uint32_t)s->n, has = o < before ? l->member[o].join.n : 0;
        uint32_t lacks = has < n ? n - has : 0;
        struct mu_verdict v = {
            MU_VERDICT_MAGIC, n, s->generation, lacks, o, s->me, 0
        };

        if (s->fd[o] >= 0 &&
            (!mu_survive_send(s, o, &v, sizeof v, until) ||
             !mu_survive_send(s, o, s->fate, n * sizeof *s->fate, until) ||
             (lacks > 0 &&
              !mu_survive_send(s, o, all + (n - lacks), lacks * sizeof *all, until))))
            mu_survive_part(s, o);
    }
    free(all);
    return 0;
}

int mu_survive_lead(struct mu_survive *s, const struct mu_join *mine, double until,
                    double patience, struct mu_err *err)
{
    struct lead l = { .s = s };
    int missing = -1, rc = 0, before = s->n;

    l.member = calloc((size_t)s->n, sizeof *l.member);
    l.poll = calloc(1 + (size_t)s->n, sizeof *l.poll);
    if (!l.member || !l.poll)
        rc = mu_err_set(err, MUSTER_EMEMORY, "out of memory for %d ranks", s->n);
    if (rc == 0 && mu_random(&s->generation, sizeof s->generation) < 0)
        rc = mu_err_set(err, MUSTER_EIO, "getrandom failed: %s", strerror(errno));
    s->leader = s->me;
    memcpy(s->fate[s->me].ballot, mine->ballot, sizeof mine->ballot);
    if (rc == 0)
        take_arrivals(&l);
    while (rc == 0 && !complete(&l, &missing)) {
        if (mu_clock_s() >= until)
            rc = mu_survive_late(s, missing, patience, err);
        else
            listen_once(&l, until);
    }
    for (int o = 0; l.member && o < before; o++)
        end_call(&l.member[o]);
    if (rc == 0 && all_admit(&l, mine))
        rc = mu_survive_admit(s, err);
    if (rc == 0)
        rc = send_verdict(&l, before, err);
    free(l.member);
    free(l.poll);
    return rc;
}
