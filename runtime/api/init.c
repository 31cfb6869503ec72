/* SPDX-License-Identifier: BSD-3-Clause */
/* init.c - open and close a world: rendezvous, control connections, backend */
#include "runtime/api/impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/cpuset.h"
#include "runtime/base/parse.h"
#include "runtime/base/marker.h"
#include "runtime/base/record.h"
#include "runtime/core/text.h"
#include "runtime/recover/streams.h"

/* An empty variable counts as unset. */
static const char *variable(const char *name)
{
    const char *value = getenv(name);

    return value && value[0] ? value : NULL;
}

static struct mu_config_env config_variables(void)
{
    return (struct mu_config_env){
        .backend = variable("MUSTER_BACKEND"),
        .transport = variable("MUSTER_TRANSPORT"),
        .init_timeout = variable("MUSTER_INIT_TIMEOUT"),
        .timeout = variable("MUSTER_TIMEOUT"),
        .single = variable("MUSTER_SINGLE"),
        .log = variable("MUSTER_LOG"),
        .on_failure = variable("MUSTER_ON_FAILURE"),
        .elastic = variable("MUSTER_ELASTIC"),
        .first_bucket = variable("MUSTER_FIRST_BUCKET"),
        .bucket_cap = variable("MUSTER_BUCKET_CAP"),
        .map_memory = variable("MUSTER_MAP_MEMORY"),
        .grow = variable("MUSTER_GROW"),
        .join = variable("MUSTER_JOIN"),
    };
}

/* A server offers one address for each protocol version; this process takes the newest.
 */
static const char *pmix_server_uri(void)
{
    static const char *const names[] = { "PMIX_SERVER_URI41", "PMIX_SERVER_URI4",
                                         "PMIX_SERVER_URI3", "PMIX_SERVER_URI21",
                                         "PMIX_SERVER_URI2" };
    const char *uri = NULL;

    for (size_t i = 0; i < sizeof names / sizeof names[0] && !uri; i++)
        uri = variable(names[i]);
    return uri;
}

static struct mu_launch launch_variables(bool single)
{
    struct mu_launch launch = {
        .slurm_job_id = variable("SLURM_JOB_ID"),
        .slurm_step_id = variable("SLURM_STEP_ID"),
        .slurm_procid = variable("SLURM_PROCID"),
        .slurm_step_num_tasks = variable("SLURM_STEP_NUM_TASKS"),
        .slurm_ntasks = variable("SLURM_NTASKS"),
        .slurm_nnodes = variable("SLURM_JOB_NUM_NODES"),
        .slurmd_nodename = variable("SLURMD_NODENAME"),
        .rank = variable("RANK"),
        .world_size = variable("WORLD_SIZE"),
        .master_addr = variable("MASTER_ADDR"),
        .master_port = variable("MASTER_PORT"),
        .muster_port = variable("MUSTER_PORT"),
        .local_rank = variable("LOCAL_RANK"),
        .local_world_size = variable("LOCAL_WORLD_SIZE"),
        .node_rank = variable("NODE_RANK"),
        .group_rank = variable("GROUP_RANK"),
        .token_file = variable("MUSTER_TOKEN_FILE"),
        .token = variable("MUSTER_TOKEN"),
        .pmi_rank = variable("PMI_RANK"),
        .pmix_namespace = variable("PMIX_NAMESPACE"),
        .pmix_server_uri = pmix_server_uri(),
        .pmix_server_tmpdir = variable("PMIX_SERVER_TMPDIR"),
        .tmpdir = variable("TMPDIR"),
        .single = single,
    };

    for (int i = 0; i < MU_LAUNCH_OTHERS; i++)
        launch.other[i] = variable(mu_launch_other[i].name);
    return launch;
}

/* Compare the CPUs to which the plugin bound the task with those of this process: what
 * runs between may have changed them (numactl, taskset, a wrapper, a container).
 */
static void check_cpus(const struct muster *m, const struct mu_record *record)
{
    struct mu_cpuset now;
    char is[256], promised[256];

    if (mu_cpuset_of_process(0, &now) < 0 || mu_cpuset_equal(&now, &record->cpus))
        return;
    mu_cpuset_format(&now, is, sizeof is);
    mu_cpuset_format(&record->cpus, promised, sizeof promised);
    mu_log(&m->comm.log, MU_LOG_WARN,
           "rank %d (node %s) runs on cpus %s, but Muster bound it to %s: a program "
           "that started it (numactl, taskset, a wrapper) or a cgroup changed that",
           m->comm.world->rank, m->comm.world->host_of[m->comm.world->rank], is,
           promised);
}

