/* SPDX-License-Identifier: BSD-3-Clause */
/* inherited.c - drops what the Muster of an outer step exported. A step, and a job that
 * is submitted from inside a step, inherit it, and would take it for their own.
 */
#include <stdlib.h>
#include <string.h>

#include "spank/core/env/task_env.h"
#include "spank/plugin/plugin.h"

static const char *get_own(void *arg, const char *name)
{
    return getenv(name);
}

static void unset_own(void *arg, const char *name)
{
    unsetenv(name);
}

struct step_env {
    spank_t sp;
    char value[MU_ENV_TEXT]; /* Muster sets no value that does not fit */
};

static const char *get_steps(void *arg, const char *name)
{
    struct step_env *step = arg;

    return mu_item_env(step->sp, name, step->value, sizeof step->value);
}

static void unset_steps(void *arg, const char *name)
{
    struct step_env *step = arg;

    spank_unsetenv(step->sp, name);
}

/* The neutral request of a take-over, and what srun sends to its step. */
static void drop_request(const struct mu_env_access *env)
{
    const char *text = env->get(env->arg, MU_TAKEOVER_VARIABLE);
    struct mu_bind_request request;
    const char *bind;

    if (text && mu_takeover_decode(text, &request, NULL) == 0 && request.gpu_bind[0] &&
        !request.slurm_binds) {
        bind = env->get(env->arg, "SLURM_GPU_BIND");
        if (bind && strcmp(bind, "none") == 0)
            env->unset(env->arg, "SLURM_GPU_BIND");
        bind = env->get(env->arg, "SLURM_TRES_BIND");
        if (bind && strcmp(bind, "gres/gpu:none") == 0)
            env->unset(env->arg, "SLURM_TRES_BIND");
    }
    env->unset(env->arg, MU_TAKEOVER_VARIABLE);
    env->unset(env->arg, MU_SERVED_VARIABLE);
    env->unset(env->arg, MU_RANK0_HOST_VARIABLE);
    env->unset(env->arg, MU_PORTS_VARIABLE);
    env->unset(env->arg, MU_SEED_VARIABLE);
    env->unset(env->arg, MU_TOKEN_VARIABLE);
}

static void drop_outer_step(const struct mu_env_access *env, bool slurms)
{
    char *set;

    if (!env->get(env->arg, "MUSTER_SET"))
        return;
    set = strdup(env->get(env->arg, "MUSTER_SET"));
    if (set)
        mu_env_drop_inherited(env, set, slurms);
    free(set);
}

void mu_inherited_drop_own(void)
{
    const struct mu_env_access env = { .get = get_own, .unset = unset_own };

    /* Muster restores it in tasks where Slurm leaves it out. */
    if (getenv("MUSTER_SET"))
        unsetenv("SLURM_STEP_GPUS");
    drop_outer_step(&env, false);
    drop_request(&env);
}

void mu_inherited_drop_job(spank_t sp)
{
    struct step_env step = { .sp = sp };
    const struct mu_env_access env = { get_steps, unset_steps, &step };

    drop_outer_step(&env, true);
    drop_request(&env);
}

void mu_inherited_drop_step(spank_t sp)
{
    struct step_env step = { .sp = sp };
    const struct mu_env_access env = { get_steps, unset_steps, &step };

    drop_outer_step(&env, true);
}
