/* SPDX-License-Identifier: BSD-3-Clause */
/* control_call.c - what the api calls: agreements, waits, failures */
#include "runtime/boot/control_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/base/parse.h"
#include "runtime/base/thread.h"
#include "runtime/muster.h"

int mu_control_failure(const struct mu_control *c, struct mu_err *err)
{
    return mu_err_set(err, c->ending.status, "%s", c->ending.text);
}

static void wait_begin(struct mu_control *c, const char *what, double seconds)
{
    c->waiting_since = mu_clock_tick_s();
    c->patience = seconds > 0 && seconds < c->env.timeout ? seconds : c->env.timeout;
    c->shown = false;
    c->waited = true;
    mu_copy(c->waiting_for, sizeof c->waiting_for, what);
    /* To wake the thread costs a microsecond. While waits follow each other, it looks
     * by itself soon enough.
     */
    if (c->armed == 0 || mu_control_stuck_at(c) < c->armed)
        mu_control_wake(c);
}

static void wait_end(struct mu_control *c)
{
    c->waiting_since = 0;
    c->waiting_for[0] = '\0';
}

void mu_control_wait_begin(struct mu_control *c, const char *what, double seconds)
{
    pthread_mutex_lock(&c->lock);
    wait_begin(c, what, seconds);
    pthread_mutex_unlock(&c->lock);
}

void mu_control_wait_end(struct mu_control *c)
{
    pthread_mutex_lock(&c->lock);
    wait_end(c);
    pthread_mutex_unlock(&c->lock);
}

static int send_gather(struct mu_control *c, const char *what, uint32_t flags,
                       uint64_t number, const void *data, size_t len,
                       struct mu_err *err)
{
    size_t name = strlen(what) + 1;
    char *frame = malloc(name + len);

    if (!frame)
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory for %s", what);
    memcpy(frame, what, name);
    if (len > 0)
        memcpy(frame + name, data, len);
    mu_control_send_up(c, MU_FRAME_GATHER, flags, number, frame, name + len);
    free(frame);
    return 0;
}

/* Wait for a moment; true: a rank has died, and err is set. One that dies before it has
 * connected is seen by some ranks only.
 */
static bool look(struct mu_control *c, struct mu_err *err)
{
    const struct mu_exchange *x = &c->env.world->exchange;
    bool lost;

    mu_cond_wait(&c->changed, &c->lock, mu_clock_s() + MU_LOOK_SECONDS);
    pthread_mutex_unlock(&c->lock);
    lost = x->lost && x->lost(x->arg, err);
    pthread_mutex_lock(&c->lock);
    return lost;
}

char *mu_control_gather_blob(struct mu_control *c, const char *what, uint32_t flags,
                             const void *data, size_t len, size_t *blob_len,
                             struct mu_err *err)
{
    uint64_t number = c->gathers + 1;
    char *blob = NULL;

    if (send_gather(c, what, flags, number, data, len, err) < 0)
        return NULL;
    c->gathers = number;
    wait_begin(c, what, 0);
    while (c->all.number < number && !c->ended)
        if (!(flags & MU_FRAME_FIRST))
            pthread_cond_wait(&c->changed, &c->lock);
        else if (look(c, err))
            break;
    wait_end(c);
    if (c->all.number < number) {
        if (c->ended)
            mu_control_failure(c, err);
        return NULL;
    }
    blob = c->all.bytes;
    *blob_len = c->all.len;
    c->all.bytes = NULL;
    if (!blob)
        mu_err_set(err, MUSTER_EMEMORY, "out of memory for %s", what);
    return blob;
}

static int unpack(char *blob, size_t len, int size, struct mu_gathered *out,
                  struct mu_err *err)
{
    struct mu_gathered g = { .blob = blob };
    size_t n = 0;

    g.at = calloc((size_t)size, sizeof *g.at);
    g.len = calloc((size_t)size, sizeof *g.len);
    if (!g.at || !g.len) {
        mu_gathered_clear(&g);
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory for %d ranks", size);
    }
    for (int r = 0; r < size; r++) {
        uint32_t length = 0;

        if (n + sizeof length <= len)
            memcpy(&length, blob + n, sizeof length);
        n += sizeof length;
        if (n > len || length > len - n) {
            mu_gathered_clear(&g);
            return mu_err_set(err, MUSTER_EINTERNAL,
                              "the result of a gather is too short");
        }
        g.at[r] = blob + n;
        g.len[r] = length;
        n += length;
    }
    *out = g;
    return 0;
}

int mu_control_gather(struct mu_control *c, const char *what, const void *data,
                      size_t len, struct mu_gathered *out, struct mu_err *err)
{
    size_t blob_len = 0;
    char *blob = NULL;

    pthread_mutex_lock(&c->lock);
    if (c->ended)
        mu_control_failure(c, err);
    else
        blob = mu_control_gather_blob(c, what, 0, data, len, &blob_len, err);
    pthread_mutex_unlock(&c->lock);
    return blob ? unpack(blob, blob_len, c->size, out, err) : -1;
}