/* Warns where srun took a GPU binding over, and the plugin is not on this node. */
static void check_served(const struct muster *m)
{
    const struct mu_marker marker = { variable("SLURM_MUSTER_REQUEST"),
                                      variable("SLURM_MUSTER_SERVED"),
                                      variable("MUSTER_SET"), variable("SLURM_JOB_ID"),
                                      variable("SLURM_STEP_ID") };
    const char *bind = mu_marker_unserved(&marker);

    if (bind && m->comm.world->local_rank == 0)
        mu_log(
            &m->comm.log, MU_LOG_WARN,
            "node %s lacks the Muster plugin, which would apply the --gpu-bind=%s that "
            "srun took over: each task sees all GPUs; run srun --muster=off",
            m->comm.world->host_of[m->comm.world->rank], bind);
}

/* Read what the plugin decided for this task. A line that is unusable brings only a
 * warning: the job runs without it.
 */
static int read_plan(struct muster *m, struct mu_err *err)
{
    const char *line = variable("MUSTER_PLAN");
    struct mu_record record = { 0 };

    check_served(m);
    if (line && mu_record_decode(line, &record, err) < 0) {
        mu_log(&m->comm.log, MU_LOG_WARN, "%s", err->text);
        record.gpus[0] = '\0';
    } else if (line && record.task != m->comm.world->local_rank) {
        mu_log(&m->comm.log, m->comm.world->own_ranks ? MU_LOG_DEBUG : MU_LOG_WARN,
               "MUSTER_PLAN is for task %d, but this is local rank %d: it is ignored",
               record.task, m->comm.world->local_rank);
        record.gpus[0] = '\0';
    } else if (line && !mu_cpuset_empty(&record.cpus)) {
        check_cpus(m, &record);
    }
    if (m->comm.config.own_device)
        record.gpus[0] = '\0';
    m->comm.gpus = strdup(record.gpus);
    memcpy(m->comm.fabric, record.fabric, sizeof m->comm.fabric);
    return m->comm.gpus ? 0 : mu_err_set(err, MUSTER_EMEMORY, "out of memory");
}

void mu_release(struct muster *m)
{
    for (int r = 0; m->host_of && r < m->comm.world->size; r++)
        free(m->host_of[r]);
    free(m->host_of);
    free(m->group.world_rank);
    if (!m->parent)
        mu_ledger_close(&m->comm.ledger);
    mu_recover_clear(&m->recover);
    mu_comm_clear(&m->comm);
    free(m);
}

/* A process that joins becomes one of several ranks. */
static int choose_backend(struct muster *m, struct mu_err *err)
{
    struct mu_comm *comm = &m->comm;
    struct mu_world *w = comm->world;

    if (mu_backend_choose(comm->config.backend, w->joins ? 2 : w->size,
                          variable("MUSTER_BACKEND_DIR"), &comm->ops, &comm->module,
                          err) < 0)
        return -1;
    snprintf(w->terms, sizeof w->terms,
             "libmuster %s, backend %s, on_failure %s, elastic %d", comm->version,
             comm->ops->name, comm->config.return_failure ? "return" : "end",
             comm->config.elastic);
    return 0;
}

static int join(struct muster *m, struct mu_err *err)
{
    if (choose_backend(m, err) < 0 ||
        mu_world_meet(m->comm.world, m->comm.config.init_timeout, err) < 0 ||
        read_plan(m, err) < 0)
        return -1;
    return mu_elastic_join(&m->recover, err);
}

static int start(struct muster *m, struct mu_err *err)
{
    if (m->comm.world->joins)
        return join(m, err);
    if (mu_world_meet(m->comm.world, m->comm.config.init_timeout, err) < 0 ||
        read_plan(m, err) < 0 || choose_backend(m, err) < 0 ||
        mu_open_control(&m->comm, m->comm.config.init_timeout, err) < 0 ||
        mu_agree_on_world(&m->comm, err) < 0 || mu_elastic_open(&m->recover, err) < 0)
        return -1;
    return mu_open_backend(&m->comm, err);
}

/* On GPUs NCCL's profiler plugin writes one too, of NCCL's calls. A program goes on
 * without one.
 */
