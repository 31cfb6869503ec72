/* SPDX-License-Identifier: BSD-3-Clause */
/* survive.c - who is left: follow the lowest rank that lives, or lead */
#include "runtime/boot/survive_impl.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/muster.h"

/* ---- Open and close ----------------------------------------------------------------
 */

static void in_child(struct mu_forkable *f)
{
    struct mu_survive *s = (void *)((char *)f - offsetof(struct mu_survive, fork));

    mu_survive_hang_up(s);
    close(s->listen_fd);
    s->listen_fd = -1;
}

int mu_survive_open(const struct mu_world *world, const char *master_addr,
                    const struct mu_log *log, char record[MU_SURVIVE_RECORD],
                    struct mu_survive **out, struct mu_err *err)
{
    struct mu_survive *s = calloc(1, sizeof *s);
    struct mu_address_record *mine;
    size_t n = (size_t)world->size;

    if (!s)
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory");
    s->n = s->size = world->size;
    s->me = world->rank;
    s->listen_fd = -1;
    s->log = log;
    memcpy(s->token, world->token, sizeof s->token);
    s->at = calloc(n, sizeof *s->at);
    s->fate = calloc(n, sizeof *s->fate);
    s->origin_of = calloc(n, sizeof *s->origin_of);
    s->fd = calloc(n, sizeof *s->fd);
    if (!s->at || !s->fate || !s->origin_of || !s->fd) {
        mu_err_set(err, MUSTER_EMEMORY, "out of memory for %d ranks", world->size);
        goto fail;
    }
    for (int r = 0; r < s->n; r++) {
        s->origin_of[r] = r;
        s->fd[r] = -1;
    }
    mine = &s->at[s->me];
    if (mu_net_listen(&s->listen_fd, &mine->port, err) < 0)
        goto fail;
    mu_net_machine(mine->machine);
    mu_net_addresses(world->rank == 0 ? master_addr : NULL, mine->addresses,
                     sizeof mine->addresses);
    memset(record, 0, MU_SURVIVE_RECORD);
    memcpy(record, mine, sizeof *mine);
    s->fork.in_child = in_child;
    mu_fork_enter(&s->fork);
    *out = s;
    return 0;
fail:
    mu_survive_close(s);
    return -1;
}

int mu_survive_set_address(struct mu_survive *s, int rank, const void *record,
                           size_t len, struct mu_err *err)
{
    struct mu_address_record *at = &s->at[rank];

    if (len != MU_SURVIVE_RECORD)
        return mu_err_set(err, MUSTER_ECONTRACT,
                          "rank %d runs another release of libmuster", rank);
    memcpy(at, record, sizeof *at);
    at->machine[sizeof at->machine - 1] = '\0';
    at->addresses[sizeof at->addresses - 1] = '\0';
    return 0;
}

void mu_survive_close(struct mu_survive *s)
{
    if (!s)
        return;
    mu_fork_leave(&s->fork);
    if (s->fd)
        mu_survive_hang_up(s);
    if (s->listen_fd >= 0)
        close(s->listen_fd);
    free(s->at);
    free(s->fate);
    free(s->origin_of);
    free(s->fd);
    free(s);
}

/* ---- Following ----------------------------------------------------------------------
 */

static bool receive_verdict(struct mu_survive *s, int fd, double until)
{
    size_t bytes = (size_t)s->n * sizeof *s->fate;
    struct mu_fate *fate = malloc(bytes);
    struct mu_verdict v;
    bool ok = fate && mu_net_receive(fd, &v, sizeof v, until) &&
              v.magic == MU_VERDICT_MAGIC && v.n == (uint32_t)s->n &&
              mu_net_receive(fd, fate, bytes, until) && fate[s->me].life == MU_LIVES;

    if (ok)
        memcpy(s->fate, fate, bytes);
    free(fate);
    return ok;
}

/* 1: the verdict of `origin` is there; 0: it is dead; -1: late. */
static int follow(struct mu_survive *s, int origin, const struct mu_join *join,
                  double until, double patience, struct mu_err *err)
{
    while (s->fate[origin].life == MU_LIVES) {
        if (mu_clock_s() >= until)
            return mu_survive_late(s, origin, patience, err);
        if (!mu_survive_call(s, origin, join, until))
            break;
        s->leader = origin;
        if (s->fd[origin] >= 0 && receive_verdict(s, s->fd[origin], until))
            return 1;
        /* It died, or its own reach for the others failed: then it lives, and we call
         * again.
         */
        mu_survive_drop(s, origin);
        nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
    }
    return 0;
}

/* ---- The agreement ------------------------------------------------------------------
 */

int mu_survive_agree(struct mu_survive *s, const int64_t ballot[MU_SURVIVE_BALLOT],
                     double patience, struct mu_err *err)
{
    double until = mu_clock_s() + patience;
    /* Followers wait longer than the leader, so that the leader times out first and
     * names the missing rank.
     */
    double follow_until = until + MU_CALL_SECONDS;
    struct mu_join join = { .magic = MU_JOIN_MAGIC };
    int rc = 0;

    memcpy(join.ballot, ballot, sizeof join.ballot);
    mu_survive_hang_up(s);
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

bool mu_survive_leads(const struct mu_survive *s)
{
    return s->leader == s->me;
}

void mu_survive_settle(struct mu_survive *s)
{
    int n = 0;

    for (int r = 0; r < s->size; r++)
        if (mu_survive_life(s, r) == MU_LIVES)
            s->origin_of[n++] = s->origin_of[r];
    s->size = n;
}
