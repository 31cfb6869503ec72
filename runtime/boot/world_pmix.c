/* SPDX-License-Identifier: BSD-3-Clause */
/* world_pmix.c - rank, size and exchange from PMIx 4 or 5
 *
 * Four things PMIx under Slurm does not do by itself:
 * - A fence without PMIX_COLLECT_DATA does not wait for other nodes (Slurm's tree fence
 *   with TreeWidth above the number of nodes), so every fence collects.
 * - A fence succeeds without ranks that exited, so every rank's card is read after it.
 * - PMIX_TIMEOUT is not honoured for remote ranks, so the non-blocking fence is waited
 *   for with our own clock.
 * - Nobody is told of a rank that dies in a fence, so neighbours watch each other.
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

#include "runtime/base/parse.h"
#include "runtime/boot/neighbour.h"
#include "runtime/boot/pmix_call.h"
#include "runtime/core/contract.h"
#include "runtime/core/ranks.h"

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
    const struct mu_world *world;
    struct mu_neighbour neighbour;
    bool left;         /* PMIx is finalized */
    int lost;          /* the neighbour that died in a fence, or -1 */
    char last_key[64]; /* published last: every rank does so before each fence */
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

/* The launcher's name of the node comes first: PMIx 5 under Slurm 24.11 gives the
 * machine's own, which may be another.
 */
static void get_host(const pmix_proc_t *self, const char *node, char *host, size_t len)
{
    pmix_value_t *value = NULL;

    if (node && *node)
        snprintf(host, len, "%s", node);
    else if (PMIx_Get(self, PMIX_HOSTNAME, NULL, 0, &value) == PMIX_SUCCESS && value) {
        if (value->type == PMIX_STRING && value->data.string)
            snprintf(host, len, "%s", value->data.string);
        PMIX_VALUE_RELEASE(value);
    }
    if (!host[0] && gethostname(host, len - 1) < 0)
        snprintf(host, len, "?");
}

/* ---- Exchange ------------------------------------------------------------------ */

static int publish(void *arg, const char *key, const void *value, size_t len,
                   struct mu_err *err)
{
    struct pmix *p = arg;
    pmix_value_t v;
    pmix_status_t rc;

    mu_copy(p->last_key, sizeof p->last_key, key);
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
                     struct mu_call **out)
{
    int seconds = timeout < 1 ? 1 : (int)timeout;
    struct mu_call *c = *out = mu_call_new();
    bool yes = true;

    if (!c)
        return PMIX_ERR_NOMEM;
    c->who = p->self;
    c->who.rank = (pmix_rank_t)rank;
    PMIX_INFO_LOAD(&c->info[0], PMIX_TIMEOUT, &seconds, PMIX_INT);
    /* Our own server has it all after a fence that collects. Without this word it would
     * ask Slurm for a rank that died, and Slurm then cancels the step (same node) or
     * retries for 30 s and does not even act on PMIx_Abort meanwhile (other node).
     */
    PMIX_INFO_LOAD(&c->info[1], PMIX_IMMEDIATE, &yes, PMIX_BOOL);
    return PMIx_Get_nb(&c->who, key, c->info, 2, mu_on_get, c);
}

