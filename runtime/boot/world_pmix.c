/* SPDX-License-Identifier: BSD-3-Clause */
/* world_pmix.c - rank, size and exchange from PMIx 4 or 5
 *
 * Three things PMIx under Slurm does not do by itself:
 * - A fence without PMIX_COLLECT_DATA does not wait for other nodes (Slurm's tree fence
 *   with TreeWidth above the number of nodes), so every fence collects.
 * - A fence succeeds without ranks that exited, so every rank's card is read after it.
 * - PMIX_TIMEOUT is not honoured for remote ranks, so the non-blocking fence is waited
 *   for with our own clock.
 */
#include "runtime/boot/world.h"

#include <errno.h>
#include <pmix.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CARD_MAGIC 0x6d757331u /* "mus1": changes with struct card */
#define CARD_KEY "muster.card"

/* What each rank tells the others first. */
struct card {
    uint32_t magic;
    int32_t pid;
    char host[128], node_key[160];
    uint8_t token[MU_TOKEN_LEN]; /* rank 0's counts */
};

struct pmix {
    pmix_proc_t self;
    struct card card;
};

/* A number PMIx knows about `rank` (PMIX_RANK_WILDCARD: about the job), or -1. Types
 * differ between keys and releases.
 */
static long get_number(const pmix_proc_t *self, pmix_rank_t rank, const char *key)
{
    pmix_proc_t who = *self;
    pmix_value_t *value = NULL;
    long n = -1;

    who.rank = rank;
    if (PMIx_Get(&who, key, NULL, 0, &value) != PMIX_SUCCESS || !value)
        return -1;
    switch (value->type) {
    case PMIX_UINT16:
        n = value->data.uint16;
        break;
    case PMIX_UINT32:
        n = value->data.uint32;
        break;
    case PMIX_UINT64:
        n = (long)value->data.uint64;
        break;
    case PMIX_INT:
        n = value->data.integer;
        break;
    case PMIX_SIZE:
        n = (long)value->data.size;
        break;
    case PMIX_PROC_RANK:
        n = value->data.rank;
        break;
    default:
        break;
    }
    PMIX_VALUE_RELEASE(value);
    return n;
}

static void get_host(const pmix_proc_t *self, char *host, size_t len)
{
    pmix_value_t *value = NULL;

    if (PMIx_Get(self, PMIX_HOSTNAME, NULL, 0, &value) == PMIX_SUCCESS && value) {
        if (value->type == PMIX_STRING && value->data.string)
            snprintf(host, len, "%s", value->data.string);
        PMIX_VALUE_RELEASE(value);
    }
    if (!host[0] && gethostname(host, len - 1) < 0)
        snprintf(host, len, "?");
}

/* ---- A call without a blocking form that keeps a deadline ---------------------- */

/* Shared by the waiter and a callback that may come after the waiter left: the last of
 * the two frees it.
 */
struct call {
    pthread_mutex_t lock;
    pthread_cond_t done_cond;
    int users, done;
    pmix_status_t status;
    pmix_value_t *value; /* of a get: a copy */
    pmix_proc_t who;     /* arguments, valid until the callback */
    pmix_info_t info;
};

static struct call *call_new(void)
{
    struct call *c = calloc(1, sizeof *c);
    pthread_condattr_t attr;

    if (!c)
        return NULL;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->done_cond, &attr);
    pthread_condattr_destroy(&attr);
    c->users = 2;
    return c;
}

/* Give up one of the two uses; called with the lock held. */
static void call_leave(struct call *c)
{
    int left = --c->users;

    pthread_mutex_unlock(&c->lock);
    if (left > 0)
        return;
    if (c->value)
        PMIX_VALUE_RELEASE(c->value);
    pthread_cond_destroy(&c->done_cond);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

static void call_finish(struct call *c, pmix_status_t status, const pmix_value_t *value)
{
    pthread_mutex_lock(&c->lock);
    c->status = status;
    if (status == PMIX_SUCCESS && value) {
        PMIX_VALUE_CREATE(c->value, 1);
        if (c->value && PMIx_Value_xfer(c->value, value) != PMIX_SUCCESS)
            c->status = PMIX_ERROR;
    }
    c->done = 1;
    pthread_cond_signal(&c->done_cond);
    call_leave(c);
}

static void on_fence(pmix_status_t status, void *arg)
{
    call_finish(arg, status, NULL);
}

static void on_get(pmix_status_t status, pmix_value_t *value, void *arg)
{
    call_finish(arg, status, value);
}

static struct timespec in_seconds(double seconds)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += (time_t)seconds;
    t.tv_nsec += (long)((seconds - (double)(time_t)seconds) * 1e9);
    if (t.tv_nsec >= 1000000000) {
        t.tv_sec++;
        t.tv_nsec -= 1000000000;
    }
    return t;
}

