/* SPDX-License-Identifier: BSD-3-Clause */
/* survive_star.c - publish, fence and fetch over the connections to the leader
 *
 * In a fence each rank sends what it published since the last one to the leader, which
 * sends all of it to all ranks. If a rank is gone, the leader hangs up and the fence
 * fails on all ranks.
 */
#include "runtime/boot/survive_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "runtime/base/clock.h"
#include "runtime/endpoint/net.h"
#include "runtime/muster.h"

#define LONGEST ((uint64_t)1 << 30) /* more than any rendezvous needs */

struct entry {
    int32_t origin;
    uint32_t key_len, len;
};

void mu_survive_forget(struct mu_survive *s)
{
    mu_table_clear(&s->published);
    free(s->out);
    s->out = NULL;
    s->out_len = 0;
}

static int append(char **to, size_t *len, const void *bytes, size_t n,
                  struct mu_err *err)
{
    char *more = realloc(*to, *len + n + 1);

    if (!more)
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory");
    *to = more;
    if (n > 0)
        memcpy(more + *len, bytes, n);
    *len += n;
    return 0;
}

static int publish(void *arg, const char *key, const void *value, size_t len,
                   struct mu_err *err)
{
    struct mu_survive *s = arg;
    struct entry e = { s->me, (uint32_t)strlen(key), (uint32_t)len };

    if (append(&s->out, &s->out_len, &e, sizeof e, err) < 0 ||
        append(&s->out, &s->out_len, key, e.key_len, err) < 0)
        return -1;
    return append(&s->out, &s->out_len, value, len, err);
}

static int absorb(struct mu_survive *s, const char *all, size_t len, struct mu_err *err)
{
    struct entry e;

    for (size_t at = 0; at < len; at += e.key_len + e.len) {
        if (len - at < sizeof e)
            return mu_err_set(err, MUSTER_EINTERNAL,
                              "the data of a fence are truncated");
        memcpy(&e, all + at, sizeof e);
        at += sizeof e;
        if (len - at < (size_t)e.key_len + e.len)
            return mu_err_set(err, MUSTER_EINTERNAL,
                              "the data of a fence are truncated");
        if (mu_table_add(&s->published, e.origin, all + at, e.key_len,
                         all + at + e.key_len, e.len, err) < 0)
            return -1;
    }
    return 0;
}

static bool send_block(struct mu_survive *s, int origin, const char *bytes,
                       uint64_t len, double until)
{
    return mu_survive_send(s, origin, &len, sizeof len, until) &&
           mu_survive_send(s, origin, bytes, len, until);
}

/* Append what rank `origin` sends; false: gone, late or too long. */
static bool receive_block(struct mu_survive *s, int origin, char **to, size_t *len,
                          double until)
{
    int fd = s->fd[origin];
    uint64_t n;
    char *more;

    s->blind[origin] = true; /* until the block is complete */
    if (!mu_net_receive(fd, &n, sizeof n, until) || n > LONGEST)
        return false;
    more = realloc(*to, *len + n + 1);
    if (!more)
        return false;
    *to = more;
    if (!mu_net_receive(fd, more + *len, n, until))
        return false;
    *len += n;
    s->blind[origin] = false;
    return true;
}

static bool round_trip(struct mu_survive *s, char **all, size_t *len, double until)
{
    if (s->leader != s->me)
        return s->fd[s->leader] >= 0 &&
               send_block(s, s->leader, s->out, s->out_len, until) &&
               receive_block(s, s->leader, all, len, until);
    if (append(all, len, s->out, s->out_len, NULL) < 0)
        return false;
    for (int o = 0; o < s->n; o++)
        if (o != s->me && s->fate[o].life == MU_LIVES &&
            (s->fd[o] < 0 || !receive_block(s, o, all, len, until)))
            return false;
    for (int o = 0; o < s->n; o++)
        if (s->fd[o] >= 0 && !send_block(s, o, *all, *len, until))
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
    struct mu_survive *s = arg;

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

static int fence(void *arg, double timeout, struct mu_err *err)
{
    struct mu_survive *s = arg;
    char *all = NULL;
    size_t len = 0;
    int rc = -1;

    if (!round_trip(s, &all, &len, mu_clock_s() + timeout))
        complain(s, err);
    else
        rc = absorb(s, all, len, err);
    free(all);
    free(s->out);
    s->out = NULL;
    s->out_len = 0;
    return rc;
}

static int fetch(void *arg, int rank, const char *key, void **value, size_t *len,
                 double timeout, struct mu_err *err)
{
    const struct mu_survive *s = arg;

    return mu_table_fetch(&s->published, s->origin_of[rank], rank, key, value, len,
                          err);
}

struct mu_exchange mu_survive_exchange(struct mu_survive *s)
{
    return (struct mu_exchange){ s, publish, fence, fetch, lost };
}
