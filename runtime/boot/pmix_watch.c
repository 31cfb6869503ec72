/* SPDX-License-Identifier: BSD-3-Clause */
/* pmix_watch.c - who died while this rank waits in a fence
 *
 * Two ways to see it, since PMIx under Slurm reports nothing: the rings of ring.h, and
 * the processes of this node's tasks.
 */
#include "runtime/boot/world_pmix.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/parse.h"
#include "runtime/boot/tasks.h"
#include "runtime/core/contract.h"
#include "runtime/muster.h"

#define RING_KEY "muster.ring"
#define TASKS_EVERY 0.25 /* seconds */

/* ---- The records of the next ranks ---------------------------------------------- */

/* Of another node: our server answers when that rank has published. Where its node has
 * no rank any more, our server tries for seconds and PMIx_Commit waits for it: so this
 * is requested in the fence, when this rank has published. Of this node: our server has
 * it or not, and is asked again. It must not ask Slurm for a rank that died here: see
 * mu_pmix_start_get.
 */
static void request_next(struct pmix *p, int kind)
{
    struct mu_pmix_request *request = &p->watch.request[kind];
    int next = p->watch.ring.side[kind].next;

    request->sent = true;
    if (kind == MU_RING_NODE) {
        request->rc = mu_pmix_start_get(p, next, RING_KEY, 1, &request->call);
        return;
    }
    request->call = mu_call_new();
    if (!request->call)
        return;
    request->call->proc = p->self;
    request->call->proc.rank = (pmix_rank_t)next;
    mu_pmix_key(p, RING_KEY, request->call->key);
    request->rc = PMIx_Get_nb(&request->call->proc, request->call->key, NULL, 0,
                              mu_on_get, request->call);
}

/* The answer has arrived, or is not needed any more. */
static void receive_next(struct pmix *p, int kind)
{
    struct mu_pmix_request *request = &p->watch.request[kind];
    pmix_value_t *v = NULL;

    if (mu_call_wait(request->call, request->rc, 0, &v) == PMIX_SUCCESS && v &&
        v->type == PMIX_BYTE_OBJECT)
        mu_ring_set_next(&p->watch.ring, (enum mu_ring_kind)kind, v->data.bo.bytes,
                         v->data.bo.size);
    if (v)
        PMIX_VALUE_RELEASE(v);
    request->call = NULL;
}

static void poll_requests(struct pmix *p)
{
    for (int k = 0; k < MU_RINGS; k++) {
        const struct mu_ring_side *side = &p->watch.ring.side[k];
        struct mu_pmix_request *request = &p->watch.request[k];

        if (request->call &&
            (request->rc != PMIX_SUCCESS || mu_call_done(request->call)))
            receive_next(p, k);
        if (p->watch.ring.endpoint && side->next >= 0 && !request->call &&
            (!request->sent || (k == MU_RING_NODE && !side->have_next)))
            request_next(p, k);
    }
}

/* What PMIx calls a rank's host, before that rank has published; NULL: unknown. */
static char *host_of(const struct pmix *p, int rank)
{
    char host[128];

    if (p->watch.local[rank])
        return strdup(p->world->host);
    mu_pmix_host_of(p, rank, host, sizeof host);
    return host[0] ? strdup(host) : NULL;
}

static void open_ring(struct mu_world *w)
{
    struct pmix *p = w->impl;
    struct mu_ring *ring = &p->watch.ring;
    uint64_t *node_of = calloc((size_t)w->size, sizeof *node_of);

    if (!node_of)
        return;
    for (int r = 0; r < w->size; r++) {
        char *host = w->host_of[r] = host_of(p, r);

        if (host)
            node_of[r] = p->watch.local[r] ? 1 : mu_hash(2, host, strlen(host));
    }
    mu_ring_open(ring, w->endpoint, w->rank, node_of, w->size, p->world->host);
    free(node_of);
    if (ring->endpoint &&
        mu_pmix_publish(p, RING_KEY, &ring->mine, sizeof ring->mine, NULL) < 0)
        mu_ring_close(ring);
}

void mu_pmix_watch_open(struct mu_world *w)
{
    struct pmix *p = w->impl;
    struct mu_pmix_watch *watch = &p->watch;

    watch->local = calloc((size_t)w->size, sizeof *watch->local);
    watch->gone = calloc((size_t)w->size, sizeof *watch->gone);
    if (!watch->local || !watch->gone || !mu_pmix_local_ranks(w, watch->local)) {
        free(watch->local);
        watch->local = NULL;
        return;
    }
    watch->next_poll = mu_clock_s() + TASKS_EVERY;
    open_ring(w);
}

/* ---- Looking -----------------------------------------------------------------------
 */

/* The nearest rank after us on this node that has no process. The rank just before it
 * reports first. It must be missing in two polls, see mu_tasks_gone.
 */
static int poll_tasks(struct pmix *p)
{
    struct mu_pmix_watch *watch = &p->watch;
    int size = p->world->size, me = p->world->rank, found = -1;
    double now = mu_clock_s();

    if (!watch->local || now < watch->next_poll)
        return -1;
    watch->next_poll = now + TASKS_EVERY;
    watch->behind = 0;
    if (mu_tasks_gone("/proc", getpid(), watch->local, size, watch->gone) > 0)
        for (int i = 1; i < size && found < 0; i++) {
            int r = (me + i) % size;

            if (watch->local[r] && watch->gone[r])
                found = r;
            else
                watch->behind += watch->local[r];
        }
    if (found >= 0 && found == watch->suspect)
        return found;
    watch->suspect = found;
    return -1;
}

bool mu_pmix_watch_poll(void *arg)
{
    struct pmix *p = arg;
    struct mu_pmix_watch *watch = &p->watch;
    const char *host = p->world->host;
    enum mu_ring_kind kind;

    poll_requests(p);
    watch->lost = mu_ring_poll(&watch->ring, &host, &kind);
    if (watch->lost < 0) {
        host = p->world->host;
        watch->lost = poll_tasks(p);
    } else { /* in the ring of nodes Slurm may end the step before we report */
        watch->behind =
            kind == MU_RING_NODES || watch->lost != watch->ring.side[0].next;
    }
    if (watch->lost >= 0)
        mu_copy(watch->lost_host, sizeof watch->lost_host, host);
    return watch->lost >= 0;
}

bool mu_pmix_watch_lost(void *arg, struct mu_err *err)
{
    struct pmix *p = arg;

    if (p->left || !mu_pmix_watch_poll(p))
        return false;
    mu_pmix_watch_report(p, err);
    return true;
}

int mu_pmix_watch_report(const struct pmix *p, struct mu_err *err)
{
    const struct mu_rank_name who = { .rank = p->watch.lost,
                                      .host = p->watch.lost_host };

    p->world->view =
        (struct mu_view){ .sight = MU_SAW_EARLY_DEATH, .place = (int)p->watch.behind };
    return mu_death_err(MU_DEATH_EARLY, &who, err);
}

void mu_pmix_watch_close(struct pmix *p)
{
    for (int k = 0; k < MU_RINGS; k++)
        if (p->watch.request[k].call)
            receive_next(p, k);
    mu_ring_close(&p->watch.ring);
    free(p->watch.local);
    free(p->watch.gone);
}
