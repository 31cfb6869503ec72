/* SPDX-License-Identifier: BSD-3-Clause */
/* survive_join.c - newcomers: the leader takes them, the other ranks learn of them */
#include "runtime/boot/survive_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "runtime/base/array.h"
#include "runtime/base/clock.h"
#include "runtime/base/parse.h"
#include "runtime/endpoint/net.h"
#include "runtime/muster.h"

#define REQUEST_SECONDS 1.0 /* for the request of a process that has proved itself */
#define MOST_RANKS (1u << 20)

/* ---- On rank 0: those that wait -------------------------------------------------- */

static void refuse(int fd, const char *mine, const char *theirs)
{
    double until = mu_clock_s() + REQUEST_SECONDS;
    struct mu_verdict v = { .magic = MU_REFUSAL_MAGIC };
    char text[MU_ERR_TEXT];

    snprintf(text, sizeof text,
             "the job has '%s', but this process '%s': both must be equal", mine,
             theirs);
    v.n = (uint32_t)strlen(text);
    if (mu_net_send(fd, &v, sizeof v, until))
        mu_net_send(fd, text, v.n, until);
    mu_net_drop(&fd);
}

static void take(struct mu_survive *s, int fd)
{
    struct mu_request_to_join r;

    if (!mu_net_receive(fd, &r, sizeof r, mu_clock_s() + REQUEST_SECONDS) ||
        r.magic != MU_REQUEST_MAGIC) {
        mu_net_drop(&fd);
        return;
    }
    r.member.host[sizeof r.member.host - 1] = r.terms[sizeof r.terms - 1] = '\0';
    if (strcmp(r.terms, s->world->terms) != 0)
        refuse(fd, s->world->terms, r.terms);
    else if (mu_array_extend(&s->waiting, sizeof *s->waiting, s->nwaiting,
                             s->nwaiting + 1) < 0)
        mu_net_drop(&fd);
    else
        s->waiting[s->nwaiting++] = (struct mu_waiting){ fd, r.member };
}

/* One that waits sends nothing more until it has the verdict. */
static bool has_gone(int fd)
{
    char byte;
    ssize_t n = recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK);

    return n >= 0 || (errno != EAGAIN && errno != EINTR);
}

int mu_survive_waiting(struct mu_survive *s)
{
    struct mu_arrival a;
    int n = 0;

    while (mu_endpoint_take(s->endpoint, MU_SERVICE_JOIN, 0, &a))
        take(s, a.fd);
    for (int i = 0; i < s->nwaiting; i++)
        if (has_gone(s->waiting[i].fd))
            mu_net_drop(&s->waiting[i].fd);
        else
            s->waiting[n++] = s->waiting[i];
    s->nwaiting = n;
    return n;
}

/* ---- The leader admits them ------------------------------------------------------ */

static bool same_node(const struct mu_member *m, const struct mu_address *at,
                      const char *host)
{
    return mu_address_same_machine(&m->address, at) && strcmp(m->host, host) == 0;
}

/* Numbers of nodes that the world does not have yet follow its own. */
static int node_of(const struct mu_survive *s, const struct mu_member *m)
{
    const struct mu_world *w = s->world;
    int next = w->nnodes;

    for (int r = 0; r < w->size; r++)
        if (same_node(m, &w->address[r], w->host_of[r]))
            return w->node_of[r];
    for (int i = 0; i < s->nnewcomers; i++) {
        const struct mu_member *other = &s->newcomer[i];

        if (same_node(m, &other->address, other->host))
            return other->node;
        if (other->node >= next)
            next = other->node + 1;
    }
    return next;
}

int mu_survive_admit(struct mu_survive *s, struct mu_err *err)
{
    int before = s->n, n = mu_survive_waiting(s);
    struct mu_member *newcomer = calloc((size_t)n + 1, sizeof *newcomer);

    if (!newcomer || mu_survive_extend(s, before + n, err) < 0) {
        free(newcomer);
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory for %d newcomers", n);
    }
    free(s->newcomer);
    s->newcomer = newcomer;
    for (int i = 0; i < n; i++) {
        struct mu_member *m = &s->newcomer[i];
        int o = before + i;

        *m = s->waiting[i].member;
        m->node = node_of(s, m);
        s->nnewcomers++;
        s->at[o] = m->address;
        s->fd[o] = s->waiting[i].fd;
        s->fate[o] = s->fate[s->me];
    }
    s->nwaiting = 0;
    return 0;
}

struct mu_member *mu_survive_members(const struct mu_survive *s)
{
    struct mu_member *all = calloc((size_t)s->n, sizeof *all);
    const struct mu_world *w = s->world;

