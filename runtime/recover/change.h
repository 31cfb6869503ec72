/* SPDX-License-Identifier: BSD-3-Clause */
/* change.h - one change of an elastic world: inside of elastic.c and change.c */
#ifndef MU_CHANGE_H
#define MU_CHANGE_H

#include "runtime/recover/recover.h"

/* What a rank brings into the agreement. */
enum mu_ballot_entry {
    MU_BALLOT_COMMITS,
    MU_BALLOT_VOTING,
    MU_BALLOT_FINISHING,
    MU_BALLOT_DDPS /* numbers that this rank has given to ddp objects */
};

/* State of one change of the world; ranks are numbered as at its start, and newcomers
 * behind them.
 */
struct mu_change {
    double began;
    int size_before;
    int *was; /* by present rank: the rank at the start */
    char dead[512];
    size_t dead_len;
    int ndead, nsilent, njoined;
    bool all_finish; /* the survivors are in muster_finalize, others may have left it */
    int old;         /* ranks of its start that live */
    int64_t commits; /* syncs that all survivors have done, as agreed */
};

/* How a rank that the survivors miss has ended. */
enum mu_death mu_change_death(const struct mu_recover *recover, int rank);
/* How many numbers of ddp objects are taken, as the last agreement has it. A death may
 * end muster_ddp_create on some ranks when others have the object.
 */
int mu_change_ddps(const struct mu_recover *recover);
/* [collective among the survivors] Agree, judge, and number the living anew. Returns
 * how many they are, or -1. *alone: this rank is in a minority that is cut off.
 */
int mu_change_agree(struct mu_recover *recover, struct mu_change *s, double patience,
                    bool *alone, struct mu_err *err);

#endif
