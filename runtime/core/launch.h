/* SPDX-License-Identifier: BSD-3-Clause */
/* launch.h - does the world that PMIx reports match the launch of this process? */
#ifndef MU_LAUNCH_H
#define MU_LAUNCH_H

#include <stdbool.h>

#include "runtime/base/err.h"

/* Variables of other launchers (MPICH's Hydra, Intel MPI, Open MPI, MVAPICH, Flux,
 * PALS, jsrun, Horovod, torchrun, PMIx without its server): from `several` on the value
 * means more than one process. A size counts from 2, a rank from 1.
 */
#define MU_LAUNCH_OTHERS 21
extern const struct mu_launch_other {
    const char *name;
    int several;
} mu_launch_other[MU_LAUNCH_OTHERS];

/* Values of environment variables, NULL where unset; borrowed. */
struct mu_launch {
    const char *slurm_job_id, *slurm_step_id, *slurm_procid;
    const char *slurm_step_num_tasks; /* tasks of this step, set by srun */
    const char *slurm_ntasks;         /* tasks of the job or step */
    const char *slurm_nnodes;         /* SLURM_JOB_NUM_NODES */
    const char *slurmd_nodename;      /* what Slurm calls this node, set in tasks */
    const char *rank, *world_size;    /* RANK, WORLD_SIZE */
    const char *master_addr, *master_port, *muster_port;
    const char *local_rank, *local_world_size, *node_rank, *group_rank;
    const char *token_file, *token; /* MUSTER_TOKEN_FILE, MUSTER_TOKEN */
    const char *pmi_rank;           /* PMI_RANK: a PMI-1 or PMI-2 launcher */
    /* Set by a PMIx launcher: PMIX_NAMESPACE, the newest PMIX_SERVER_URI*, and the
     * directories in which the client looks for the server.
     */
    const char *pmix_namespace, *pmix_server_uri, *pmix_server_tmpdir, *tmpdir;
    const char *other[MU_LAUNCH_OTHERS]; /* of mu_launch_other */
    bool single;                         /* the user wants a world of one */
};

/* pmix_size is 0 where no PMIx server was found. Refused (MUSTER_ERENDEZVOUS): a world
 * of one where the launcher started several tasks, and a RANK or WORLD_SIZE that
 * differs from PMIx. The sentence names the command to use.
 */
int mu_launch_check(const struct mu_launch *launch, int pmix_rank, int pmix_size,
                    struct mu_err *err);

#endif
