/* SPDX-License-Identifier: BSD-3-Clause */
/* domains.c - which ranks share memory, and how the ranks call each other at the start
 */
#include "runtime/backend/host/domains.h"

#include <stdlib.h>

#include "runtime/base/clock.h"

#define LOOK_SECONDS 0.05  /* period of the check for lost ranks */
#define AGAIN_SECONDS 0.02 /* before a rank that dropped a call is called again */

int mu_host_domains_find(struct mu_host_domains *d, const struct mu_host_backend *b,
                         struct mu_err *err)
{
    const struct mu_address *at = b->env.address;
    int *of = calloc((size_t)b->env.size, sizeof *of);

    if (!of)
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory");
    *d = (struct mu_host_domains){ mu_clock_s() + b->env.init_timeout, of, 0 };
    for (int r = 0; r < b->env.size; r++) {
        of[r] = r;
        for (int q = 0; q < r && !b->env.force_tcp; q++) {
            if (b->node_of[q] == b->node_of[r] &&
                mu_address_same_machine(&at[q], &at[r])) {
                of[r] = of[q];
                break;
            }
        }
        d->n += of[r] == r;
    }
    return 0;
}

static bool is_over(const struct mu_host_backend *b, double deadline)
{
    return mu_clock_s() >= deadline || (b->env.lost && atomic_load(b->env.lost));
}

static double soon(double deadline)
{
    double at = mu_clock_s() + LOOK_SECONDS;

    return at < deadline ? at : deadline;
}

static enum mu_answer call_peer_once(const struct mu_host_backend *b, double deadline,
                                     int rank, enum mu_service service, bool tcp,
                                     struct mu_dial *dial)
{
    const struct mu_claim claim = { service, b->env.generation, b->env.rank };

    mu_dial_start(dial, &b->env.address[b->env.rank], &b->env.address[rank], tcp,
                  &claim, b->env.token);
    while (mu_dial_wait(dial, soon(deadline)) == MU_ANSWER_NONE &&
           !is_over(b, deadline)) {
    }
    if (dial->answer != MU_ANSWER_PROVED)
        mu_dial_stop(dial);
    return dial->answer;
}

int mu_host_call(const struct mu_host_backend *b, double deadline, int rank,
                 enum mu_service service, bool tcp, struct mu_dial *dial,
                 struct mu_err *err)
{
    static const char *const why[] = {
        [MU_ANSWER_NONE] = "no reply in time",
        [MU_ANSWER_SILENT] = "no reply",
        [MU_ANSWER_REFUSED] = "no process of this job listens there",
        [MU_ANSWER_DROPPED] = "it drops the connection",
        [MU_ANSWER_STALLED] = "it accepts, but sends no handshake",
    };
    const struct mu_address *at = &b->env.address[rank];
    enum mu_answer answer;
    char who[128];

    for (;;) {
        answer = call_peer_once(b, deadline, rank, service, tcp, dial);
        if (answer == MU_ANSWER_PROVED)
            return 0;
        /* Strangers may fill its table, or it is stopped for a moment. */
        if ((answer != MU_ANSWER_DROPPED && answer != MU_ANSWER_STALLED) ||
            is_over(b, deadline))
            break;
        mu_pause(AGAIN_SECONDS);
    }
    return mu_err_set(err, MUSTER_ERENDEZVOUS, "cannot connect to %s at %s port %u: %s",
                      mu_rank_text(b, rank, who, sizeof who), at->hosts, at->port,
                      why[answer]);
}

bool mu_host_await_call(const struct mu_host_backend *b, double deadline,
                        enum mu_service service, struct mu_arrival *out)
{
    struct pollfd bell;

    while (!mu_endpoint_take(b->env.endpoint, service, b->env.generation, out)) {
        if (is_over(b, deadline))
            return false;
        mu_endpoint_poll(b->env.endpoint, &bell, 1, soon(deadline));
    }
    return true;
}

int mu_host_await_readable(const struct mu_host_backend *b, int fd, double deadline)
{
    struct pollfd p = { .fd = fd, .events = POLLIN };

    while (poll(&p, 1, (int)(LOOK_SECONDS * 1000)) <= 0)
        if (is_over(b, deadline))
            return -1;
    return 0;
}