/* Wait for c; `started` is what the starting call returned. PMIX_ERR_TIMEOUT at the
 * deadline. *value (may be NULL) gets the value of a get, to be released.
 */
static pmix_status_t call_wait(struct call *c, pmix_status_t started,
                               const struct timespec *until, pmix_value_t **value)
{
    pmix_status_t status;

    pthread_mutex_lock(&c->lock);
    if (started != PMIX_SUCCESS) {
        /* Failed, or done at once (PMIX_OPERATION_SUCCEEDED): no callback comes. */
        c->users--;
        c->done = 1;
        c->status = started == PMIX_OPERATION_SUCCEEDED ? PMIX_SUCCESS : started;
    }
    while (!c->done &&
           pthread_cond_timedwait(&c->done_cond, &c->lock, until) != ETIMEDOUT)
        ;
    status = c->done ? c->status : PMIX_ERR_TIMEOUT;
    if (value) {
        *value = c->value;
        c->value = NULL;
    }
    call_leave(c);
    return status;
}

/* ---- Exchange ------------------------------------------------------------------ */

static int publish(void *arg, const char *key, const void *value, size_t len,
                   struct mu_err *err)
{
    pmix_value_t v;
    pmix_status_t rc;

    PMIX_VALUE_CONSTRUCT(&v);
    v.type = PMIX_BYTE_OBJECT;
    v.data.bo.bytes = (char *)(uintptr_t)value; /* PMIx_Put copies */
    v.data.bo.size = len;
    rc = PMIx_Put(PMIX_GLOBAL, key, &v);
    if (rc == PMIX_SUCCESS)
        rc = PMIx_Commit();
    if (rc != PMIX_SUCCESS)
        return mu_err_set(err, MUSTER_ERENDEZVOUS, "PMIx_Put of %s failed: %s", key,
                          PMIx_Error_string(rc));
    return 0;
}

static int start_get(const struct pmix *p, int rank, const char *key, double timeout,
                     struct call **out)
{
    int seconds = timeout < 1 ? 1 : (int)timeout;
    struct call *c = *out = call_new();

    if (!c)
        return PMIX_ERR_NOMEM;
    c->who = p->self;
    c->who.rank = (pmix_rank_t)rank;
    PMIX_INFO_LOAD(&c->info, PMIX_TIMEOUT, &seconds, PMIX_INT);
    return PMIx_Get_nb(&c->who, key, &c->info, 1, on_get, c);
}

static int fetch(void *arg, int rank, const char *key, void **value, size_t *len,
                 double timeout, struct mu_err *err)
{
    struct timespec until = in_seconds(timeout);
    pmix_value_t *v = NULL;
    struct call *c;
    pmix_status_t rc = start_get(arg, rank, key, timeout, &c);
    void *copy = NULL;

    if (!c)
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory for %s", key);
    rc = call_wait(c, rc, &until, &v);
    if (rc != PMIX_SUCCESS || !v || v->type != PMIX_BYTE_OBJECT) {
        mu_err_set(err, MUSTER_ERENDEZVOUS, "rank %d has no %s: %s", rank, key,
                   PMIx_Error_string(rc));
        goto out;
    }
    copy = malloc(v->data.bo.size + 1);
    if (!copy) {
        mu_err_set(err, MUSTER_EMEMORY, "out of memory for %s", key);
        goto out;
    }
    memcpy(copy, v->data.bo.bytes, v->data.bo.size);
    *value = copy;
    *len = v->data.bo.size;
out:
    if (v)
        PMIX_VALUE_RELEASE(v);
    return copy ? 0 : -1;
}

