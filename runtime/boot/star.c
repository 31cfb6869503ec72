/* SPDX-License-Identifier: BSD-3-Clause */
/* star.c - every rank connects to rank 0, and all-gathers go over it */
#include "runtime/boot/star.h"

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/parse.h"
#include "runtime/core/ranks.h"
#include "runtime/core/reporter.h"
#include "runtime/endpoint/net.h"
#include "runtime/muster.h"

#define REPORT_SECONDS 2.0 /* rank 0 reports before the others give up */
#define SEND_SECONDS 5.0   /* a rank that waits reads at once */
#define AGAIN_MS 50        /* before rank 0 is called again */

/* The first bytes to rank 0. */
struct join {
    int32_t size, pid;
    char host[MU_STAR_HOST];
};

/* Before the bytes of all ranks, or before a sentence. */
struct reply {
    int32_t status; /* MUSTER_OK, or of the failure */
    uint32_t len;   /* of the sentence */
};

static void hang_up(struct mu_star *s)
{
    for (int r = 0; r < s->size && s->fd; r++)
        mu_net_drop(&s->fd[r]);
}

static void in_child(struct mu_forkable *f)
{
    hang_up((void *)((char *)f - offsetof(struct mu_star, fork)));
}

int mu_star_open(struct mu_star *s, int rank, int size, const char *host,
                 struct mu_err *err)
{
    *s = (struct mu_star){ .rank = rank, .size = size, .fork.in_child = in_child };
    s->fd = malloc((size_t)size * sizeof *s->fd);
    s->host = calloc((size_t)size, sizeof *s->host);
    for (int r = 0; s->fd && r < size; r++)
        s->fd[r] = -1;
    if (!s->fd || !s->host) {
        mu_star_close(s);
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory for a world of %d ranks",
                          size);
    }
    mu_copy(s->host[rank], sizeof s->host[rank], host);
    mu_fork_enter(&s->fork);
    return 0;
}

void mu_star_close(struct mu_star *s)
{
    mu_fork_leave(&s->fork);
    hang_up(s);
    free(s->fd);
    free(s->host);
    s->fd = NULL;
    s->host = NULL;
}

/* ---- Failures ------------------------------------------------------------------- */

static void send_failure(int fd, const struct mu_err *why)
{
    const struct reply reply = { why->code, (uint32_t)strlen(why->text) };
    double until = mu_clock_s() + SEND_SECONDS;

    if (mu_net_send(fd, &reply, sizeof reply, until))
        mu_net_send(fd, why->text, reply.len, until);
}

/* Rank 0: all ranks that are connected report the same. Returns -1. */
static int fail_all(struct mu_star *s, const struct mu_err *why, struct mu_err *err)
{
    for (int r = 1; r < s->size; r++)
        if (s->fd[r] >= 0)
            send_failure(s->fd[r], why);
    hang_up(s);
    return mu_err_set(err, why->code, "%s", why->text);
}

static int died(const struct mu_star *s, int rank, struct mu_err *err)
{
    return mu_death_err(MU_DEATH_EARLY,
                        &(struct mu_rank_name){ rank, s->host[rank], 0 }, err);
}

/* Its process has ended, or its connection has. */
static bool is_gone(int fd)
{
    struct pollfd p = { fd, POLLRDHUP, 0 };

    return fd >= 0 && poll(&p, 1, 0) > 0;
}

bool mu_star_lost(const struct mu_star *s, struct mu_err *err)
{
    for (int r = 0; s->fd && r < s->size; r++)
        if (is_gone(s->fd[r])) {
            died(s, r, err);
            return true;
        }
    return false;
}

static void late(const struct mu_star *s, const bool *here, const char *hint,
                 struct mu_err *err)
{
    bool *missing = calloc((size_t)s->size, sizeof *missing);
    char ranks[256] = "a rank";

    for (int r = 1; missing && r < s->size; r++)
        missing[r] = !here[r];
    if (missing)
        mu_ranks_text(missing, s->size, ranks, sizeof ranks);
    free(missing);
    mu_err_set(err, MUSTER_ERENDEZVOUS,
               "%s of WORLD_SIZE=%d did not arrive within %g s (MUSTER_INIT_TIMEOUT)%s",
               ranks, s->size, s->patience, hint);
}

/* ---- Rank 0 takes the others ---------------------------------------------------- */

