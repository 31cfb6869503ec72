/* SPDX-License-Identifier: BSD-3-Clause */
/* survive.h - after a death: the rendezvous of the survivors
 *
 *   each survivor connects to the lowest rank not known dead and sends its ballot
 *   (steps committed, voted, finalizing)
 *        |
 *   that rank, the leader, waits until every rank has connected or is known dead
 *        |
 *   the leader sends the verdict: the ranks that live, and all ballots. The connections
 *   stay open as a star, over which the survivors set up their new connections
 *
 * The kernel shows which ranks live. Each rank listens from the start: a connection to
 * a dead process is refused, and one that waits there ends with the process. So no
 * thread has to answer, and a rank that computes counts as alive. A leader that dies is
 * found in the same way, and the next rank leads. The verdict is final when all
 * survivors are connected again; a rank that fails before that connects again.
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
    MU_SILENT, /* its host or the link to it is dead: it may live */
};

/* Bytes of an address record, and numbers in a ballot. */
#define MU_SURVIVE_RECORD 640
#define MU_SURVIVE_BALLOT 3

/* Listen, and write our address record into `record`. world must be met; token and
 * rank are copied. The functions below start from the ranks that world has now.
 */
int mu_survive_open(const struct mu_world *world, const char *master_addr,
                    const struct mu_log *log, char record[MU_SURVIVE_RECORD],
                    struct mu_survive **out, struct mu_err *err);
/* Set the address record of a rank; for all ranks before the calls below. */
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
/* Does this rank lead? One survivor does. */
bool mu_survive_leads(const struct mu_survive *s);
/* From now on the living are ranks 0, 1, ... in their old order. */
void mu_survive_settle(struct mu_survive *s);

/* publish, fence, fetch among the survivors, from the agreement to the next one. */
struct mu_exchange mu_survive_exchange(struct mu_survive *s);

#endif
