/* SPDX-License-Identifier: BSD-3-Clause */
/* tuner_trial.h - the tuner plugin while ways are measured: `muster bench tune` finds
 * muster_tuner_trial in the plugin by dlsym, and sets the way of its next collectives
 *
 * What is measured is thus what a table makes NCCL do, in one communicator.
 */
#ifndef MU_TUNER_TRIAL_H
#define MU_TUNER_TRIAL_H

#include <stdbool.h>

#include "runtime/core/tune_table.h"

#define MU_TUNER_TRIAL "muster_tuner_trial"

struct mu_tuner_trial {
    /* Set by the tool, before the first communicator and between collectives: */
    bool on;                 /* no table is read */
    bool own;                /* NCCL's own choice, not the way */
    struct mu_tune_span way; /* as a table's only one */
    /* Set by the plugin: */
    int ranks, nodes; /* of the latest communicator */
    long taken;       /* collectives for which NCCL can use the way */
};

#endif
