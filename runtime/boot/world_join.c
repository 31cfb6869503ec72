/* SPDX-License-Identifier: BSD-3-Clause */
/* world_join.c - a world that has begun without this process: it waits until the ranks
 * take it in muster_grow
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/parse.h"
#include "runtime/boot/join_file.h"
#include "runtime/boot/survive.h"
#include "runtime/boot/world.h"
#include "runtime/muster.h"

#define CALL_SECONDS 5.0
#define AGAIN_SECONDS 0.1

struct joining {
    char *path;
    struct mu_join_file file; /* as read last */
    bool found, waited;       /* the file; in the line of rank 0 */
};

/* A new endpoint for each attempt: an attempt that the ranks have taken, and this
 * process has not learned of, is a rank that has died.
 */
static int open_endpoint(struct mu_world *w, struct mu_member *mine, struct mu_err *err)
{
    const struct joining *j = w->impl;

    mu_endpoint_close(w->endpoint);
    w->endpoint = NULL;
    if (mu_endpoint_open(NULL, &w->endpoint, err) < 0)
        return -1;
    mu_world_trust(w, j->file.token);
    *mine = (struct mu_member){ .address = *mu_endpoint_address(w->endpoint),
                                .pid = getpid() };
    mu_copy(mine->host, sizeof mine->host, w->host);
    return 0;
}

/* 0: this process is a rank; 1: not yet; -1: it never will be. */
static int attempt(struct mu_world *w, double until, struct mu_err *err)
{
    const struct mu_claim claim = { MU_SERVICE_JOIN, 0, 0 };
    struct joining *j = w->impl;
    double soon = mu_clock_s() + CALL_SECONDS;
    struct mu_member mine;
    struct mu_dial d;
    int rc = mu_join_file_read(j->path, &j->file, err);

    if (rc > 0 && j->found) /* rank 0 removes it at the end */
        return mu_err_set(err, MUSTER_ERENDEZVOUS, "MUSTER_JOIN=%s: job %s has ended",
                          j->path, j->file.job);
    if (rc != 0)
        return rc;
    j->found = true;
    if (open_endpoint(w, &mine, err) < 0)
        return -1;
    mu_dial_start(&d, &mine.address, &j->file.address, false, &claim, w->token);
    if (mu_dial_wait(&d, soon < until ? soon : until) != MU_ANSWER_PROVED) {
        mu_dial_stop(&d);
        return 1;
    }
    j->waited = true;
    rc = mu_survive_join(w, d.fd, &mine, until, &w->survive, err);
    return rc < 0 ? mu_err_context(err, "MUSTER_JOIN=%s", j->path) : rc;
}

static int give_up(const struct joining *j, double timeout, struct mu_err *err)
{
    if (!j->found)
        return mu_err_set(
            err, MUSTER_ERENDEZVOUS,
            "MUSTER_JOIN=%s did not exist within %g s "
            "(MUSTER_INIT_TIMEOUT): its job writes it where it is started "
            "with MUSTER_GROW=%s",
            j->path, timeout, j->path);
    if (!j->waited)
        return mu_err_set(err, MUSTER_ERENDEZVOUS,
                          "MUSTER_JOIN=%s: rank 0 of job %s, at %s port %u, did not "
                          "answer within %g s (MUSTER_INIT_TIMEOUT): the job may have "
                          "ended",
                          j->path, j->file.job, j->file.address.hosts,
                          j->file.address.port, timeout);
    return mu_err_set(err, MUSTER_ERENDEZVOUS,
                      "MUSTER_JOIN=%s: job %s did not call muster_grow within %g s "
                      "(MUSTER_INIT_TIMEOUT)",
                      j->path, j->file.job, timeout);
}

static int join_meet(struct mu_world *w, double timeout, struct mu_err *err)
{
    const struct joining *j = w->impl;
    double until = mu_clock_s() + timeout;
    int rc;

    while ((rc = attempt(w, until, err)) > 0 && mu_clock_s() < until)
        mu_pause(AGAIN_SECONDS);
    if (rc != 0)
        return rc < 0 ? -1 : give_up(j, timeout, err);
    mu_copy(w->job, sizeof w->job, j->file.job);
    w->generation = mu_survive_generation(w->survive);
    w->exchange = mu_survive_exchange(w->survive);
    return 0;
}

static void join_close(struct mu_world *w)
{
    struct joining *j = w->impl;

    mu_survive_close(w->survive);
    free(j->path);
    free(j);
    mu_world_free(w);
}

int mu_world_join(const struct mu_launch *launch, const char *file,
                  struct mu_world **out, struct mu_err *err)
{
    struct joining *j;
    struct mu_world *w = mu_world_launched(launch, 0, 1, "join", sizeof *j, err);

    if (!w)
        return -1;
    j = w->impl;
    w->host_of[0] = strdup(w->host);
    j->path = strdup(file);
    if (!w->host_of[0] || !j->path) {
        join_close(w);
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory for a world of one");
    }
    w->joins = true;
    w->meet = join_meet;
    w->close = join_close;
    *out = w;
    return 0;
}