static void open_ledger(struct muster *m)
{
    struct mu_err err = { 0 };

    if (!variable("MUSTER_PROFILE") ||
        !(m->comm.ops->host_memory || m->comm.ops->moment))
        return;
    if (mu_ledger_open_asked(&m->comm.ledger, true, &err) < 0)
        mu_log(&m->comm.log, MU_LOG_WARN, "profile: %s; nothing is recorded", err.text);
    else
        m->comm.ledger.head->interface = MU_LEDGER_LIBMUSTER;
}

int mu_init_world(struct muster **out, const struct mu_config *config,
                  struct mu_world *world)
{
    struct muster *m = calloc(1, sizeof *m);
    struct mu_err err = { 0 };
    int status;

    if (!m) {
        mu_world_close(world);
        return mu_fail(NULL, MUSTER_EMEMORY, "out of memory");
    }
    mu_comm_init(&m->comm, config, muster_version(), world);
    mu_recover_init(&m->recover, &m->comm);
    /* Until the ranks are connected, the rank that reports a death ends the others
     * without a notice.
     */
    mu_streams_flush(0);
    if (start(m, &err) < 0) {
        mu_recover_start(&m->recover, &err);
        status = mu_fail_err(NULL, &err);
        if (m->comm.control && m->comm.world->joins)
            mu_control_discard(m->comm.control); /* the others see a death */
        else if (m->comm.control)
            mu_control_close(m->comm.control, NULL);
        mu_release(m);
        return status;
    }
    mu_leave_watch(&m->recover);
    open_ledger(m);
    *out = m;
    return MUSTER_OK;
}

int muster_init(struct muster **out, const struct muster_options *options)
{
    struct mu_config_env env = config_variables();
    const struct muster_exchange *exchange = options ? options->exchange : NULL;
    struct mu_config config;
    struct mu_launch launch;
    struct mu_world *world;
    struct mu_err err = { 0 };

    if (!out)
        return mu_fail(NULL, MUSTER_EUSAGE, "muster_init needs a place for its result");
    *out = NULL;
    if (options &&
        MU_CHECK_RESERVED(NULL, "muster_init", muster_options, options) != MUSTER_OK)
        return MUSTER_EUSAGE;
    if (exchange &&
        MU_CHECK_RESERVED(NULL, "muster_init", muster_exchange, exchange) != MUSTER_OK)
        return MUSTER_EUSAGE;
    if (mu_config_make(options, &env, &config, &err) < 0)
        return mu_fail_err(NULL, &err);
    launch = launch_variables(config.single);
    if (config.joins) {
        if (mu_world_join(&launch, config.grow, &world, &err) < 0)
            return mu_fail_err(NULL, &err);
        return mu_init_world(out, &config, world);
    }
    if (mu_world_open(&launch, exchange, &world, &err) < 0) {
        mu_fail_reported_elsewhere(launch.slurm_step_num_tasks && launch.slurm_procid &&
                                   strcmp(launch.slurm_procid, "0") != 0);
        return mu_fail_err(NULL, &err);
    }
    return mu_init_world(out, &config, world);
}

int muster_finalize(struct muster *m)
{
    struct mu_err err = { 0 };
    int rc;

    if (!m)
        return MUSTER_OK;
    if (m->groups > 0)
        return mu_fail(m, MUSTER_EUSAGE,
                       "muster_finalize: %d group%s of muster_split must be finalized "
                       "first",
                       m->groups, mu_plural(m->groups));
    if (m->handles)
        return mu_fail(
            m, MUSTER_EUSAGE,
            "muster_finalize: %d handle%s of muster_start must be waited for "
            "first",
            mu_handles(m), mu_plural(mu_handles(m)));
    rc = mu_recover_finish(&m->recover, &err) < 0 ? err.code : MUSTER_OK;
    mu_grow_end(&m->recover);
    mu_worlds_remove(&m->recover);
    /* All ranks have arrived. Where ranks survive a death, it harms no other now. */
    if (mu_comm_close(&m->comm, &err) < 0 && rc == MUSTER_OK &&
        !mu_verdict_survived(&m->recover, err.code, -1)) {
        rc = err.code;
        mu_verdict_await_world(&m->recover, &err);
    }
    if (rc != MUSTER_OK)
        mu_fail(NULL, rc, "%s", err.text);
    if (m->parent)
        m->parent->groups--;
    mu_release(m);
    return rc;
}
