/* SPDX-License-Identifier: BSD-3-Clause */
/* pmix_watch.c - who died while this rank waits in a fence
 *
 * Three ways to see it, since PMIx under Slurm tells nothing: a ring of the ranks of
 * this node, a ring of the first ranks of all nodes, and the processes of this node's
 * tasks.
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

/* ---- The first rank of the next node ----------------------------------------------
 */

/* Request its address record at once, while it is alive: our server answers when that
 * rank has published it. The fence does not depend on the answer.
 */
static void request_next(struct pmix *p)
{
    struct mu_call *c = mu_call_new();

    if (!c)
        return;
    c->proc = p->self;
    c->proc.rank = (pmix_rank_t)p->watch.nodes.next;
    p->watch.request_rc = PMIx_Get_nb(&c->proc, RING_KEY, NULL, 0, mu_on_get, c);
    p->watch.request = c;
}

/* The answer has arrived, or is not needed any more. */
static void receive_next(struct pmix *p)
{
    struct timespec now = mu_in_seconds(0);
    pmix_value_t *v = NULL;

    if (mu_call_wait(p->watch.request, p->watch.request_rc, &now, &v) == PMIX_SUCCESS &&
        v && v->type == PMIX_BYTE_OBJECT)
        mu_node_ring_set_next(&p->watch.nodes, v->data.bo.bytes, v->data.bo.size);
    if (v)
        PMIX_VALUE_RELEASE(v);
    p->watch.request = NULL;
}

/* Hash of a rank's host before that rank has published; 0: unknown. Slurm has no node
 * id for ranks of other nodes.
 */
static uint64_t host_of(const struct pmix *p, int rank)
{
    pmix_proc_t proc = p->self;
    pmix_value_t *value = NULL;
    uint64_t key = 0;
    pmix_info_t info;
    bool yes = true;

    proc.rank = (pmix_rank_t)rank;
    PMIX_INFO_LOAD(&info, PMIX_OPTIONAL, &yes, PMIX_BOOL);
    if (PMIx_Get(&proc, PMIX_HOSTNAME, &info, 1, &value) != PMIX_SUCCESS || !value)
        return 0;
    if (value->type == PMIX_STRING && value->data.string)
        key = mu_hash(2, value->data.string, strlen(value->data.string));
    PMIX_VALUE_RELEASE(value);
    return key;
}

static void open_node_ring(struct mu_world *w)
{
    struct pmix *p = w->impl;
    struct mu_node_ring *n = &p->watch.nodes;
    uint64_t *node_of = calloc((size_t)w->size, sizeof *node_of);
    bool known = node_of != NULL;

    for (int r = 0; known && r < w->size; r++) {
        node_of[r] = p->watch.local[r] ? 1 : host_of(p, r);
        known = node_of[r] != 0;
    }
    if (known)
        mu_node_ring_open(n, w->rank, node_of, w->size, p->record.host);
    free(node_of);
    if (n->next >= 0 &&
        mu_pmix_publish(p, RING_KEY, &n->mine, sizeof n->mine, NULL) == 0)
        request_next(p);
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
    mu_neighbour_open(&watch->neighbour, node_key(p), w->rank, watch->local, w->size);
    watch->next_poll = mu_clock_s() + TASKS_EVERY;
    open_node_ring(w);
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
    const char *host = p->record.host;

    if (watch->request && mu_call_done(watch->request))
        receive_next(p);
    watch->lost = mu_neighbour_poll(&watch->neighbour);
    watch->behind = watch->lost != watch->neighbour.next;
    if (watch->lost < 0) {
        watch->lost = mu_node_ring_poll(&watch->nodes, &host);
        watch->behind = 1; /* Slurm may end the step first; then we report nothing */
    }
    if (watch->lost < 0) {
        host = p->record.host;
        watch->lost = poll_tasks(p);
    }
    if (watch->lost >= 0)
        mu_copy(watch->lost_host, sizeof watch->lost_host, host);
    return watch->lost >= 0;
}

int mu_pmix_watch_report(const struct pmix *p, struct mu_err *err)
{
    const struct mu_pmix_watch *watch = &p->watch;

    usleep((watch->behind < 8 ? watch->behind : 8) * 300000);
    return mu_err_set(err, MUSTER_EPEER,
                      "rank %d (node %s) died or left before all ranks had met",
                      watch->lost, watch->lost_host);
}

void mu_pmix_watch_close(struct pmix *p)
{
    if (p->watch.request)
        receive_next(p);
    mu_neighbour_close(&p->watch.neighbour);
    mu_node_ring_close(&p->watch.nodes);
    free(p->watch.local);
    free(p->watch.gone);
}
