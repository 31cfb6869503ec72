/* SPDX-License-Identifier: BSD-3-Clause */
/* survive_call.c - connect to another survivor; notice that one has died */
#include "runtime/boot/survive_impl.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "runtime/endpoint/net.h"
#include "runtime/muster.h"

#define SUSPECT_SECONDS 0.3

void mu_survive_dial(const struct mu_survive *s, int origin, struct mu_dial *d)
{
    const struct mu_claim claim = { MU_SERVICE_SURVIVE, 0, s->me };

    mu_dial_start(d, mu_endpoint_address(s->endpoint), &s->at[origin], false, &claim,
                  s->token);
}

double mu_survive_call_seconds(const struct mu_survive *s, int origin)
{
    return s->suspect[origin] ? SUSPECT_SECONDS : MU_CALL_SECONDS;
}

/* A rank that is stopped does not answer, but lives. So does one that drops the call,
 * because strangers have filled its table. What fails the challenge holds a port that
 * the rank has left: that rank would have kept it for as long as it lives.
 */
void mu_survive_judge(struct mu_survive *s, int origin, const struct mu_dial *d)
{
    enum mu_answer answer = d->answer;
    bool stalls = answer == MU_ANSWER_STALLED || answer == MU_ANSWER_DROPPED ||
                  (answer == MU_ANSWER_NONE && d->connected);

    if (answer == MU_ANSWER_REFUSED || (stalls && s->suspect[origin]))
        s->fate[origin].life = MU_DIED;
    else if (answer == MU_ANSWER_SILENT || (answer == MU_ANSWER_NONE && !stalls))
        s->fate[origin].life = MU_SILENT;
}

bool mu_survive_send(struct mu_survive *s, int origin, const void *bytes, size_t len,
                     double until)
{
    bool ok = s->fd[origin] >= 0 && mu_net_send(s->fd[origin], bytes, len, until);

    s->blind[origin] |= !ok; /* the error was reported here: what follows is an end */
    return ok;
}

static void say_goodbye(struct mu_survive *s, int origin)
{
    uint64_t goodbye = MU_GOODBYE;

    mu_survive_send(s, origin, &goodbye, sizeof goodbye, 0);
    shutdown(s->fd[origin], SHUT_WR);
}

/* Only a goodbye is expected. Other data are of a fence that this rank has left;
 * after them an end shows nothing. Nor does an error: the link may be dead, and a reset
 * may destroy a goodbye.
 */
bool mu_survive_ended(struct mu_survive *s, int origin, int *fd)
{
    uint64_t word = 0;
    ssize_t n = recv(*fd, &word, sizeof word, MSG_DONTWAIT);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (n > 0 && (n != sizeof word || word != MU_GOODBYE)) {
        s->blind[origin] = true;
        return false;
    }
    if (n == 0 && !s->blind[origin])
        s->fate[origin].life = MU_DIED;
    s->suspect[origin] = n < 0 && errno == ECONNRESET && !s->blind[origin];
    if (fd == &s->fd[origin])
        say_goodbye(s, origin);
    mu_net_drop(fd);
    return true;
}

void mu_survive_set_fd(struct mu_survive *s, int origin, int fd)
{
    mu_survive_part(s, origin);
    mu_net_drop(&s->old_fd[origin]);
    s->fd[origin] = fd;
    s->blind[origin] = s->suspect[origin] = false;
}

/* The other end may have to read the goodbye first: only our direction ends now. */
void mu_survive_part(struct mu_survive *s, int origin)
{
    if (s->fd[origin] < 0 || mu_survive_ended(s, origin, &s->fd[origin]))
        return;
    say_goodbye(s, origin);
    mu_net_drop(&s->old_fd[origin]);
    s->old_fd[origin] = s->fd[origin];
    s->fd[origin] = -1;
}

void mu_survive_hang_up(struct mu_survive *s)
{
    for (int o = 0; o < s->n; o++)
        mu_survive_part(s, o);
}

int mu_survive_rank_of(const struct mu_survive *s, int origin)
{
    int rank = 0;

    while (rank < s->size - 1 && s->origin_of[rank] != origin)
        rank++;
    return rank;
}

int mu_survive_late(const struct mu_survive *s, int origin, double patience,
                    struct mu_err *err)
{
    int rank = mu_survive_rank_of(s, origin);

    return mu_err_set(
        err, MUSTER_ETIMEOUT,
        "rank %d (node %s) lives, but did not join the other survivors within "
        "%g s",
        rank, s->world->host_of[rank], patience);
}
