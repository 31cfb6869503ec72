/* SPDX-License-Identifier: BSD-3-Clause */
/* taskenv.c - the environment of one task; muster-env(7) is its contract */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/parse.h"
#include "spank/core/env/task_env.h"
#include "spank/core/nccl/nccl_variables.h"
#include "spank/core/plan/plan_text.h"
#include "spank/plugin/plugin.h"

static int node_number(const struct mu_state *st, spank_t sp)
{
    return mu_item_number(sp, "SLURM_NODEID", st->step.nodeid);
}

/* The numbers are those of the whole step: SPANK's items count one component. */
static int add_ranks(const struct mu_state *st, spank_t sp, int task,
                     struct mu_env *env, struct mu_err *err)
{
    uint32_t global = 0;
    int rank, node;

    spank_get_item(sp, S_TASK_GLOBAL_ID, &global);
    rank = mu_item_number(sp, "SLURM_PROCID", (int)global);
    node = node_number(st, sp);
    if (mu_env_add(env, "RANK", MU_ENV_RANK, err, "%d", rank) < 0 ||
        mu_env_add(env, "WORLD_SIZE", MU_ENV_RANK, err, "%d", st->step.world) < 0 ||
        mu_env_add(env, "LOCAL_RANK", MU_ENV_RANK, err, "%d", task) < 0 ||
        mu_env_add(env, "LOCAL_WORLD_SIZE", MU_ENV_RANK, err, "%d", st->step.nlocal) <
            0 ||
        mu_env_add(env, "NODE_RANK", MU_ENV_RANK, err, "%d", node) < 0)
        return -1;
    return mu_env_add(env, "GROUP_RANK", MU_ENV_RANK, err, "%d", node);
}

static int add_master(const struct mu_state *st, spank_t sp, struct mu_env *env,
                      struct mu_err *err)
{
    int port = mu_master_port(st);
    char token[MU_TOKEN_DIGITS + 1];

    if (st->have_network && st->network.master_addr[0] &&
        mu_env_add(env, "MASTER_ADDR", MU_ENV_KEEP, err, "%s",
                   st->network.master_addr) < 0)
        return -1;
    if (port > 0 && mu_env_add(env, "MASTER_PORT", MU_ENV_KEEP, err, "%d", port) < 0)
        return -1;
    if (mu_token_of_srun(sp, token))
        return mu_env_add(env, "MUSTER_TOKEN", MU_ENV_KEEP, err, "%s", token);
    return 0;
}

/* The variable that chooses devices, by the vendor of the step's GPUs. */
static const char *visible_name(const struct mu_state *st)
{
    switch (st->node.gpus[st->alloc.gpu_node[0]].vendor) {
    case MU_VENDOR_AMD:
        return "ROCR_VISIBLE_DEVICES";
    case MU_VENDOR_INTEL:
        return "ZE_AFFINITY_MASK";
    default:
        return "CUDA_VISIBLE_DEVICES";
    }
}

/* Slices without a name keep Slurm's list. */
static int add_visible(const struct mu_state *st, const struct mu_slot *slot, bool own,
                       struct mu_env *env, struct mu_err *err)
{
    char text[MU_ENV_TEXT];
    int rc;

    if (mu_gpus_unnamed(st))
        return 0;
    if (own && slot->ngpus > 0)
        rc = mu_gpus_visible(st, slot->gpu_node, slot->ngpus, text, sizeof text, err);
    else
        rc = mu_gpus_visible(st, st->alloc.gpu_node, st->alloc.ngpus, text, sizeof text,
                             err);
    if (rc < 0)
        return -1;
    return mu_env_add(env, visible_name(st), MU_ENV_OURS, err, "%s", text);
}

/* The order in which the runtime counts, so that the list of visible devices holds. */
static int add_device_order(const struct mu_state *st, bool tiled, struct mu_env *env,
                            struct mu_err *err)
{
    if (strcmp(visible_name(st), "ZE_AFFINITY_MASK") != 0)
        return mu_env_add(env, "CUDA_DEVICE_ORDER", MU_ENV_KEEP, err, "PCI_BUS_ID");
    if (mu_env_add(env, "ZE_ENABLE_PCI_ID_DEVICE_ORDER", MU_ENV_KEEP, err, "1") < 0)
        return -1;
    return tiled ? mu_env_add(env, "ZE_FLAT_DEVICE_HIERARCHY", MU_ENV_KEEP, err, "FLAT")
                 : 0;
}