static pmix_status_t fence_until(const struct pmix *p, const struct timespec *until)
{
    struct call *c = call_new();
    bool yes = true;

    if (!c)
        return PMIX_ERR_NOMEM;
    c->who = p->self;
    c->who.rank = PMIX_RANK_WILDCARD;
    PMIX_INFO_LOAD(&c->info, PMIX_COLLECT_DATA, &yes, PMIX_BOOL);
    return call_wait(c, PMIx_Fence_nb(&c->who, 1, &c->info, 1, on_fence, c), until,
                     NULL);
}

static int fence(void *arg, double timeout, struct mu_err *err)
{
    struct timespec until = in_seconds(timeout);
    pmix_status_t rc = fence_until(arg, &until);

    if (rc == PMIX_ERR_TIMEOUT)
        return mu_err_set(err, MUSTER_ERENDEZVOUS,
                          "not all ranks arrived within %g s (MUSTER_INIT_TIMEOUT)",
                          timeout);
    if (rc != PMIX_SUCCESS)
        return mu_err_set(err, MUSTER_ERENDEZVOUS, "PMIx_Fence failed: %s",
                          PMIx_Error_string(rc));
    return 0;
}

/* ---- Meeting ------------------------------------------------------------------- */

/* After a fence that did not end: ask for every card at once and list the ranks whose
 * card does not come within a few seconds.
 */
static int name_missing(const struct mu_world *w, double timeout, struct mu_err *err)
{
    const struct pmix *p = w->impl;
    struct call **call = calloc((size_t)w->size, sizeof *call);
    pmix_status_t *rc = calloc((size_t)w->size, sizeof *rc);
    struct timespec until = in_seconds(3);
    char list[512] = "";
    size_t n = 0;
    int missing = 0;

    for (int r = 0; call && rc && r < w->size; r++)
        rc[r] = start_get(p, r, CARD_KEY, 2, &call[r]);
    for (int r = 0; call && rc && r < w->size; r++) {
        if (call[r] && call_wait(call[r], rc[r], &until, NULL) == PMIX_SUCCESS)
            continue;
        missing++;
        if (n + 16 < sizeof list)
            n += (size_t)snprintf(list + n, sizeof list - n, "%s%d", n ? ", " : "", r);
    }
    free(call);
    free(rc);
    if (missing == 0)
        return mu_err_set(
            err, MUSTER_ERENDEZVOUS,
            "all %d ranks started but the PMIx fence did not end within %g s", w->size,
            timeout);
    return mu_err_set(
        err, MUSTER_ERENDEZVOUS,
        "rank%s %s did not arrive within %g s (MUSTER_INIT_TIMEOUT); %d of %d did",
        missing > 1 ? "s" : "", list, timeout, w->size - missing, w->size);
}

static int read_card(struct mu_world *w, int rank, struct card *card,
                     struct mu_err *err)
{
    void *value;
    size_t len;

    if (fetch(w->impl, rank, CARD_KEY, &value, &len, 5, err) < 0)
        return mu_err_set(err, MUSTER_ERENDEZVOUS,
                          "rank %d left before the first rendezvous: it ended without "
                          "muster_init, or crashed",
                          rank);
    if (len == sizeof *card)
        memcpy(card, value, sizeof *card);
    free(value);
    if (len != sizeof *card || card->magic != CARD_MAGIC)
        return mu_err_set(err, MUSTER_ECONTRACT,
                          "rank %d runs another release of libmuster than rank %d",
                          rank, w->rank);
    card->host[sizeof card->host - 1] = '\0';
    card->node_key[sizeof card->node_key - 1] = '\0';
    return 0;
}

static int read_cards(struct mu_world *w, struct card *cards, struct mu_err *err)
{
    const char **key = calloc((size_t)w->size, sizeof *key);
    int rc = -1;

    if (!key)
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory for %d ranks", w->size);
    for (int r = 0; r < w->size; r++) {
        if (read_card(w, r, &cards[r], err) < 0)
            goto out;
        key[r] = cards[r].node_key;
        w->pid_of[r] = cards[r].pid;
        w->host_of[r] = strdup(cards[r].host);
        if (!w->host_of[r]) {
            mu_err_set(err, MUSTER_EMEMORY, "out of memory for %d ranks", w->size);
            goto out;
        }
    }
    memcpy(w->token, cards[0].token, sizeof w->token);
    mu_world_number_nodes(w, key);
    rc = 0;
out:
    free(key);
    return rc;
}