void mu_gathered_clear(struct mu_gathered *g)
{
    free(g->blob);
    free(g->at);
    free(g->len);
    *g = (struct mu_gathered){ 0 };
}

static int post(struct mu_control *c, uint64_t step, const uint64_t hashes[2],
                const uint8_t *absent, size_t nbytes, struct mu_err *err)
{
    size_t len = 2 * sizeof hashes[0] + nbytes;
    char *data = malloc(len);
    int rc = 0;

    if (!data)
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory for a bitmap");
    memcpy(data, hashes, len - nbytes);
    if (nbytes > 0)
        memcpy(data + len - nbytes, absent, nbytes);
    pthread_mutex_lock(&c->lock);
    if (c->ended)
        rc = mu_control_failure(c, err);
    else
        mu_control_send_up(c, MU_FRAME_AGREE, 0, step, data, len);
    pthread_mutex_unlock(&c->lock);
    free(data);
    return rc;
}

static int wait_posted(struct mu_control *c, uint64_t step, uint8_t *absent,
                       size_t nbytes, struct mu_err *err)
{
    struct mu_result *result = &c->absent;
    char what[64];
    int rc = 0;

    snprintf(what, sizeof what, "the absent-gradient agreement of step %llu",
             (unsigned long long)step);
    pthread_mutex_lock(&c->lock);
    wait_begin(c, what, 0);
    while (!(result->fresh && result->number == step) && !c->ended)
        pthread_cond_wait(&c->changed, &c->lock);
    wait_end(c);
    if (!(result->fresh && result->number == step))
        rc = mu_control_failure(c, err);
    else if (!result->bytes || result->len != nbytes)
        rc = mu_err_set(err, MUSTER_ECONTRACT,
                        "received an absent-gradient bitmap of %zu bytes, expected %zu",
                        result->len, nbytes);
    else
        memcpy(absent, result->bytes, nbytes);
    result->fresh = false;
    pthread_mutex_unlock(&c->lock);
    return rc;
}

int mu_control_agree(struct mu_control *c, uint64_t step, const uint64_t hashes[2],
                     uint8_t *absent, size_t nbytes, struct mu_err *err)
{
    if (post(c, step, hashes, absent, nbytes, err) < 0)
        return -1;
    return nbytes > 0 ? wait_posted(c, step, absent, nbytes, err) : 0;
}

void mu_control_extend(struct mu_control *c, double seconds)
{
    pthread_mutex_lock(&c->lock);
    mu_control_send_up(c, MU_FRAME_EXTEND_UP, 0, 0, &seconds, sizeof seconds);
    pthread_mutex_unlock(&c->lock);
}

void mu_control_report_immediately(struct mu_control *c, bool immediately)
{
    pthread_mutex_lock(&c->lock);
    c->env.report_immediately = immediately;
    pthread_mutex_unlock(&c->lock);
}

double mu_control_patience(struct mu_control *c)
{
    double extended;

    pthread_mutex_lock(&c->lock);
    extended = c->extended_until - mu_clock_s();
    pthread_mutex_unlock(&c->lock);
    return extended > c->env.timeout ? extended : c->env.timeout;
}

static void fail(struct mu_control *c, struct mu_complaint complaint, const char *why)
{
    mu_copy(complaint.text, sizeof complaint.text, why);
    pthread_mutex_lock(&c->lock);
    mu_control_complain(c, &complaint);
    pthread_mutex_unlock(&c->lock);
}

void mu_control_fail(struct mu_control *c, int status, int rank, const char *why)
{
    fail(c, (struct mu_complaint){ .status = status, .rank = rank }, why);
}

void mu_control_fail_printed(struct mu_control *c, int status, const char *why)
{
    fail(c, (struct mu_complaint){ .status = status, .rank = -1, .printed = 1 }, why);
}

void mu_control_report_death(struct mu_control *c, int rank, enum mu_death death)
{
    fail(c,
         (struct mu_complaint){
             .status = MUSTER_EPEER, .rank = rank, .death = (int32_t)death },
         "");
}

void mu_control_overdue(struct mu_control *c)
{
    pthread_mutex_lock(&c->lock);
    mu_control_overdue_now(c);
    mu_control_wake(c);
    pthread_mutex_unlock(&c->lock);
}

bool mu_control_failed(struct mu_control *c, struct mu_err *err)
{
    bool failed;

    pthread_mutex_lock(&c->lock);
    failed = c->ended;
    if (failed)
        mu_control_failure(c, err);
    pthread_mutex_unlock(&c->lock);
    return failed;
}

int mu_control_guilty(struct mu_control *c)
{
    int rank;

    pthread_mutex_lock(&c->lock);
    rank = c->ended ? c->ending.rank : -1;
    pthread_mutex_unlock(&c->lock);
    return rank;
}