/* Where a GPU is several devices, device LOCAL_RANK of all would be another task's. */
static int add_gpus(const struct mu_state *st, const struct mu_slot *slot, bool hidden,
                    struct mu_env *env, struct mu_err *err)
{
    bool tiled = mu_gpus_tiled(st);

    if (st->alloc.ngpus == 0)
        return 0;
    if (add_device_order(st, tiled, env, err) < 0)
        return -1;
    return hidden ? 0 : add_visible(st, slot, st->plan.own_visible || tiled, env, err);
}

/* Slurm writes one list into the variables of all vendors. HIP applies ROCr's, its own
 * and CUDA's one after another, so that a second list of numbers hides devices: only
 * the runtime's own list stays (case 069).
 */
static void drop_other_lists(const struct mu_state *st, spank_t sp)
{
    static const char *const names[] = { "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES",
                                         "GPU_DEVICE_ORDINAL", "ZE_AFFINITY_MASK" };
    char value[MU_ENV_TEXT];

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i], visible_name(st)) != 0 &&
            mu_item_env(sp, names[i], value, sizeof value) &&
            strcmp(value, st->step.visible) == 0)
            spank_unsetenv(sp, names[i]);
}

/* The fabric, which libmuster compares between nodes; "" (unknown) where the user chose
 * the HCAs. */
static const char *fabric_of(const struct mu_state *st, spank_t sp)
{
    static const char name[] = "NCCL_IB_HCA";
    const struct mu_hca_choice *hca = &st->network.hca;
    const struct mu_setting *own = mu_settings_find(&st->network.settings, name);
    char value[MU_HCA_LIST];

    if (!st->have_network || st->step.nnodes < 2 ||
        (own && own->winner != MU_WINNER_MUSTER) ||
        (mu_item_env_begin(sp, name, value, sizeof value) &&
         !mu_env_set_has(st->step.set, name, value)))
        return "";
    if (hca->n == 0)
        return "none";
    return hca->layer == MU_LINK_UNKNOWN ? "" : mu_link_layer_name(hca->layer);
}

/* Readers compare the CPUs and memory nodes with the task's: the plan's would be wrong
 * where it was not applied.
 */
static int add_plan(const struct mu_state *st, spank_t sp, const struct mu_slot *slot,
                    const struct mu_bound *bound, struct mu_env *env,
                    struct mu_err *err)
{
    struct mu_record *record = malloc(sizeof *record);
    char line[MU_RECORD_LINE];
    int rc;

    if (!record)
        return mu_err_set(err, ENOMEM, "MUSTER_PLAN: out of memory");
    mu_show_record(&st->node, slot, record);
    record->cpus = bound->cpus;
    record->mems = bound->mems;
    mu_copy(record->fabric, sizeof record->fabric, fabric_of(st, sp));
    rc = mu_record_encode(record, line, sizeof line, err);
    if (rc == 0)
        rc = mu_env_add(env, "MUSTER_PLAN", MU_ENV_OURS, err, "%s", line);
    free(record);
    return rc;
}

static int add_settings(const struct mu_state *st, struct mu_env *env,
                        struct mu_err *err)
{
    const struct mu_settings *settings = &st->network.settings;

    for (int i = 0; st->have_network && i < settings->n; i++)
        if (settings->item[i].winner == MU_WINNER_MUSTER &&
            mu_env_add(env, settings->item[i].name, MU_ENV_KEEP, err, "%s",
                       settings->item[i].value) < 0)
            return -1;
    return 0;
}

static int add_rendezvous(const struct mu_state *st, spank_t sp, int task,
                          struct mu_env *env, struct mu_err *err)
{
    if (st->role == MU_ROLE_NONE)
        return 0;
    if (st->role == MU_ROLE_RANK && add_ranks(st, sp, task, env, err) < 0)
        return -1;
    /* For torchrun --node_rank. On one node it adds nothing, and trainers take it for
     * the mark of an outer launcher (Lightning-AI/pytorch-lightning#5651). */
    if (st->role == MU_ROLE_LAUNCHER && st->step.world_nodes > 1 &&
        mu_env_add(env, "NODE_RANK", MU_ENV_RANK, err, "%d", node_number(st, sp)) < 0)
        return -1;
    return add_master(st, sp, env, err);
}

static int gather(const struct mu_state *st, spank_t sp, const struct mu_slot *slot,
                  const struct mu_bound *bound, bool hidden, struct mu_env *env,
                  struct mu_err *err)
{
    int cores = slot->bound ? mu_node_core_count(&st->node, &slot->cpus) : 0;

