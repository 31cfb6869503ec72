/* SPDX-License-Identifier: BSD-3-Clause */
/* survive.h - after a death, or to take newcomers: the rendezvous of the living
 *
 *   each survivor connects to the lowest rank not known dead and sends its ballot
 *   (steps committed, voted, finalizing, ddp objects)
 *        |
 *   that rank, the leader, waits until every rank has connected or is known dead
 *        |
 *   the leader sends the verdict: the ranks that live, and all ballots. The connections
 *   stay open as a star, over which the survivors set up their new connections
 *
 * Endpoints accept at any time, so a rank that computes counts as alive. The kernel
 * shows which ranks have died: it ends their connections without the goodbye that a
 * living rank sends first, and refuses a call to them. No call to a dead rank's address
 * is needed where a connection of the agreement before has ended: another process may
 * listen there now. A leader that dies is found in the same way, and the next rank
 * leads. The verdict is final when all survivors are connected again; a rank that fails
 * before that connects again.
 *
 * Processes that wait to join have called the leader before. When no rank has died and
 * every ballot admits them, the verdict contains them, behind all other ranks: the
 * leader sends it to the ranks in their order, and to the newcomers last. So the next
 * leader has what any living rank has received. A newcomer that misses the verdict
 * closes its endpoint, and counts as dead.
 */
#ifndef MU_SURVIVE_H
#define MU_SURVIVE_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/exchange.h"
#include "runtime/boot/world.h"

struct mu_survive;

enum mu_life {
    MU_LIVES,
    MU_DIED,
    MU_SILENT, /* its host or the link to it is dead: it may live */
};

#define MU_SURVIVE_BALLOT 4 /* numbers */

/* world must be met; it is borrowed. The functions below start from the ranks that
 * world has now.
 */
int mu_survive_open(const struct mu_world *world, struct mu_survive **out,
                    struct mu_err *err);
void mu_survive_close(struct mu_survive *s); /* NULL is fine */

/* [collective among the living] Agree. Ranks are those before the death until
 * mu_survive_settle; newcomers are behind them. admits: this rank takes newcomers.
 * Fails (MUSTER_ETIMEOUT) when a rank that lives does not call within `patience`
 * seconds.
 */
int mu_survive_agree(struct mu_survive *s, const int64_t ballot[MU_SURVIVE_BALLOT],
                     bool admits, double patience, struct mu_err *err);
/* As agreed: equal on all survivors. */
enum mu_life mu_survive_life(const struct mu_survive *s, int rank);
const int64_t *mu_survive_ballot(const struct mu_survive *s, int rank);
/* The number of the agreement: the generation of the world that it leads to. */
uint64_t mu_survive_generation(const struct mu_survive *s);
/* Does this rank lead? One survivor does. */
bool mu_survive_leads(const struct mu_survive *s);
/* From now on the living are ranks 0, 1, ... in their old order. */
void mu_survive_settle(struct mu_survive *s);

/* ---- Newcomers ---- */
/* How many wait on this rank. */
int mu_survive_waiting(struct mu_survive *s);
/* Those that this rank has learned of in the last agreement, dead or alive: the i-th of
 * the last ranks.
 */
int mu_survive_newcomers(const struct mu_survive *s);
const struct mu_member *mu_survive_newcomer(const struct mu_survive *s, int i);
/* As a process that joins: fd is a connection to rank 0 of MU_SERVICE_JOIN, which is
 * taken over. Wait until `until` for the verdict. 0: world has rank and size now, and
 * *out is settled. 1: rank 0 is gone, or `until` has passed. -1: this process is
 * refused.
 */
int mu_survive_join(struct mu_world *world, int fd, const struct mu_member *mine,
                    double until, struct mu_survive **out, struct mu_err *err);

/* publish, fence, fetch among the survivors, from the agreement to the next one. */
struct mu_exchange mu_survive_exchange(struct mu_survive *s);

#endif
