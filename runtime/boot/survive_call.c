/* SPDX-License-Identifier: BSD-3-Clause */
/* survive_call.c - one survivor calls another: it lives, has died, or is silent */
#include "runtime/boot/survive_impl.h"

#include <string.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/endpoint/hello.h"
#include "runtime/muster.h"

struct call {
    struct mu_survive *s;
    const struct mu_join *join; /* to send, or NULL: only check whether it lives */
    int origin;
    double until;
};

/* Who fails the challenge holds a port that the rank has left. That rank would have
 * kept it for as long as it lives.
 */
static bool handshake(void *arg, int fd, double until)
{
    struct call *call = arg;
    struct mu_survive *s = call->s;
    enum mu_hello_result result = MU_HELLO_GONE;
    struct mu_hello hello;

    s->fd[call->origin] = fd;
    if (!call->join)
        return true;
    if (mu_hello_call(&hello, MU_HELLO_SURVIVE, s->token, s->me, call->origin))
        result = mu_hello_wait(&hello, fd, call->until);
    if (result != MU_HELLO_PROVED ||
        !mu_net_send(fd, call->join, sizeof *call->join, call->until))
        mu_survive_drop(s, call->origin);
    return result != MU_HELLO_UNPROVED;
}

/* Its host has just been silent for another rank: do not wait for it once more. */
static bool host_is_silent(const struct mu_survive *s, int origin)
{
    for (int o = 0; o < s->n; o++)
        if (s->fate[o].life == MU_SILENT &&
            strcmp(s->at[o].addresses, s->at[origin].addresses) == 0)
            return true;
    return false;
}

bool mu_survive_call(struct mu_survive *s, int origin, const struct mu_join *join,
                     double until)
{
    const struct mu_address_record *at = &s->at[origin];
    bool elsewhere = strcmp(at->machine, s->at[s->me].machine) != 0;
    struct call call = { s, join, origin, until };
    enum mu_net_answer answer = MU_NET_SILENT;

    if (!host_is_silent(s, origin))
        answer = mu_net_call(at->addresses, elsewhere, at->port,
                             mu_clock_s() + MU_CALL_SECONDS, handshake, &call);
    if (answer == MU_NET_REFUSED)
        s->fate[origin].life = MU_DIED;
    else if (answer == MU_NET_SILENT)
        s->fate[origin].life = MU_SILENT;
    return answer == MU_NET_CONNECTED;
}

void mu_survive_drop(struct mu_survive *s, int origin)
{
    if (s->fd[origin] >= 0)
        close(s->fd[origin]);
    s->fd[origin] = -1;
}

int mu_survive_late(const struct mu_survive *s, int origin, double patience,
                    struct mu_err *err)
{
    int rank = 0;

    while (rank < s->size - 1 && s->origin_of[rank] != origin)
        rank++;
    return mu_err_set(err, MUSTER_ETIMEOUT,
                      "rank %d lives, but did not join the other survivors within %g s",
                      rank, patience);
}