static int pmix_meet(struct mu_world *w, double timeout, struct mu_err *err)
{
    struct timespec until = in_seconds(timeout);
    struct pmix *p = w->impl;
    struct card *cards;
    pmix_status_t rc;
    int result;

    if (publish(p, CARD_KEY, &p->card, sizeof p->card, err) < 0)
        return -1;
    rc = fence_until(p, &until);
    if (rc == PMIX_ERR_TIMEOUT)
        return name_missing(w, timeout, err);
    if (rc != PMIX_SUCCESS)
        return mu_err_set(err, MUSTER_ERENDEZVOUS, "PMIx_Fence failed: %s",
                          PMIx_Error_string(rc));
    cards = calloc((size_t)w->size, sizeof *cards);
    if (!cards)
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory for %d ranks", w->size);
    result = read_cards(w, cards, err);
    free(cards);
    return result;
}

/* ---- Open and close ------------------------------------------------------------- */

static void pmix_close(struct mu_world *world)
{
    PMIx_Finalize(NULL, 0);
    free(world->impl);
    mu_world_free(world);
}

static void pmix_abort(struct mu_world *world, int status, const char *why)
{
    char text[256];

    snprintf(text, sizeof text, "%s", why);
    /* An empty list means the whole job; Slurm 22.05 ends the step within 0.3 s. */
    if (PMIx_Abort(status, text, NULL, 0) == PMIX_SUCCESS)
        sleep(5);
}

static int fill_card(struct pmix *p, struct mu_err *err)
{
    long node = get_number(&p->self, p->self.rank, PMIX_NODEID);

    p->card.magic = CARD_MAGIC;
    p->card.pid = getpid();
    get_host(&p->self, p->card.host, sizeof p->card.host);
    snprintf(p->card.node_key, sizeof p->card.node_key, "%ld %s", node, p->card.host);
    return mu_world_random(p->card.token, sizeof p->card.token, err);
}

static struct mu_world *make_world(const struct mu_launch *launch,
                                   const pmix_proc_t *self, int size,
                                   struct mu_err *err)
{
    struct mu_world *w;
    struct pmix *p = calloc(1, sizeof *p);
    char job[64];

    if (launch->slurm_job_id)
        snprintf(job, sizeof job, "%.30s.%.30s", launch->slurm_job_id,
                 launch->slurm_step_id ? launch->slurm_step_id : "0");
    else
        snprintf(job, sizeof job, "%.63s", self->nspace);
    w = mu_world_new((int)self->rank, size, job, err);
    if (!p || !w) {
        free(p);
        mu_world_free(w);
        return NULL;
    }
    p->self = *self;
    w->impl = p;
    w->exchange = (struct mu_exchange){ p, publish, fence, fetch };
    w->meet = pmix_meet;
    w->close = pmix_close;
    w->abort = pmix_abort;
    if (fill_card(p, err) < 0) {
        free(p);
        mu_world_free(w);
        return NULL;
    }
    return w;
}

int mu_world_pmix(const struct mu_launch *launch, struct mu_world **out,
                  struct mu_err *err)
{
    struct mu_world *w;
    pmix_proc_t self;
    pmix_status_t rc = PMIx_Init(&self, NULL, 0);
    long size;

    /* Without a server PMIx 4 says UNREACH; other releases play a singleton. */
    if (rc != PMIX_SUCCESS && rc != PMIX_ERR_UNREACH)
        return mu_err_set(err, MUSTER_ERENDEZVOUS, "PMIx_Init failed: %s",
                          PMIx_Error_string(rc));
    if (rc == PMIX_ERR_UNREACH || strncmp(self.nspace, "singleton", 9) == 0) {
        PMIx_Finalize(NULL, 0);
        return 1;
    }
    size = get_number(&self, PMIX_RANK_WILDCARD, PMIX_JOB_SIZE);
    if (size < 1 || (long)self.rank >= size) {
        mu_err_set(err, MUSTER_ERENDEZVOUS, "PMIx tells rank %u of %ld ranks",
                   self.rank, size);
        goto fail;
    }
    if (mu_launch_check(launch, (int)self.rank, (int)size, err) < 0)
        goto fail;
    w = make_world(launch, &self, (int)size, err);
    if (!w)
        goto fail;
    *out = w;
    return 0;
fail:
    PMIx_Finalize(NULL, 0);
    return -1;
}