/* 1: it is connected now; 0: it has gone; -1: it cannot be of this world. */
static int admit(struct mu_star *s, const struct mu_arrival *a, struct mu_err *err)
{
    int rank = a->claim.rank;
    struct join join;

    if (!mu_net_receive(a->fd, &join, sizeof join, mu_clock_s() + SEND_SECONDS)) {
        close(a->fd);
        return 0;
    }
    join.host[sizeof join.host - 1] = '\0';
    if (join.size != s->size)
        mu_err_set(err, MUSTER_ERENDEZVOUS,
                   "rank %d (node %s) has WORLD_SIZE=%d, but rank 0 (node %s) has "
                   "WORLD_SIZE=%d",
                   rank, join.host, join.size, s->host[0], s->size);
    else if (rank < 1 || rank >= s->size || s->fd[rank] >= 0)
        mu_err_set(err, MUSTER_ERENDEZVOUS,
                   "two processes have RANK=%d: one of node %s, and process %d of node "
                   "%s",
                   rank, rank < 1 || rank >= s->size ? s->host[0] : s->host[rank],
                   join.pid, join.host);
    else {
        s->fd[rank] = a->fd;
        mu_copy(s->host[rank], sizeof s->host[rank], join.host);
        return 1;
    }
    send_failure(a->fd, err);
    close(a->fd);
    return -1;
}

/* Wait for an arrival, and for the end of a rank that has arrived. */
static void await(struct mu_star *s, struct mu_endpoint *ep, struct pollfd *fds,
                  double until)
{
    for (int r = 1; r < s->size; r++)
        fds[r] = (struct pollfd){ s->fd[r], POLLRDHUP, 0 };
    mu_endpoint_poll(ep, fds, s->size, until);
}

int mu_star_accept(struct mu_star *s, struct mu_endpoint *ep, double timeout,
                   const char *hint, struct mu_err *err)
{
    struct pollfd *fds = calloc((size_t)s->size, sizeof *fds);
    bool *here = calloc((size_t)s->size, sizeof *here);
    double until = mu_clock_s() + timeout;
    struct mu_err why = { 0 };
    struct mu_arrival a;
    int missing = s->size - 1;

    if (!fds || !here)
        mu_err_set(&why, MUSTER_EMEMORY, "out of memory for %d ranks", s->size);
    while (missing > 0 && !why.code) {
        if (mu_endpoint_take(ep, MU_SERVICE_RENDEZVOUS, 0, &a)) {
            if (admit(s, &a, &why) == 1) {
                here[a.claim.rank] = true;
                missing--;
            }
        } else if (!mu_star_lost(s, &why)) {
            if (mu_clock_s() >= until)
                late(s, here, hint, &why);
            else
                await(s, ep, fds, until);
        }
    }
    free(fds);
    free(here);
    return why.code ? fail_all(s, &why, err) : 0;
}

/* ---- Another rank calls --------------------------------------------------------- */

static int join(struct mu_star *s, int fd, struct mu_err *err)
{
    struct join mine = { .size = s->size, .pid = getpid() };

    s->fd[0] = fd;
    memcpy(mine.host, s->host[s->rank], sizeof mine.host);
    return mu_net_send(fd, &mine, sizeof mine, mu_clock_s() + SEND_SECONDS)
               ? 0
               : died(s, 0, err);
}

/* Another user may hold the name that callers compute: rank 0 has one like it then. A
 * name that cannot be connected to at once is not rank 0's, which accepts all the time.
 */
static enum mu_answer call_alike(struct mu_dial *d, const struct mu_address *own,
                                 const struct mu_address *at,
                                 const struct mu_claim *claim, const uint8_t *secret,
                                 double until)
{
    FILE *names = fopen("/proc/net/unix", "re");
    enum mu_answer answer = MU_ANSWER_REFUSED;
    struct mu_address other = *at;

    while (names && answer != MU_ANSWER_PROVED && mu_address_next(names, &other)) {
        mu_dial_start(d, own, &other, false, claim, secret);
        answer = mu_dial_step(d);
        if (answer == MU_ANSWER_NONE && d->connected)
            answer = mu_dial_wait(d, until);
        if (answer != MU_ANSWER_PROVED)
            mu_dial_stop(d);
    }
    if (names)
        fclose(names);
    return answer;
}

int mu_star_call(struct mu_star *s, const struct mu_address *own,
                 const struct mu_address *at, bool tcp, const uint8_t *secret,
                 double timeout, const char *host, const char *where, const char *hint,
                 struct mu_err *err)
{
    const struct mu_claim claim = { MU_SERVICE_RENDEZVOUS, 0, s->rank };
    double until = mu_clock_s() + timeout;
    bool foreign = false;

    mu_copy(s->host[0], sizeof s->host[0], host);
    do {
        enum mu_answer answer;
        struct mu_dial d;

        mu_dial_start(&d, own, at, tcp, &claim, secret);
        answer = mu_dial_wait(&d, until);
        if (answer != MU_ANSWER_PROVED)
            mu_dial_stop(&d);
        if (answer != MU_ANSWER_PROVED && !tcp)
            answer = call_alike(&d, own, at, &claim, secret, until);
        if (answer == MU_ANSWER_PROVED)
            return join(s, d.fd, err);
        foreign = foreign || answer == MU_ANSWER_DROPPED || answer == MU_ANSWER_STALLED;
        poll(NULL, 0, AGAIN_MS);
    } while (mu_clock_s() < until);
    return mu_err_set(
        err, MUSTER_ERENDEZVOUS,
        "rank %d (node %s) cannot reach rank 0 at %s within %g s "
        "(MUSTER_INIT_TIMEOUT)%s",
        s->rank, s->host[s->rank], where, s->patience,
        foreign ? ": a process there lacks this rank's token; compare the token and "
                  "MASTER_PORT of all ranks"
                : hint);
}

