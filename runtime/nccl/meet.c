/* SPDX-License-Identifier: BSD-3-Clause */
/* meet.c - the ranks of a program's NCCL communicator meet, vote and exchange records
 */
#include "runtime/nccl/meet.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/fork.h"
#include "runtime/nccl/meet_link.h"

#define MAGIC 0x4d53544eu
#define PROTOCOL 1
#define VERDICT_SECONDS 1.0 /* to write a few bytes to a peer */
#define KEY_LEN 48

enum { VOTE = 'V', ANSWER = 'A', RECORDS = 'R', TABLE = 'T' };

struct hello {
    uint32_t magic, protocol;
    int32_t rank, size;
    char version[40];
};

struct verdict {
    int32_t agreed;
    char why[160];
};

/* In a frame of records, before its value. */
struct record {
    char key[KEY_LEN];
    uint32_t rank, len;
};

struct mu_meet {
    int rank, size;
    int fd[MU_MEET_RANKS]; /* leader: by rank; others: [0] is the leader. -1: none */
    bool broken;
    char *mine, *table; /* records not yet sent; of all ranks */
    size_t mine_len, table_len;
    struct mu_forkable fork;
};

static void in_child(struct mu_forkable *f)
{
    struct mu_meet *m =
        (struct mu_meet *)(void *)((char *)f - offsetof(struct mu_meet, fork));

    for (int i = 0; i < MU_MEET_RANKS; i++) {
        if (m->fd[i] >= 0)
            close(m->fd[i]);
        m->fd[i] = -1;
    }
    m->broken = true;
}

/* ---- Arrival -------------------------------------------------------------------- */

/* A rank that has arrived, or the reason why none can agree. */
static bool check_hello(const struct mu_meet *m, const struct mu_meet_call *call,
                        const struct hello *h, struct mu_err *err)
{
    if (h->magic != MAGIC || h->protocol != PROTOCOL ||
        strncmp(h->version, call->version, sizeof h->version) != 0) {
        mu_err_set(err, EPROTO, "the ranks run different versions of Muster");
        return false;
    }
    if (h->size != m->size || h->rank < 1 || h->rank >= m->size ||
        m->fd[h->rank] >= 0) {
        mu_err_set(err, EPROTO, "rank %d of %d is not expected among %d ranks",
                   (int)h->rank, (int)h->size, m->size);
        return false;
    }
    return true;
}

static void reason_put(struct verdict *v, const struct mu_err *err)
{
    snprintf(v->why, sizeof v->why, "%.*s", (int)sizeof v->why - 1, err->text);
}

static bool lead(struct mu_meet *m, const struct mu_meet_call *call, double end,
                 struct mu_err *err)
{
    int listener = mu_meet_listen(call->id, call->id_len), arrived = 1;
    struct verdict v = { .agreed = 0 };

    if (listener < 0) {
        mu_err_set(err, errno, "no meeting: %s", strerror(errno));
        return false;
    }
    while (arrived < m->size) {
        struct hello h;
        int fd = mu_meet_accept(listener, end);

        if (fd < 0) {
            mu_err_set(err, ETIMEDOUT, "%d of %d ranks met on this host within %.1f s",
                       arrived, m->size, call->seconds);
            break;
        }
        if (!mu_meet_read(fd, &h, sizeof h, end)) {
            close(fd); /* it has given up */
            continue;
        }
        if (!check_hello(m, call, &h, err)) {
            reason_put(&v, err);
            mu_meet_write(fd, &v, sizeof v, mu_clock_s() + VERDICT_SECONDS);
            close(fd);
            break;
        }
        m->fd[h.rank] = fd;
        arrived++;
    }
    close(listener);
    v.agreed = arrived == m->size;
    if (!v.agreed)
        reason_put(&v, err);
    for (int r = 1; r < m->size; r++)
        if (m->fd[r] >= 0)
            mu_meet_write(m->fd[r], &v, sizeof v, mu_clock_s() + VERDICT_SECONDS);
    return v.agreed;
}

static bool follow(struct mu_meet *m, const struct mu_meet_call *call, double end,
                   struct mu_err *err)
{
    struct hello h = {
        .magic = MAGIC, .protocol = PROTOCOL, .rank = m->rank, .size = m->size
    };
    struct verdict v;

    snprintf(h.version, sizeof h.version, "%s", call->version);
    m->fd[0] = mu_meet_dial(call->id, call->id_len, end);
    if (m->fd[0] < 0 || !mu_meet_write(m->fd[0], &h, sizeof h, end)) {
        mu_err_set(err, ETIMEDOUT, "rank 0 was not met on this host within %.1f s",
                   call->seconds);
        return false;
    }
    /* The leader keeps the time: it may have counted this rank. */
    if (!mu_meet_read(m->fd[0], &v, sizeof v, MU_MEET_NEVER)) {
        mu_err_set(err, ECONNRESET, "rank 0 has ended the meeting");
        return false;
    }
    v.why[sizeof v.why - 1] = '\0';
    if (!v.agreed)
        mu_err_set(err, EPROTO, "%s", v.why);
    return v.agreed != 0;
}

struct mu_meet *mu_meet_open(const struct mu_meet_call *call, struct mu_err *err)
{
    double end = mu_clock_s() + call->seconds;
    struct mu_err reason = { 0 };
    struct mu_meet *m;

