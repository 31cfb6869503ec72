/* SPDX-License-Identifier: BSD-3-Clause */
/* launch.c - does the world that PMIx reports match the launch of this process? */
#include "runtime/core/launch.h"

#include <limits.h>

#include "runtime/base/parse.h"
#include "runtime/muster.h"

const struct mu_launch_other mu_launch_other[MU_LAUNCH_OTHERS] = {
    { "PMI_SIZE", 2 },
    { "PMI_RANK", 1 },
    { "MPI_LOCALNRANKS", 2 },
    { "OMPI_COMM_WORLD_SIZE", 2 },
    { "OMPI_COMM_WORLD_RANK", 1 },
    { "MV2_COMM_WORLD_SIZE", 2 },
    { "MV2_COMM_WORLD_RANK", 1 },
    { "FLUX_JOB_SIZE", 2 },
    { "FLUX_TASK_RANK", 1 },
    { "PALS_RANKID", 1 },
    { "JSM_NAMESPACE_SIZE", 2 },
    { "JSM_NAMESPACE_RANK", 1 },
    { "HOROVOD_SIZE", 2 },
    { "LOCAL_WORLD_SIZE", 2 },
    { "PMIX_RANK", 1 },
    { "PMI_LOCAL_SIZE", 2 },
    { "MPI_LOCALRANKID", 1 },
    { "OMPI_COMM_WORLD_LOCAL_SIZE", 2 },
    { "MV2_COMM_WORLD_LOCAL_SIZE", 2 },
    { "PALS_LOCAL_SIZE", 2 },
    { "ALPS_APP_PE", 1 },
};

/* The number in text; `otherwise` when text is NULL or not a number. */
static long number(const char *text, long otherwise)
{
    long n;

    return text && mu_parse_int("", text, 0, INT_MAX, &n, NULL) == 0 ? n : otherwise;
}

static const char *or_unset(const char *value)
{
    return value ? value : "(unset)";
}

static int refuse_singleton(const struct mu_launch *l, int pmix_size,
                            struct mu_err *err)
{
    const char *have =
        pmix_size == 1 ? "PMIx reports a world of 1" : "no PMIx server answers";
    long tasks = number(l->slurm_step_num_tasks, 0);
    long ntasks = number(l->slurm_ntasks, 1), nnodes = number(l->slurm_nnodes, 1);

    if (tasks > 1)
        return mu_err_set(
            err, MUSTER_ERENDEZVOUS,
            "Slurm started %ld tasks but %s%s: start it with `srun "
            "--mpi=pmix` (MUSTER_SINGLE=1 if %ld separate runs are meant)",
            tasks, have, l->pmi_rank ? " (PMI_RANK is set: --mpi=pmi2?)" : "", tasks);
    if (!l->slurm_step_num_tasks && l->slurm_job_id && (ntasks > 1 || nnodes > 1))
        return mu_err_set(
            err, MUSTER_ERENDEZVOUS,
            "this is Slurm job %s with %ld task%s on %ld node%s but not a task of "
            "it: start it with `srun --mpi=pmix` (MUSTER_SINGLE=1 if one "
            "process is meant)",
            l->slurm_job_id, ntasks, mu_plural(ntasks), nnodes, mu_plural(nnodes));
    if (number(l->world_size, 1) > 1 || number(l->rank, 0) > 0)
        return mu_err_set(
            err, MUSTER_ERENDEZVOUS,
            "WORLD_SIZE=%s RANK=%s MASTER_ADDR=%s MASTER_PORT=%s but %s: set all four "
            "variables, or start it with `srun --mpi=pmix` or another PMIx launcher",
            or_unset(l->world_size), or_unset(l->rank), or_unset(l->master_addr),
            or_unset(l->master_port), have);
    for (int i = 0; i < MU_LAUNCH_OTHERS; i++)
        if (number(l->other[i], 0) >= mu_launch_other[i].several)
            return mu_err_set(
                err, MUSTER_ERENDEZVOUS,
                "%s=%s but %s: start it with `srun --mpi=pmix` or another PMIx "
                "launcher, or set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT "
                "(MUSTER_SINGLE=1 if separate runs are meant)",
                mu_launch_other[i].name, l->other[i], have);
    return 0;
}

int mu_launch_check(const struct mu_launch *launch, int pmix_rank, int pmix_size,
                    struct mu_err *err)
{
    if (launch->single)
        return 0;
    if (pmix_size <= 1 && refuse_singleton(launch, pmix_size, err) < 0)
        return -1;
    if (pmix_size > 0 && (number(launch->rank, pmix_rank) != pmix_rank ||
                          number(launch->world_size, pmix_size) != pmix_size))
        return mu_err_set(
            err, MUSTER_ERENDEZVOUS,
            "RANK=%s WORLD_SIZE=%s but PMIx reports rank %d of %d: unset them, or "
            "start one task per rank without a second launcher (torchrun)",
            or_unset(launch->rank), or_unset(launch->world_size), pmix_rank, pmix_size);
    return 0;
}
