/* SPDX-License-Identifier: BSD-3-Clause */
/* init.c - open and close a world: PMIx, backend */
#include "runtime/api/impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/parse.h"
#include "runtime/base/record.h"

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
        .first_bucket = variable("MUSTER_FIRST_BUCKET"),
        .bucket_cap = variable("MUSTER_BUCKET_CAP"),
    };
}

static struct mu_launch launch_variables(bool single)
{
    return (struct mu_launch){
        .slurm_job_id = variable("SLURM_JOB_ID"),
        .slurm_step_id = variable("SLURM_STEP_ID"),
        .slurm_procid = variable("SLURM_PROCID"),
        .slurm_step_num_tasks = variable("SLURM_STEP_NUM_TASKS"),
        .slurm_ntasks = variable("SLURM_NTASKS"),
        .slurm_nnodes = variable("SLURM_JOB_NUM_NODES"),
        .rank = variable("RANK"),
        .world_size = variable("WORLD_SIZE"),
        .pmi_rank = variable("PMI_RANK"),
        .single = single,
    };
}

/* The plugin's promise for this task. A line we cannot read is worth a warning only:
 * the job runs as well without.
 */
static int read_plan(struct muster *m, struct mu_err *err)
{
    const char *line = variable("MUSTER_PLAN");
    struct mu_record record = { 0 };

    if (line && mu_record_decode(line, &record, err) < 0) {
        mu_log(&m->log, MU_LOG_WARN, "%s", err->text);
        record.gpus[0] = '\0';
    }
    m->gpus = strdup(record.gpus);
    if (variable("MASTER_ADDR"))
        m->address = strdup(variable("MASTER_ADDR"));
    return m->gpus ? 0 : mu_err_set(err, MUSTER_EMEMORY, "out of memory");
}

static int open_backend(struct muster *m, struct mu_err *err)
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
        .timeout = m->config.timeout,
        .exchange = w->exchange,
        .log = &m->log,
    };

    memcpy(env.token, w->token, sizeof env.token);
    if (mu_backend_choose(m->config.backend, variable("MUSTER_BACKEND_DIR"), &m->log,
                          &m->ops, &m->module, err) < 0)
        return -1;
    return m->ops->open(&env, &m->backend, err);
}

static void release(struct muster *m)
{
    free(m->gpus);
    free(m->address);
    free(m);
}

int mu_init_world(struct muster **out, const struct mu_config *config,
                  struct mu_world *world)
{
    struct muster *m = calloc(1, sizeof *m);
    struct mu_err err = { 0 };

    if (!m) {
        mu_world_close(world);
        return mu_fail(NULL, MUSTER_EMEMORY, "out of memory");
    }
    m->config = *config;
    m->log.level = config->log;
    m->world = world;
    if (mu_world_meet(world, config->init_timeout, &err) < 0 ||
        read_plan(m, &err) < 0 || open_backend(m, &err) < 0) {
        int status = mu_fail_err(NULL, &err);

        mu_world_close(world);
        release(m);
        return status;
    }
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
    if (mu_world_open(&launch, &world, &err) < 0)
        return mu_fail_err(NULL, &err);
    return mu_init_world(out, &config, world);
}

int muster_finalize(struct muster *m)
{
    if (!m)
        return MUSTER_OK;
    m->ops->close(m->backend);
    mu_world_close(m->world);
    release(m);
    return MUSTER_OK;
}

void muster_abort(struct muster *m, int status, const char *why)
{
    if (status < 1 || status > 255)
        status = MUSTER_EINTERNAL;
    fprintf(stderr, "muster: rank %d: %s\n", m ? m->world->rank : 0,
            why ? why : "aborted");
    if (m)
        mu_world_abort(m->world, status, why ? why : "aborted");
    _Exit(status);
}
