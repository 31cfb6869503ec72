/* SPDX-License-Identifier: BSD-3-Clause */
/* init.c - open and close a world: PMIx, backend */
#include "runtime/api/impl.h"
#include "runtime/recover/streams.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/cpuset.h"
#include "runtime/base/parse.h"
#include "runtime/base/record.h"
#include "runtime/boot/survive.h"

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
    };
}

/* A server offers its address once for each protocol that it speaks, and this process
 * takes the newest that it can.
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

/* Where the plugin put us against where we are: something between srun and the program
 * may have moved it (numactl, taskset, a wrapper).
 */
static void check_cpus(const struct muster *m, const struct mu_record *record)
{
    struct mu_cpuset now;
    char is[256], promised[256];

    if (mu_cpuset_of_process(0, &now) < 0 || mu_cpuset_equal(&now, &record->cpus))
        return;
    mu_cpuset_format(&now, is, sizeof is);
    mu_cpuset_format(&record->cpus, promised, sizeof promised);
    mu_log(&m->log, MU_LOG_WARN,
           "rank %d runs on cpus %s, but was placed on %s: something between srun "
           "and the program moved it",
           m->world->rank, is, promised);
}

/* The plugin's promise for this task. A line we cannot use is worth a warning only: the
 * job runs as well without.
 */
static int read_plan(struct muster *m, struct mu_err *err)
{
    const char *line = variable("MUSTER_PLAN"), *address = variable("MASTER_ADDR");
    struct mu_record record = { 0 };

    if (line && mu_record_decode(line, &record, err) < 0) {
        mu_log(&m->log, MU_LOG_WARN, "%s", err->text);
        record.gpus[0] = '\0';
    } else if (line && record.task != m->world->local_rank) {
        mu_log(&m->log, MU_LOG_WARN,
               "MUSTER_PLAN is that of task %d, but this is local rank %d: not used",
               record.task, m->world->local_rank);
        record.gpus[0] = '\0';
    } else if (line && !mu_cpuset_empty(&record.cpus)) {
        check_cpus(m, &record);
    }
    m->gpus = strdup(record.gpus);
    memcpy(m->fabric, record.fabric, sizeof m->fabric);
    m->address = address ? strdup(address) : NULL;
    return m->gpus ? 0 : mu_err_set(err, MUSTER_EMEMORY, "out of memory");
}

int mu_open_control(struct muster *m, double init_timeout, struct mu_err *err)
{
    struct mu_control *control = NULL;
    struct mu_control_env env = {
        .world = m->world,
        .master_addr = m->address,
        .init_timeout = init_timeout,
        .timeout = m->config.timeout,
        .everybody_speaks = m->config.return_failure,
        .log = &m->log,
        .hooks = mu_failure_hooks(m),
    };

    if (m->world->size == 1)
        return 0;
    env.everybody_speaks |= atomic_load(&m->armed);
    if (mu_control_open(&env, &control, err) < 0)
        return -1;
    pthread_mutex_lock(&m->swap_lock);
    m->control = control;
    pthread_mutex_unlock(&m->swap_lock);
    return 0;
}

static void forget_gpus(struct muster *m)
{
    for (int r = 0; m->gpu_of && m->gpu_of[r]; r++)
        free(m->gpu_of[r]);
    free(m->gpu_of);
    m->gpu_of = NULL;
}

/* What every rank of the world must have alike. */
static int describe_world(const struct muster *m, struct mu_contract *c,
                          struct mu_err *err)
{
    const struct mu_world *w = m->world;

    if (mu_contract_add(c, err, "libmuster %s", m->version) < 0 ||
        mu_contract_add(c, err, "backend %s", m->ops->name) < 0 ||
        mu_contract_add(c, err, "on_failure %s",
                        m->config.return_failure ? "return" : "end") < 0 ||
        mu_contract_add(c, err, "elastic %d", m->config.elastic) < 0 ||
        mu_contract_add(c, err, "world of %d rank%s on %d node%s", w->size,
                        mu_plural(w->size), w->nnodes, mu_plural(w->nnodes)) < 0)
        return -1;
    for (int r = 0; r < w->size; r++)
        if (mu_contract_add(c, err, "rank %d on node %d", r, w->node_of[r]) < 0)
            return -1;
    return 0;
}

/* What holds for the whole world, and each rank's GPU for messages. */
int mu_agree_on_world(struct muster *m, struct mu_err *err)
{
    struct mu_contract c = { 0 };
    struct mu_gathered all;
    int rc = -1;

    if (describe_world(m, &c, err) < 0 || mu_agree(m, "muster_init", &c, err) < 0 ||
        (!m->ops->host_memory &&
         mu_agree_on_network(m, m->fabric, err) < 0) ||
        mu_gather(m, "muster_init", m->gpus, strlen(m->gpus) + 1, &all, err) < 0)
        goto out;
    forget_gpus(m);
    m->gpu_of = calloc((size_t)m->world->size + 1, sizeof *m->gpu_of);
    for (int r = 0; m->gpu_of && r < m->world->size; r++)
        m->gpu_of[r] = strndup(all.at[r], all.len[r]);
    mu_gathered_clear(&all);
    rc = 0;
out:
    mu_contract_clear(&c);
    return rc;
}

