/* SPDX-License-Identifier: BSD-3-Clause */
/* rank_rule.h - are the tasks of a step ranks? The rule of rdzv=auto, as muster-env(7)
 * states it. It needs no look at the program: a launcher may be inside a script.
 */
#ifndef MU_RANK_RULE_H
#define MU_RANK_RULE_H

#include <stdbool.h>

#include "spank/core/options/muster_option.h"
#include "spank/core/slurm/command_line.h"

enum mu_role {
    MU_ROLE_NONE,     /* gets no rendezvous variable */
    MU_ROLE_LAUNCHER, /* starts ranks itself: gets the rendezvous, but no rank */
    MU_ROLE_RANK,
};

struct mu_role_facts {
    enum mu_rdzv rdzv;         /* not UNSET */
    enum mu_launcher launcher; /* what the command line shows */
    bool pty;                  /* srun --pty */
    int ntasks, nnodes;        /* of all components of the step */
    int gpus;                  /* of the node's one task, where it has one */
};

/* *why: a static sentence for the user, with the option that changes the decision. */
enum mu_role mu_role_decide(const struct mu_role_facts *facts, const char **why);

#endif
