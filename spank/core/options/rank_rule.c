/* SPDX-License-Identifier: BSD-3-Clause */
#include "spank/core/options/rank_rule.h"

enum mu_role mu_role_decide(const struct mu_role_facts *facts, const char **why)
{
    if (facts->rdzv == MU_RDZV_NONE) {
        *why = "rdzv=none: the tasks get no rank and rendezvous variables";
        return MU_ROLE_NONE;
    }
    if (facts->rdzv == MU_RDZV_RANKS) {
        *why = "rdzv=ranks: each task is a rank";
        return MU_ROLE_RANK;
    }
    if (facts->pty) {
        *why = "the step has a terminal (--pty), so that its tasks are not ranks: they "
               "get no rank and rendezvous variables; --muster=rdzv=ranks sets them";
        return MU_ROLE_NONE;
    }
    if (facts->launcher != MU_LAUNCHER_NONE) {
        *why =
            "the command is a launcher, which numbers its ranks itself: RANK and the "
            "like are not set; --muster=rdzv=ranks sets them";
        return MU_ROLE_LAUNCHER;
    }
    if (facts->ntasks == facts->nnodes && facts->gpus > 1) {
        *why =
            "each node has one task with several GPUs, which is taken for a launcher "
            "and not for a rank: RANK and the like are not set; --muster=rdzv=ranks "
            "sets them";
        return MU_ROLE_LAUNCHER;
    }
    *why = "each task is a rank of one training; for independent runs "
           "--muster=rdzv=none leaves RANK and the like out";
    return MU_ROLE_RANK;
}
