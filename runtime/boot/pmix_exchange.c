/* SPDX-License-Identifier: BSD-3-Clause */
/* pmix_exchange.c - publish, fetch and fence over PMIx 4 or 5
 *
 * Four things PMIx under Slurm does not do by itself:
 * - A fence without PMIX_COLLECT_DATA does not wait for other nodes (Slurm's tree fence
 *   with TreeWidth above the number of nodes), so every fence collects.
 * - A fence succeeds without ranks that exited, so all rank records are read after it.
 * - PMIX_TIMEOUT is not honoured for remote ranks, so the non-blocking fence is waited
 *   for with our own clock.
 * - PMIx does not report a rank that dies in a fence, so ranks watch each other.
 */
#include "runtime/boot/world_pmix.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/parse.h"
#include "runtime/boot/pmix_call.h"
#include "runtime/core/ranks.h"
#include "runtime/core/reporter.h"
#include "runtime/muster.h"

static void refuse(const struct pmix *p, int rank, const char *key, pmix_status_t rc,
                   struct mu_err *err)
{
    struct mu_rank_name who = { .rank = rank };
    char host[128], name[192];

    mu_pmix_host_of(p, rank, host, sizeof host);
    who.host = host;
    mu_rank_name_text(&who, name, sizeof name);
    mu_err_set(err, MUSTER_ERENDEZVOUS, "%s published no %s: %s", name, key,
               PMIx_Error_string(rc));
}

int mu_pmix_fetch(void *arg, int rank, const char *key, void **value, size_t *len,
                  double timeout, struct mu_err *err)
{
    double until = mu_clock_s() + timeout;
    pmix_value_t *v = NULL;
    struct mu_call *c;
    pmix_status_t rc = mu_pmix_start_get(arg, rank, key, timeout, &c);
    void *copy = NULL;

    if (!c)
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory for %s", key);
    rc = mu_call_wait(c, rc, until, &v);
    if (rc != PMIX_SUCCESS || !v || v->type != PMIX_BYTE_OBJECT) {
        refuse(arg, rank, key, rc, err);
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

static pmix_status_t fence_until(struct pmix *p, double until)
{
    struct mu_call *c = mu_call_new();
    bool yes = true;

    if (!c)
        return PMIX_ERR_NOMEM;
    c->proc = p->self;
    c->proc.rank = PMIX_RANK_WILDCARD;
    c->leave = mu_pmix_watch_poll;
    c->leave_arg = p;
    PMIX_INFO_LOAD(&c->info[0], PMIX_COLLECT_DATA, &yes, PMIX_BOOL);
    return mu_call_wait(c, PMIx_Fence_nb(&c->proc, 1, c->info, 1, mu_on_fence, c),
                        until, NULL);
}

/* ---- Who is missing ------------------------------------------------------------ */

/* After a fence that did not end: which ranks have not entered it?
 *
 * this node           our server has what each rank publishes before the fence
 * other nodes         a rank of that node names them. Our server is not asked: see
 *                     start_get; asked on three nodes, it missed ranks that were well
 * one rank elsewhere  it names itself
 * the next node       the ring of nodes reports one that does not answer
 */
static int find_missing(const struct mu_world *w, bool *missing, char *host, size_t len)
{
    const struct pmix *p = w->impl;
    double until = mu_clock_s() + 2;
    int n = 0, elsewhere = w->size, other = -1;

    mu_copy(host, len, p->world->host);
    if (!mu_pmix_local_ranks(w, missing))
        return 0;
    for (int r = 0; r < w->size; r++) {
        struct mu_call *c = NULL;
        pmix_status_t rc = PMIX_SUCCESS;

        elsewhere -= missing[r];
        if (missing[r])
            rc = mu_pmix_start_get(p, r, p->last_key, 1, &c);
        else
            other = r;
        missing[r] = c && mu_call_wait(c, rc, until, NULL) != PMIX_SUCCESS;
        n += missing[r];
    }
    if (n == 0 && elsewhere > 1)
        other = mu_ring_behind(&p->watch.ring);
    if (n == 0 && elsewhere > 0 && other >= 0) {
        missing[other] = true;
        mu_pmix_host_of(p, other, host, len);
        n = 1;
    }
    return n;
}

static int report_missing(struct mu_world *w, double timeout, struct mu_err *err)
{
    const struct pmix *p = w->impl;
    bool *missing = calloc((size_t)w->size, sizeof *missing);
    char ranks[256], host[128];

    if (missing && find_missing(w, missing, host, sizeof host) > 0) {
        mu_ranks_text(missing, w->size, ranks, sizeof ranks);
        free(missing);
        return mu_late_err(ranks, host, timeout, err);
    }
    free(missing);
    /* Not the rank without a record: Slurm's server there may be held up,
     * waiting for a node that is dead.
     */
    w->view.sight = MU_SAW_EARLY_UNNAMED;
    return mu_err_set(err, MUSTER_ERENDEZVOUS,
                      "a rank of another node did not arrive within %g s "
                      "(MUSTER_INIT_TIMEOUT); all ranks of node %s did",
                      timeout, p->world->host);
}

int mu_pmix_fence(void *arg, double timeout, struct mu_err *err)
{
    double until = mu_clock_s() + timeout;
    struct pmix *p = arg;
    pmix_status_t rc;

    mu_ring_enter(&p->watch.ring);
    rc = fence_until(p, until);
    if (p->watch.lost >= 0)
        return mu_pmix_watch_report(p, err);
    if (rc == PMIX_ERR_TIMEOUT)
        return report_missing(p->world, timeout, err);
    if (rc != PMIX_SUCCESS)
        return mu_err_set(err, MUSTER_ERENDEZVOUS, "PMIx_Fence failed: %s",
                          PMIx_Error_string(rc));
    return 0;
}