    for (int o = 0; all && o < s->n; o++)
        all[o].address = s->at[o];
    for (int r = 0; all && r < s->size; r++) {
        struct mu_member *m = &all[s->origin_of[r]];

        if (r >= s->size - s->nnewcomers) {
            *m = s->newcomer[r - (s->size - s->nnewcomers)];
            continue;
        }
        m->pid = w->pid_of[r];
        m->node = w->node_of[r];
        mu_copy(m->host, sizeof m->host, w->host_of[r]);
    }
    return all;
}

/* ---- The others learn of them ---------------------------------------------------- */

static bool learn(struct mu_survive *s, const struct mu_verdict *v,
                  const struct mu_fate *fate, struct mu_member *member)
{
    if (mu_survive_extend(s, (int)v->n, NULL) < 0)
        return false;
    memcpy(s->fate, fate, v->n * sizeof *fate);
    for (uint32_t i = 0; i < v->members; i++) {
        member[i].host[sizeof member[i].host - 1] = '\0';
        s->at[v->n - v->members + i] = member[i].address;
    }
    s->generation = v->generation;
    free(s->newcomer);
    s->newcomer = member;
    s->nnewcomers = (int)v->members;
    return true;
}

bool mu_survive_receive(struct mu_survive *s, int fd, const struct mu_verdict *v,
                        double until)
{
    struct mu_fate *fate = NULL;
    struct mu_member *member = NULL;
    bool ok = v->n >= (uint32_t)s->n && v->n <= MOST_RANKS &&
              v->members == v->n - (uint32_t)s->n;

    if (ok) {
        fate = calloc(v->n, sizeof *fate);
        member = calloc((size_t)v->members + 1, sizeof *member);
    }
    ok = fate && member && mu_net_receive(fd, fate, v->n * sizeof *fate, until) &&
         mu_net_receive(fd, member, v->members * sizeof *member, until) &&
         learn(s, v, fate, member);
    if (!ok)
        free(member);
    free(fate);
    return ok;
}

int mu_survive_newcomers(const struct mu_survive *s)
{
    return s->nnewcomers;
}

const struct mu_member *mu_survive_newcomer(const struct mu_survive *s, int i)
{
    return &s->newcomer[i];
}

/* ---- A newcomer ------------------------------------------------------------------ */

static int refused(int fd, size_t len, double until, struct mu_err *err)
{
    char text[MU_ERR_TEXT] = "";

    if (len >= sizeof text || !mu_net_receive(fd, text, len, until))
        return 1;
    return mu_err_set(err, MUSTER_ECONTRACT, "%s", text);
}

/* To a newcomer all ranks are new. */
static int enter(struct mu_survive *s, struct mu_world *w, const struct mu_verdict *v,
                 struct mu_err *err)
{
    bool *keep = calloc((size_t)s->n, sizeof *keep);
    int rc = 0;

    free(w->host_of[0]);
    w->host_of[0] = NULL;
    w->size = 0;
    for (int o = 0; rc == 0 && o < s->n; o++)
        rc = mu_world_append(w, &s->newcomer[o], err);
    if (rc < 0 || !keep) {
        free(keep);
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory for %d ranks", s->n);
    }
    w->rank = s->me = v->to;
    for (int o = 0; o < s->n; o++)
        keep[o] = s->fate[o].life == MU_LIVES;
    mu_world_shrink(w, keep);
    mu_survive_settle(s);
    s->nnewcomers = 0;
    free(keep);
    return 0;
}

static bool is_sane(const struct mu_survive *s, const struct mu_verdict *v)
{
    return v->to >= 0 && v->to < s->n && v->leader >= 0 && v->leader < s->n &&
           v->to != v->leader && s->fate[v->to].life == MU_LIVES;
}

int mu_survive_join(struct mu_world *world, int fd, const struct mu_member *mine,
                    double until, struct mu_survive **out, struct mu_err *err)
{
    struct mu_request_to_join r = { .magic = MU_REQUEST_MAGIC, .member = *mine };
    struct mu_survive *s = NULL;
    struct mu_verdict v;
    int rc = 1;

    memcpy(r.terms, world->terms, sizeof r.terms);
    if (!mu_net_send(fd, &r, sizeof r, mu_clock_s() + REQUEST_SECONDS) ||
        !mu_net_receive(fd, &v, sizeof v, until))
        goto out;
    until = mu_clock_s() + MU_CALL_SECONDS;
    if (v.magic == MU_REFUSAL_MAGIC) {
        rc = refused(fd, v.n, until, err);
        goto out;
    }
    if (v.magic != MU_VERDICT_MAGIC || (rc = mu_survive_new(world, &s, err)) < 0 ||
        (rc = mu_survive_receive(s, fd, &v, until) && is_sane(s, &v) ? 0 : 1) != 0 ||
        (rc = enter(s, world, &v, err)) < 0)
        goto out;
    s->leader = v.leader;
    s->fd[v.leader] = fd;
    *out = s;
    return 0;
out:
    mu_survive_close(s);
    mu_net_drop(&fd);
    return rc;
}
