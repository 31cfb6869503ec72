/* SPDX-License-Identifier: BSD-3-Clause */
/* survive_star.c - publish, fence and fetch over the connections to the leader
 *
 * In a fence each rank sends what it published since the last one to the leader, which
 * sends all of it to all ranks. If a rank is gone, the leader closes all connections
 * and the fence fails on all ranks.
 */
#include "runtime/boot/survive_impl.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/muster.h"

#define LONGEST ((uint64_t)1 << 30) /* more than any rendezvous needs */

struct entry {
    int32_t origin;
    uint32_t key_len, len;
};

static void forget_published(struct mu_survive *s)
{
    while (s->published) {
        struct mu_published *published = s->published;

        s->published = published->next;
        free(published);
    }
}

void mu_survive_hang_up(struct mu_survive *s)
{
    for (int o = 0; o < s->n; o++) {
        if (s->fd[o] >= 0)
            close(s->fd[o]);
        s->fd[o] = -1;
    }
    forget_published(s);
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

    if (e.key_len >= sizeof s->published->key)
        return mu_err_set(err, MUSTER_EINTERNAL, "the key %s is too long", key);
    if (append(&s->out, &s->out_len, &e, sizeof e, err) < 0 ||
        append(&s->out, &s->out_len, key, e.key_len, err) < 0)
        return -1;
    return append(&s->out, &s->out_len, value, len, err);
}

static int keep(struct mu_survive *s, const struct entry *e, const char *bytes,
                struct mu_err *err)
{
    struct mu_published *published = calloc(1, sizeof *published + e->len + 1);

    if (!published)
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory");
    published->origin = e->origin;
    memcpy(published->key, bytes, e->key_len);
    published->len = e->len;
    memcpy(published->value, bytes + e->key_len, e->len);
    published->next = s->published; /* the newest of a key is found first */
    s->published = published;
    return 0;
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
        if (e.key_len >= sizeof s->published->key ||
            len - at < (size_t)e.key_len + e.len)
            return mu_err_set(err, MUSTER_EINTERNAL,
                              "the data of a fence are truncated");
        if (keep(s, &e, all + at, err) < 0)
            return -1;
    }
    return 0;
}

static bool send_block(int fd, const char *bytes, uint64_t len, double until)
{
    return mu_net_send(fd, &len, sizeof len, until) &&
           mu_net_send(fd, bytes, len, until);
}

/* Append what comes; false: gone, late or too long. */
static bool receive_block(int fd, char **to, size_t *len, double until)
{
    uint64_t n;
    char *more;

    if (!mu_net_receive(fd, &n, sizeof n, until) || n > LONGEST)
        return false;
    more = realloc(*to, *len + n + 1);
    if (!more)
        return false;
    *to = more;
    if (!mu_net_receive(fd, more + *len, n, until))
        return false;
    *len += n;
    return true;
}

static bool round_trip(struct mu_survive *s, char **all, size_t *len, double until)
{
    int up = s->fd[s->leader];

    if (s->leader != s->me)
        return up >= 0 && send_block(up, s->out, s->out_len, until) &&
               receive_block(up, all, len, until);
    if (append(all, len, s->out, s->out_len, NULL) < 0)
        return false;
    for (int o = 0; o < s->n; o++)
        if (o != s->me && s->fate[o].life == MU_LIVES &&
            (s->fd[o] < 0 || !receive_block(s->fd[o], all, len, until)))
            return false;
    for (int o = 0; o < s->n; o++)
        if (s->fd[o] >= 0 && !send_block(s->fd[o], *all, *len, until))
            return false;
    return true;
}

static int fence(void *arg, double timeout, struct mu_err *err)
{
    struct mu_survive *s = arg;
    char *all = NULL;
    size_t len = 0;
    int rc = -1;

    if (!round_trip(s, &all, &len, mu_clock_s() + timeout)) {
        mu_survive_hang_up(s); /* so that nobody waits for the rest of it */
        mu_err_set(err, MUSTER_EPEER, "a rank died while the survivors reconnected");
    } else {
        rc = absorb(s, all, len, err);
    }
    free(all);
    free(s->out);
    s->out = NULL;
    s->out_len = 0;
    return rc;
}

static int fetch(void *arg, int rank, const char *key, void **value, size_t *len,
                 double timeout, struct mu_err *err)
{
    struct mu_survive *s = arg;
    char *copy;

    for (const struct mu_published *published = s->published; published;
         published = published->next) {
        if (published->origin != s->origin_of[rank] || strcmp(published->key, key) != 0)
            continue;
        copy = malloc(published->len + 1);
        if (!copy)
            return mu_err_set(err, MUSTER_EMEMORY, "out of memory for %s", key);
        memcpy(copy, published->value, published->len);
        *value = copy;
        *len = published->len;
        return 0;
    }
    return mu_err_set(err, MUSTER_ERENDEZVOUS, "rank %d published no %s", rank, key);
}

struct mu_exchange mu_survive_exchange(struct mu_survive *s)
{
    return (struct mu_exchange){ s, publish, fence, fetch };
}