/* ---- All-gathers ---------------------------------------------------------------- */

/* Read what has arrived from a rank. -1: it is gone. */
static int read_some(int fd, char *to, size_t *got, size_t len)
{
    ssize_t n = recv(fd, to + *got, len - *got, MSG_DONTWAIT);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n <= 0)
        return -1;
    *got += (size_t)n;
    return 0;
}

/* 1: all bytes of all ranks are there; -1: `why` is set. */
static int collect(struct mu_star *s, char *all, size_t len, size_t *got,
                   struct mu_err *why)
{
    int complete = 1;

    for (int r = 1; r < s->size; r++) {
        if (got[r] < len &&
            read_some(s->fd[r], all + (size_t)r * len, &got[r], len) < 0)
            return died(s, r, why);
        complete += got[r] == len;
    }
    return complete == s->size;
}

static int report_late(const struct mu_star *s, const size_t *got, size_t len,
                       struct mu_err *why)
{
    char who[16];
    int r = 1;

    while (r < s->size - 1 && got[r] == len)
        r++;
    snprintf(who, sizeof who, "rank %d", r);
    return mu_late_err(who, s->host[r], s->patience, why);
}

static int gather_at_root(struct mu_star *s, char *all, size_t len, double timeout,
                          struct mu_err *err)
{
    struct pollfd *fds = calloc((size_t)s->size, sizeof *fds);
    size_t *got = calloc((size_t)s->size, sizeof *got);
    const struct reply good = { MUSTER_OK, 0 };
    double until = mu_clock_s() + timeout, left;
    struct mu_err why = { 0 };
    int rc = 0;

    if (!fds || !got)
        rc = mu_err_set(&why, MUSTER_EMEMORY, "out of memory for %d ranks", s->size);
    while (rc == 0 && (rc = collect(s, all, len, got, &why)) == 0) {
        for (int r = 0; r < s->size; r++)
            fds[r] =
                (struct pollfd){ r > 0 && got[r] < len ? s->fd[r] : -1, POLLIN, 0 };
        left = until - mu_clock_s();
        if (left <= 0)
            rc = report_late(s, got, len, &why);
        else
            poll(fds, (nfds_t)s->size, (int)(left * 1000) + 1);
    }
    free(fds);
    free(got);
    for (int r = 1; r < s->size && rc == 1; r++)
        if (!mu_net_send(s->fd[r], &good, sizeof good, until + SEND_SECONDS) ||
            !mu_net_send(s->fd[r], all, (size_t)s->size * len, until + SEND_SECONDS))
            rc = died(s, r, &why);
    return rc == 1 ? 0 : fail_all(s, &why, err);
}

static int receive_failure(struct mu_star *s, const struct reply *reply, double until,
                           struct mu_err *err)
{
    char text[MU_ERR_TEXT] = "";

    if (reply->len >= sizeof text || !mu_net_receive(s->fd[0], text, reply->len, until))
        return died(s, 0, err);
    return mu_err_set(err, reply->status, "%s", text);
}

static int gather_elsewhere(struct mu_star *s, const void *mine, size_t len, void *all,
                            double timeout, struct mu_err *err)
{
    double until = mu_clock_s() + timeout + REPORT_SECONDS;
    struct reply reply;

    if (!mu_net_send(s->fd[0], mine, len, until)) {
        /* Rank 0 may have sent why before it hung up. */
    }
    if (!mu_net_receive(s->fd[0], &reply, sizeof reply, until))
        return mu_clock_s() < until ? died(s, 0, err)
                                    : mu_err_set(err, MUSTER_ERENDEZVOUS,
                                                 "rank 0 (node %s) did not answer "
                                                 "within %g s (MUSTER_INIT_TIMEOUT)",
                                                 s->host[0], s->patience);
    if (reply.status != MUSTER_OK)
        return receive_failure(s, &reply, until, err);
    return mu_net_receive(s->fd[0], all, (size_t)s->size * len, until)
               ? 0
               : died(s, 0, err);
}

int mu_star_gather(void *star, const void *mine, size_t len, void *all, double timeout,
                   struct mu_err *err)
{
    struct mu_star *s = star;

    if (!s->fd || (s->rank > 0 && s->fd[0] < 0))
        return mu_err_set(err, MUSTER_EPEER, "the rendezvous has ended");
    if (s->rank > 0)
        return gather_elsewhere(s, mine, len, all, timeout, err);
    memcpy(all, mine, len);
    return gather_at_root(s, all, len, timeout, err);
}
