/* SPDX-License-Identifier: BSD-3-Clause */
/* survive.h - after a death: who is left, and a meeting point for those
 *
 *   each survivor calls the lowest rank that may live, says its ballot and waits
 *        |
 *   that rank, the head, waits until every rank has called or is known to be dead
 *        |
 *   it tells all who is left, and the ballot of all; the connections stay open as a
 *   star over which the survivors exchange what their new connections need
 *
 * The kernel tells who lives: each rank listens from the start, and a call to a process
 * that is gone is refused, one that waits there ends with it. So no thread has to
 * answer, and a rank that computes counts as alive until it calls. A head that dies is
 * found in the same way, and the next rank takes its place: nothing is final before all
 * of the survivors are connected anew, and whoever fails before calls again.
 */
#ifndef MU_SURVIVE_H
#define MU_SURVIVE_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/exchange.h"
#include "runtime/base/log.h"
#include "runtime/boot/world.h"

struct mu_survive;

enum mu_life {
    MU_LIVES,
    MU_DIED,
    MU_SILENT, /* its host, or the way there, is dead: perhaps it lives */
};

/* What a rank tells the others about itself; see mu_survive_open. */
#define MU_SURVIVE_RECORD 640
#define MU_SURVIVE_BALLOT 3

/* Listen; our own record is put into `record`. world must be met; token and rank are
 * copied, ranks of the world as it is now are what the functions below start from.
 */
int mu_survive_open(const struct mu_world *world, const char *master_addr,
                    const struct mu_log *log, char record[MU_SURVIVE_RECORD],
                    struct mu_survive **out, struct mu_err *err);
/* The record of a rank; before anything below. */
int mu_survive_set_address(struct mu_survive *s, int rank, const void *record,
                           size_t len, struct mu_err *err);
void mu_survive_close(struct mu_survive *s); /* NULL is fine */

/* [collective among the living] Agree. Ranks are those before the death until
 * mu_survive_settle. Fails (MUSTER_ETIMEOUT) when a rank that lives does not call
 * within `patience` seconds.
 */
int mu_survive_agree(struct mu_survive *s, const int64_t ballot[MU_SURVIVE_BALLOT],
                     double patience, struct mu_err *err);
/* As agreed: equal on all survivors. */
enum mu_life mu_survive_life(const struct mu_survive *s, int rank);
const int64_t *mu_survive_ballot(const struct mu_survive *s, int rank);
/* Is this the rank that the others called? One of them is. */
bool mu_survive_leads(const struct mu_survive *s);
/* From now on the living are ranks 0, 1, ... in their old order. */
void mu_survive_settle(struct mu_survive *s);

/* publish, fence, fetch among the survivors, from the agreement to the next one. */
struct mu_exchange mu_survive_exchange(struct mu_survive *s);

#endif
