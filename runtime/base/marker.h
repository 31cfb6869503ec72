/* SPDX-License-Identifier: BSD-3-Clause */
/* marker.h - was a GPU binding that srun took over carried out on this node? */
#ifndef MU_MARKER_H
#define MU_MARKER_H

/* Variables of a task, NULL where absent; see muster-env(7). */
struct mu_marker {
    const char *request; /* SLURM_MUSTER_REQUEST: what srun took over */
    const char *served;  /* SLURM_MUSTER_SERVED: JOB.STEP, by the plugin on the node */
    const char *set;     /* MUSTER_SET: older plugins on the node wrote this alone */
    const char *job, *step; /* SLURM_JOB_ID, SLURM_STEP_ID */
};

/* The binding that srun took over, where the node has no plugin to carry it out:
 * borrowed from the request. NULL: there is none, or this is no step.
 */
const char *mu_marker_unserved(const struct mu_marker *marker);

#endif
