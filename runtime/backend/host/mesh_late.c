/* SPDX-License-Identifier: BSD-3-Clause */
/* mesh_late.c - the deadline of a collective over messages has passed: who is late? */
#include <stdio.h>
#include <string.h>

#include "runtime/backend/host/mesh.h"

/* A rank that waits for another has entered and sends input until the window is full;
 * its results stop where the late rank stops. So the rank with the least input is late;
 * results decide only between ranks with equal input.
 */
static bool further_behind(const struct mu_mesh_peer *p,
                           const struct mu_mesh_peer *than)
{
    return p->got != than->got ? p->got < than->got : p->results < than->results;
}

void mu_mesh_late(struct mu_host_backend *b, const struct mu_host_request *rq,
                  struct mu_failure *failure)
{
    int missing = 0, slowest = -1;
    char who[256] = "";

    for (int r = 0; r < b->env.size; r++) {
        const struct mu_mesh_peer *p = &b->mesh->peer[r];

        if (r == b->env.rank)
            continue;
        if (p->entered <= rq->seq) {
            size_t used = strlen(who);

            if (missing++ == 0) {
                failure->rank = r;
                mu_rank_text(b, r, who, sizeof who);
            } else if (missing <= 9) {
                snprintf(who + used, sizeof who - used, ", rank %d", r);
            }
        } else if (slowest < 0 || further_behind(p, &b->mesh->peer[slowest])) {
            slowest = r;
        }
    }
    if (missing) {
        snprintf(failure->text, sizeof failure->text,
                 "%s %s not entered %s after %g s; %d wait%s", who,
                 missing > 1 ? "have" : "has", mu_host_request_text(rq), b->env.timeout,
                 b->env.size - missing, b->env.size - missing == 1 ? "s" : "");
    } else {
        failure->rank = slowest;
        snprintf(failure->text, sizeof failure->text, "%s stopped inside %s for %g s",
                 mu_rank_text(b, slowest, who, sizeof who), mu_host_request_text(rq),
                 b->env.timeout);
    }
}