    if (add_rendezvous(st, sp, slot->task, env, err) < 0)
        return -1;
    if (add_gpus(st, slot, hidden, env, err) < 0)
        return -1;
    /* mpirun's daemon is not bound, and starts any number of ranks. */
    if (st->opts.omp == MU_AUTO_AUTO && cores > 0 &&
        st->step.launcher != MU_LAUNCHER_MPI &&
        mu_env_add(env, "OMP_NUM_THREADS", MU_ENV_KEEP, err, "%d",
                   mu_env_threads(cores, slot->ngpus)) < 0)
        return -1;
    if (add_settings(st, env, err) < 0 ||
        mu_nccl_plugins_add(st, slot->task == 0, env, err) < 0)
        return -1;
    return add_plan(st, sp, slot, bound, env, err);
}

static int write_all(const struct mu_state *st, spank_t sp, const struct mu_env *env,
                     struct mu_err *err)
{
    char *set = calloc(1, MU_ENV_SET_TEXT), value[MU_RECORD_LINE];
    int rc = 0;

    if (!set)
        return mu_err_set(err, ENOMEM, "MUSTER_SET: out of memory");
    for (int i = 0; i < env->n && rc == 0; i++) {
        const char *name = env->item[i].name;

        if (!mu_env_may_write(env->item[i].rule, name,
                              mu_item_env_begin(sp, name, value, sizeof value),
                              st->step.set))
            continue;
        if (spank_setenv(sp, name, env->item[i].value, 1) != ESPANK_SUCCESS)
            rc = mu_err_set(err, EIO, "%s could not be set", name);
        else if (!mu_env_set_add(set, name, env->item[i].value))
            rc = mu_err_set(err, E2BIG, "MUSTER_SET is full");
    }
    if (rc == 0 && spank_setenv(sp, "MUSTER_SET", set, 1) != ESPANK_SUCCESS)
        rc = mu_err_set(err, EIO, "MUSTER_SET could not be set");
    free(set);
    return rc;
}

/* Without a binding, Slurm does not pass the step's list to the task. */
static void restore_step_gpus(const struct mu_state *st, spank_t sp)
{
    if (st->step.gpus[0])
        spank_setenv(sp, "SLURM_STEP_GPUS", st->step.gpus, 0);
}

void mu_taskenv_restore(const struct mu_state *st, spank_t sp)
{
    restore_step_gpus(st, sp);
    /* With confined devices, a task without the variable sees the step's GPUs; the
     * step's value has numbers of the node and would be wrong. */
    if (st->step.visible[0] && !mu_gpus_confined(st))
        spank_setenv(sp, st->step.visible_name, st->step.visible, 0);
}

int mu_taskenv_write(const struct mu_state *st, spank_t sp, const struct mu_slot *slot,
                     const struct mu_bound *bound, bool hidden, struct mu_err *err)
{
    struct mu_env env = { 0 };
    int rc = gather(st, sp, slot, bound, hidden, &env, err);

    if (rc == 0)
        rc = write_all(st, sp, &env, err);
    if (rc == 0 && !hidden && st->alloc.ngpus > 0)
        drop_other_lists(st, sp);
    restore_step_gpus(st, sp);
    mu_env_clear(&env);
    return rc;
}

int mu_taskenv_ranks(const struct mu_state *st, spank_t sp, int task,
                     struct mu_err *err)
{
    struct mu_env env = { 0 };
    int rc = add_rendezvous(st, sp, task, &env, err);

    /* Settings of the rendezvous only: NCCL's need a plan. */
    if (rc == 0)
        rc = add_settings(st, &env, err);
    if (rc == 0)
        rc = write_all(st, sp, &env, err);
    mu_env_clear(&env);
    return rc;
}

int mu_taskenv_narrow(const struct mu_state *st, spank_t sp, const struct mu_slot *slot,
                      struct mu_err *err)
{
    struct mu_env env = { 0 };
    int rc = 0;

    if (st->alloc.ngpus > 0)
        rc = add_visible(st, slot, true, &env, err);
    if (rc == 0 && env.n == 1 &&
        spank_setenv(sp, env.item[0].name, env.item[0].value, 1) != ESPANK_SUCCESS)
        rc = mu_err_set(err, EIO, "%s could not be set", env.item[0].name);
    restore_step_gpus(st, sp);
    mu_env_clear(&env);
    return rc;
}