static int fetch(void *arg, int rank, const char *key, void **value, size_t *len,
                 double timeout, struct mu_err *err)
{
    struct timespec until = mu_in_seconds(timeout);
    pmix_value_t *v = NULL;
    struct mu_call *c;
    pmix_status_t rc = start_get(arg, rank, key, timeout, &c);
    void *copy = NULL;

    if (!c)
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory for %s", key);
    rc = mu_call_wait(c, rc, &until, &v);
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

static bool lost_a_neighbour(void *arg)
{
    struct pmix *p = arg;

    p->lost = mu_neighbour_look(&p->neighbour);
    return p->lost >= 0;
}

static pmix_status_t fence_until(struct pmix *p, const struct timespec *until)
{
    struct mu_call *c = mu_call_new();
    bool yes = true;

    if (!c)
        return PMIX_ERR_NOMEM;
    c->who = p->self;
    c->who.rank = PMIX_RANK_WILDCARD;
    c->leave = lost_a_neighbour;
    c->leave_arg = p;
    PMIX_INFO_LOAD(&c->info[0], PMIX_COLLECT_DATA, &yes, PMIX_BOOL);
    return mu_call_wait(c, PMIx_Fence_nb(&c->who, 1, c->info, 1, mu_on_fence, c), until,
                        NULL);
}

/* ---- Meeting ------------------------------------------------------------------- */

/* The ranks of this node, from PMIx's list "0,1,2"; false: not known. */
static bool local_ranks(const struct mu_world *w, bool *local)
{
    const struct pmix *p = w->impl;
    pmix_proc_t all = p->self;
    pmix_value_t *value = NULL;
    char *rest, *item;
    long rank;

    all.rank = PMIX_RANK_WILDCARD;
    if (PMIx_Get(&all, PMIX_LOCAL_PEERS, NULL, 0, &value) != PMIX_SUCCESS || !value)
        return false;
    rest = value->type == PMIX_STRING ? value->data.string : NULL;
    while ((item = mu_parse_next(&rest, ',')))
        if (mu_parse_int("", item, 0, w->size - 1, &rank, NULL) == 0)
            local[rank] = true;
    PMIX_VALUE_RELEASE(value);
    return true;
}

/* The step on this node: two clusters on one machine may call theirs the same, but
 * their servers have folders of their own.
 */
static uint64_t node_key(const struct pmix *p)
{
    pmix_proc_t all = p->self;
    pmix_value_t *value = NULL;
    uint64_t key = mu_hash(0, p->self.nspace, strlen(p->self.nspace));

    all.rank = PMIX_RANK_WILDCARD;
    if (PMIx_Get(&all, PMIX_NSDIR, NULL, 0, &value) != PMIX_SUCCESS || !value)
        return key;
    if (value->type == PMIX_STRING && value->data.string)
        key = mu_hash(key, value->data.string, strlen(value->data.string));
    PMIX_VALUE_RELEASE(value);
    return key;
}

static void watch_neighbours(struct mu_world *w)
{
    struct pmix *p = w->impl;
    bool *local = calloc((size_t)w->size, sizeof *local);

    if (local && local_ranks(w, local))
        mu_neighbour_open(&p->neighbour, node_key(p), w->rank, local, w->size);
    free(local);
}

/* After a fence that did not end. Our server knows which ranks of this node published
 * what comes before it; those of other nodes it must not be asked for (see start_get),
 * so a rank of their own node names them.
 */
static int name_missing(const struct mu_world *w, double timeout, struct mu_err *err)
{
    const struct pmix *p = w->impl;
    bool *missing = calloc((size_t)w->size, sizeof *missing);
    struct timespec until = mu_in_seconds(2);
    char ranks[256];
    int n = 0;

    if (!missing || !local_ranks(w, missing))
        goto unknown;
    for (int r = 0; r < w->size; r++) {
        struct mu_call *c = NULL;
        pmix_status_t rc = PMIX_SUCCESS;

        if (missing[r])
            rc = start_get(p, r, p->last_key, 1, &c);
        missing[r] = c && mu_call_wait(c, rc, &until, NULL) != PMIX_SUCCESS;
        n += missing[r];
    }
    if (n == 0)
        goto unknown;
    mu_ranks_text(missing, w->size, ranks, sizeof ranks);
    free(missing);
    return mu_err_set(err, MUSTER_ERENDEZVOUS,
                      "%s did not arrive within %g s (MUSTER_INIT_TIMEOUT)", ranks,
                      timeout);
unknown:
    free(missing);
    sleep(3); /* so that a rank that can name the missing one speaks first */
    return mu_err_set(err, MUSTER_ERENDEZVOUS,
                      "a rank of another node did not arrive within %g s "
                      "(MUSTER_INIT_TIMEOUT); those of %s did",
                      timeout, p->card.host);
}

/* Wait for all ranks, and say who is missing when they do not come. */
static int fence(void *arg, double timeout, struct mu_err *err)
{
    struct timespec until = mu_in_seconds(timeout);
    struct pmix *p = arg;
    pmix_status_t rc = fence_until(p, &until);

    if (p->lost >= 0 && p->lost != p->neighbour.next)
        usleep(300000); /* the one before it speaks */
    if (p->lost >= 0)
        return mu_err_set(err, MUSTER_EPEER,
                          "rank %d (node %s) died or left before all ranks had met",
                          p->lost, p->card.host);
    if (rc == PMIX_ERR_TIMEOUT)
        return name_missing(p->world, timeout, err);
    if (rc != PMIX_SUCCESS)
        return mu_err_set(err, MUSTER_ERENDEZVOUS, "PMIx_Fence failed: %s",
                          PMIx_Error_string(rc));
    return 0;
}

static int read_card(struct mu_world *w, int rank, struct card *card,
                     struct mu_err *err)
{
    void *value;
    size_t len;

    if (fetch(w->impl, rank, CARD_KEY, &value, &len, 5, err) < 0)
        return mu_err_set(err, MUSTER_ERENDEZVOUS,
                          "rank %d ended before all ranks had met", rank);
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
    struct pmix *p = w->impl;
    struct card *cards;
    int result;

    watch_neighbours(w);
    if (publish(p, CARD_KEY, &p->card, sizeof p->card, err) < 0 ||
        fence(p, timeout, err) < 0)
        return -1;
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
    struct pmix *p = world->impl;

    if (!p->left)
        PMIx_Finalize(NULL, 0);
    mu_neighbour_close(&p->neighbour);
    free(world->impl);
    mu_world_free(world);
}

/* Slurm's server ends the step, a second later, when a client is lost that has not said
 * goodbye.
 */
static void pmix_leave(struct mu_world *world)
{
    struct pmix *p = world->impl;

    if (!p->left)
        PMIx_Finalize(NULL, 0);
    p->left = true;
}

struct last_words {
    bool left;
    int status;
    char text[256];
};

static void *abort_step(void *arg)
{
    const struct last_words *words = arg;
    pmix_proc_t self;

    if (words->left)
        PMIx_Init(&self, NULL, 0);
    PMIx_Abort(words->status, words->text, NULL, 0);
    return NULL;
}

/* Slurm ends the step 0.3 s after PMIx_Abort; but while it retries to reach the daemon
 * of a node whose tasks are gone it takes 30 s to answer. Then each rank ends by
 * itself.
 */
static void pmix_abort(struct mu_world *world, int status, const char *why)
{
    struct last_words *words = calloc(1, sizeof *words);
    pthread_t thread;

    if (!words)
        return;
    words->status = status;
    words->left = ((const struct pmix *)world->impl)->left;
    mu_copy(words->text, sizeof words->text, why);
    if (pthread_create(&thread, NULL, abort_step, words) == 0)
        sleep(3);
}

static int fill_card(struct pmix *p, const struct mu_launch *launch, struct mu_err *err)
{
    long node = get_number(&p->self, p->self.rank, PMIX_NODEID);

    p->card.magic = CARD_MAGIC;
    p->card.pid = getpid();
    get_host(&p->self, launch->slurmd_nodename, p->card.host, sizeof p->card.host);
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
    p->world = w;
    p->neighbour = MU_NEIGHBOUR_NONE;
    p->lost = -1;
    w->impl = p;
    w->exchange = (struct mu_exchange){ p, publish, fence, fetch };
    w->meet = pmix_meet;
    w->close = pmix_close;
    w->leave = pmix_leave;
    w->abort = pmix_abort;
    if (fill_card(p, launch, err) < 0) {
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