int mu_open_backend(struct muster *m, struct mu_backend *parent,
                    struct mu_backend **out, struct mu_err *err)
{
    struct mu_world *w = m->world;
    struct mu_backend_env env = {
        .rank = w->rank,
        .size = w->size,
        .local_rank = w->local_rank,
        .local_size = w->local_size,
        .node = w->node,
        .nnodes = w->nnodes,
        .node_of = w->node_of,
        .host_of = (const char *const *)w->host_of,
        .job = w->job,
        .gpus = m->gpus,
        .master_addr = m->address,
        .force_tcp = m->config.force_tcp,
        .init_timeout = m->config.init_timeout,
        .timeout = MU_FOREVER,
        .exchange = w->exchange,
        .log = &m->log,
        .failed = mu_failure_of_backend,
        .failed_arg = m,
        .parent = parent,
        .elastic = m->survive != NULL,
        .lost = &m->ended,
    };

    memcpy(env.token, w->token, sizeof env.token);
    /* A wait on the host is timed here, where it can be extended and explained; what
     * waits on a GPU only the backend can see.
     */
    if (!m->ops->host_memory)
        env.timeout = m->config.timeout;
    return m->ops->open(&env, out, err);
}

static void release(struct muster *m)
{
    forget_gpus(m);
    mu_survive_close(m->survive);
    mu_world_close(m->world);
    if (m->module)
        dlclose(m->module);
    pthread_mutex_destroy(&m->flight_lock);
    pthread_mutex_destroy(&m->swap_lock);
    free(m->gpus);
    free(m->address);
    free(m);
}

/* Start-up failed with *err here, maybe not on other ranks: they must not wait for us.
 */
static void give_up(struct muster *m, struct mu_err *err)
{
    if (m->world->size == 1)
        return;
    if (m->control) {
        mu_control_fail(m->control, err->code, m->world->rank, err->text);
        mu_failure_settle(m, err);
        return;
    }
    if (m->config.return_failure)
        return;
    /* Before there are connections all may fail alike: the first one speaks. A death is
     * known to its neighbours alone, and Slurm ends the step within a second.
     */
    if (err->code != MUSTER_EPEER)
        usleep((m->world->rank < 8 ? (unsigned)m->world->rank : 8) * 200000);
    mu_streams_print("%s", err->text);
    mu_failure_end_step(m, err->code, err->text);
}

static int start(struct muster *m, struct mu_err *err)
{
    if (mu_world_meet(m->world, m->config.init_timeout, err) < 0 ||
        read_plan(m, err) < 0 ||
        mu_backend_choose(m->config.backend, m->world->size,
                          variable("MUSTER_BACKEND_DIR"), &m->ops, &m->module,
                          err) < 0 ||
        mu_open_control(m, m->config.init_timeout, err) < 0 ||
        mu_agree_on_world(m, err) < 0 || mu_elastic_open(m, err) < 0)
        return -1;
    return mu_open_backend(m, NULL, &m->backend, err);
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
    m->config = *config;
    m->version = muster_version();
    m->log.level = config->log;
    m->world = world;
    pthread_mutex_init(&m->flight_lock, NULL);
    pthread_mutex_init(&m->swap_lock, NULL);
    if (start(m, &err) < 0) {
        give_up(m, &err);
        status = mu_fail_err(NULL, &err);
        if (m->control)
            mu_control_close(m->control, NULL);
        release(m);
        return status;
    }
    mu_leave_watch(m);
    *out = m;
    return MUSTER_OK;
}

int muster_init(struct muster **out, const struct muster_options *options)
{
    struct mu_config_env env = config_variables();
    struct mu_config config;
    struct mu_launch launch;
    struct mu_world *world;
    struct mu_err err = { 0 };

    if (!out)
        return mu_fail(NULL, MUSTER_EUSAGE, "muster_init needs a place for its result");
    *out = NULL;
    if (mu_config_make(options, &env, &config, &err) < 0)
        return mu_fail_err(NULL, &err);
    launch = launch_variables(config.single);
    if (mu_world_open(&launch, &world, &err) < 0) {
        mu_fail_told(launch.slurm_step_num_tasks && launch.slurm_procid &&
                     strcmp(launch.slurm_procid, "0") != 0);
        return mu_fail_err(NULL, &err);
    }
    return mu_init_world(out, &config, world);
}

/* Everybody is here. Who dies on the way does not keep the others from a good end. */
static int meet_to_end(struct muster *m, struct mu_err *err)
{
    struct mu_gathered all;

    m->shrunk = false;
    m->finishing = true;
    while (mu_gather(m, "muster_finalize", NULL, 0, &all, err) < 0) {
        if (mu_shrink_wanted(m))
            mu_shrink(m, err);
        if (err->code != MUSTER_ESHRUNK)
            return err->code;
    }
    mu_gathered_clear(&all);
    return MUSTER_OK;
}

/* A failure that comes meanwhile must not be told to a backend that is gone. */
static void close_backend(struct muster *m)
{
    struct mu_backend *backend = m->backend;

    pthread_mutex_lock(&m->swap_lock);
    m->backend = NULL;
    pthread_mutex_unlock(&m->swap_lock);
    m->ops->close(backend);
}

int muster_finalize(struct muster *m)
{
    struct mu_err err = { 0 };
    int rc;

    if (!m)
        return MUSTER_OK;
    rc = meet_to_end(m, &err);
    /* After a failure the control thread may be about to abort the backend. */
    for (int i = 0; rc != MUSTER_OK && i < 500 && !atomic_load(&m->ended); i++)
        usleep(10000);
    atomic_store(&m->closing, true);
    mu_leave_forget(m);
    close_backend(m);
    if (m->control && mu_control_close(m->control, &err) < 0 && rc == MUSTER_OK)
        rc = err.code;
    if (rc != MUSTER_OK)
        mu_fail(NULL, rc, "%s", err.text);
    release(m);
    return rc;
}