    if (call->size < 2 || call->size > MU_MEET_RANKS) {
        mu_err_set(err, EINVAL, "%d ranks, 2 to %d can meet", call->size,
                   MU_MEET_RANKS);
        return NULL;
    }
    m = calloc(1, sizeof *m);
    if (!m) {
        mu_err_set(err, ENOMEM, "no memory for a meeting");
        return NULL;
    }
    m->rank = call->rank;
    m->size = call->size;
    for (int i = 0; i < MU_MEET_RANKS; i++)
        m->fd[i] = -1;
    m->fork.in_child = in_child;
    mu_fork_enter(&m->fork);
    if (call->rank == 0 ? lead(m, call, end, &reason) : follow(m, call, end, &reason))
        return m;
    mu_err_set(err, reason.code, "%s", reason.text);
    mu_meet_close(m);
    return NULL;
}

void mu_meet_close(struct mu_meet *m)
{
    if (!m)
        return;
    mu_fork_leave(&m->fork);
    for (int i = 0; i < MU_MEET_RANKS; i++)
        if (m->fd[i] >= 0)
            close(m->fd[i]);
    free(m->mine);
    free(m->table);
    free(m);
}

/* ---- Votes ---------------------------------------------------------------------- */

static bool count_votes(struct mu_meet *m, bool yes, double end)
{
    char all = yes && !m->broken;

    for (int r = 1; r < m->size; r++) {
        void *vote = NULL;
        size_t len;

        if (all && mu_meet_receive(m->fd[r], VOTE, &vote, &len, end))
            all = len == 1 && *(char *)vote;
        else
            all = 0;
        free(vote);
    }
    for (int r = 1; r < m->size; r++)
        mu_meet_send(m->fd[r], ANSWER, &all, 1, mu_clock_s() + VERDICT_SECONDS);
    return all;
}

bool mu_meet_vote(struct mu_meet *m, bool yes, double seconds)
{
    double end = mu_clock_s() + seconds;
    char mine = yes, *answer = NULL;
    bool all = false;
    size_t len;

    if (m->rank == 0) {
        all = count_votes(m, yes, end);
    } else if (!m->broken && mu_meet_send(m->fd[0], VOTE, &mine, 1, end)) {
        all = mu_meet_receive(m->fd[0], ANSWER, (void **)(void *)&answer, &len,
                              MU_MEET_NEVER) &&
              len == 1 && *answer;
        free(answer);
    } else if (m->fd[0] >= 0) {
        close(m->fd[0]); /* the leader sees that this rank gives no vote */
        m->fd[0] = -1;
    }
    m->broken = m->broken || !all;
    return all;
}

/* ---- Records -------------------------------------------------------------------- */

static bool append(char **to, size_t *len, const void *data, size_t n)
{
    char *more = realloc(*to, *len + n + 1);

    if (!more)
        return false;
    if (n > 0)
        memcpy(more + *len, data, n);
    *to = more;
    *len += n;
    return true;
}

static int publish(void *arg, const char *key, const void *value, size_t len,
                   struct mu_err *err)
{
    struct mu_meet *m = arg;
    struct record r = { .rank = (uint32_t)m->rank, .len = (uint32_t)len };

    snprintf(r.key, sizeof r.key, "%s", key);
    if (!append(&m->mine, &m->mine_len, &r, sizeof r) ||
        !append(&m->mine, &m->mine_len, value, len))
        return mu_err_set(err, ENOMEM, "no memory for %s", key);
    return 0;
}

/* The leader: all records to all ranks. */
static bool gather(struct mu_meet *m, double end)
{
    char *all = NULL;
    size_t all_len = 0;
    bool ok = append(&all, &all_len, m->mine, m->mine_len);

    for (int r = 1; r < m->size && ok; r++) {
        void *part = NULL;
        size_t len = 0;

        ok = mu_meet_receive(m->fd[r], RECORDS, &part, &len, end) &&
             append(&all, &all_len, part, len);
        free(part);
    }
    for (int r = 1; r < m->size && ok; r++)
        ok = mu_meet_send(m->fd[r], TABLE, all, all_len, end);
    ok = ok && append(&m->table, &m->table_len, all, all_len);
    free(all);
    return ok;
}

static bool hand_in(struct mu_meet *m, double end)
{
    void *all = NULL;
    size_t len = 0;
    bool ok = mu_meet_send(m->fd[0], RECORDS, m->mine, m->mine_len, end) &&
              mu_meet_receive(m->fd[0], TABLE, &all, &len, end) &&
              append(&m->table, &m->table_len, all, len);

    free(all);
    return ok;
}

static int fence(void *arg, double timeout, struct mu_err *err)
{
    struct mu_meet *m = arg;
    double end = mu_clock_s() + timeout;

    m->broken = m->broken || !(m->rank == 0 ? gather(m, end) : hand_in(m, end));
    m->mine_len = 0;
    if (m->broken)
        return mu_err_set(err, ETIMEDOUT, "a rank has left the meeting, or is late");
    return 0;
}

static int fetch(void *arg, int rank, const char *key, void **value, size_t *len,
                 double timeout, struct mu_err *err)
{
    struct mu_meet *m = arg;
    struct record r;

    (void)timeout; /* what was published is here since the fence */
    for (size_t at = 0; at + sizeof r <= m->table_len; at += sizeof r + r.len) {
        memcpy(&r, m->table + at, sizeof r);
        if (r.len > m->table_len - at - sizeof r)
            break;
        if (r.rank != (uint32_t)rank || strncmp(r.key, key, sizeof r.key) != 0)
            continue;
        *value = malloc(r.len + 1u);
        if (!*value)
            return mu_err_set(err, ENOMEM, "no memory for %s", key);
        memcpy(*value, m->table + at + sizeof r, r.len);
        *len = r.len;
        return 0;
    }
    return mu_err_set(err, ENOENT, "rank %d has not published %s", rank, key);
}

struct mu_exchange mu_meet_exchange(struct mu_meet *m)
{
    return (struct mu_exchange){
        .arg = m, .publish = publish, .fence = fence, .fetch = fetch
    };
}
