/* SPDX-License-Identifier: BSD-3-Clause */
/* survive_star.c - the survivors' all-gather: over the connections to the leader
 *
 * If a rank is gone, the leader hangs up and the gather fails on all ranks.
 */
#include "runtime/boot/survive_impl.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "runtime/base/clock.h"
#include "runtime/endpoint/net.h"
#include "runtime/muster.h"

/* False: gone or late. */
static bool receive(struct mu_survive *s, int origin, void *to, size_t len,
                    double until)
{
    s->blind[origin] = true; /* until all is there */
    if (s->fd[origin] < 0 || !mu_net_receive(s->fd[origin], to, len, until))
        return false;
    s->blind[origin] = false;
    return true;
}

static bool gather_here(struct mu_survive *s, const void *mine, size_t len, char *all,
                        double until)
{
    for (int r = 0; r < s->size; r++) {
        int o = s->origin_of[r];

        if (o == s->me)
            memcpy(all + (size_t)r * len, mine, len);
        else if (!receive(s, o, all + (size_t)r * len, len, until))
            return false;
    }
    for (int r = 0; r < s->size; r++)
        if (s->origin_of[r] != s->me &&
            !mu_survive_send(s, s->origin_of[r], all, (size_t)s->size * len, until))
            return false;
    return true;
}

static int complain(struct mu_survive *s, struct mu_err *err)
{
    mu_survive_hang_up(s); /* no rank waits for the rest of it */
    return mu_err_set(err, MUSTER_EPEER, "a rank died while the survivors reconnected");
}

/* Is there a connection to that rank in the star? */
static bool is_linked(const struct mu_survive *s, int origin)
{
    if (origin == s->me || (s->leader != s->me && origin != s->leader))
        return false;
    return s->fate[origin].life == MU_LIVES;
}

/* The leader sees the end of each rank, and hangs up. The others see the leader's. The
 * verdict may have found a connection closed that it was sent on.
 */
static bool lost(void *arg, struct mu_err *err)
{
    struct mu_survive *s = ((const struct mu_published *)arg)->arg;

    for (int o = 0; o < s->n; o++) {
        uint64_t word = 0;
        ssize_t n = 0;

        if (!is_linked(s, o))
            continue;
        if (s->fd[o] >= 0)
            n = recv(s->fd[o], &word, sizeof word, MSG_DONTWAIT | MSG_PEEK);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            continue;
        s->blind[o] |= n < 0;
        if (n <= 0 || word == MU_GOODBYE)
            return complain(s, err) < 0;
    }
    return false;
}

static int gather(void *arg, const void *mine, size_t len, void *all, double timeout,
                  struct mu_err *err)
{
    struct mu_survive *s = arg;
    double until = mu_clock_s() + timeout;
    bool good;

    if (s->leader == s->me)
        good = gather_here(s, mine, len, all, until);
    else
        good = s->fd[s->leader] >= 0 &&
               mu_survive_send(s, s->leader, mine, len, until) &&
               receive(s, s->leader, all, (size_t)s->size * len, until);
    return good ? 0 : complain(s, err);
}

struct mu_exchange mu_survive_exchange(struct mu_survive *s)
{
    struct mu_exchange x;

    mu_published_clear(&s->published);
    s->published = (struct mu_published){ .rank = mu_survive_rank_of(s, s->me),
                                          .size = s->size,
                                          .gather = gather,
                                          .arg = s };
    x = mu_published_exchange(&s->published);
    x.lost = lost;
    return x;
}
