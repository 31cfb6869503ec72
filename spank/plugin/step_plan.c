/* SPDX-License-Identifier: BSD-3-Clause */
/* step_plan.c - makes the plan of a step on this node from the machine, the step's
 * share of it and the options
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/parse.h"
#include "spank/hw/io/mig.h"
#include "spank/hw/io/sysfile.h"
#include "spank/hw/live/nvml.h"
#include "spank/hw/load/locality.h"
#include "spank/hw/load/node_load.h"
#include "spank/hw/machine/runtime_order.h"
#include "spank/plugin/plugin.h"

#define NVML_DEVICES (MU_GPUS_MAX + 16) /* GPUs, and the MIG devices on them */
#define NVML_SECONDS 3

/* Is a GPU of the node cut into MIG slices? The driver's list in /proc may be missing,
 * as on a machine that was read from a file.
 */
static bool may_be_cut(const struct mu_state *st)
{
    int cut = mu_mig_cut(mu_sysfile_root());

    return strstr(st->step.visible, "MIG-") || cut > 0 ||
           (cut < 0 && st->node.ngpus > 0) || mu_gres_has_slices(st);
}

/* Only NVIDIA's library has the UUIDs of MIG slices. It is slow, so it is called only
 * where a GPU is cut.
 */
static int name_migs(struct mu_state *st, struct mu_err *err)
{
    struct mu_nvml_device *list;
    int n, rc = 0;

    if ((!st->step.gpus[0] && !st->step.visible[0]) || !may_be_cut(st))
        return 0;
    list = calloc(NVML_DEVICES, sizeof *list);
    if (list) {
        n = mu_nvml_list(NULL, NVML_SECONDS, list, NVML_DEVICES);
        if (n > 0)
            rc = mu_nvml_name_migs(list, n, &st->node, err);
    }
    free(list);
    return rc < 0 ? -1 : 0;
}

static int load_node(struct mu_state *st, struct mu_err *err)
{
    const char *topo = st->opts.topo == MU_TOPO_FILE ? st->opts.topo_file : NULL;
    bool live = !st->site.topology[0];
    struct mu_err why = { 0 };

    if (live ? mu_node_load_live(&st->node, err) < 0
             : mu_check_owner(st->site.topology, err) < 0 ||
                   mu_node_load_site(st->site.topology, &st->node, err) < 0)
        return -1;
    if (!live) /* a file has no order of AMD's driver */
        mu_runtime_order(mu_sysfile_root(), &st->node);
    if (name_migs(st, err) < 0)
        return -1;
    mu_locality_complete(&st->node, live ? mu_sysfile_root() : NULL, topo,
                         st->locality_file, sizeof st->locality_file, &why);
    if (why.text[0])
        mu_info(st, "%s", why.text);
    return 0;
}

static bool has_slice(const struct mu_node *node)
{
    for (int i = 0; i < node->ngpus; i++)
        if (mu_gpu_is_slice(&node->gpus[i]))
            return true;
    return false;
}

static bool step_has_slice(const struct mu_state *st)
{
    for (int pos = 0; pos < st->alloc.ngpus; pos++)
        if (mu_gpu_is_slice(&st->node.gpus[st->alloc.gpu_node[pos]]))
            return true;
    return false;
}

static int fill_alloc(struct mu_state *st, struct mu_err *err)
{
    struct mu_cpuset machine, online;

    st->alloc.ntasks = st->step.nlocal;
    st->alloc.cpus_per_task =
        mu_cpus_of_request(&st->node, st->step.cpus_per_task, st->step.threads);
    mu_node_cpus(&st->node, &machine);
    mu_online_cpus(&online);
    st->simulated = st->site.topology[0] && !mu_cpuset_inside(&machine, &online);
    mu_step_cpus(st, &machine, &st->alloc.cpus);
    if (!st->simulated)
        st->alloc.mems = st->step.mems;
    st->alloc.mig = has_slice(&st->node);
    mu_gres_find_order(st);
    if (mu_gpus_of_step(st->step.gpus, st->step.visible, &st->order, &st->alloc,
                        &st->node, err) < 0)
        return -1;
    st->alloc.mig = step_has_slice(st);
    return 0;
}

/* The options for the planner: Slurm's bindings of the step included. */
static struct mu_opts planner_opts(const struct mu_state *st)
{
    struct mu_opts opts = st->opts;

    if (!opts.gpu_bind[0])
        mu_copy(opts.gpu_bind, sizeof opts.gpu_bind, st->step.request.gpu_bind);
    if (st->step.request.cpu_bind || st->action == MU_ACTION_NARROW)
        opts.bind = MU_BIND_NONE;
    /* A step with a part of a GPU shares it. */
    if (st->step.parts && opts.share == MU_SHARE_WARN)
        opts.share = MU_SHARE_YES;
    return opts;
}

int mu_step_plan_make(struct mu_state *st, struct mu_err *err)
{
    struct mu_opts opts = planner_opts(st);

    if (load_node(st, err) < 0 || fill_alloc(st, err) < 0)
        return -1;
    if (mu_plan_make(&st->node, &st->alloc, &opts, &st->plan, err) < 0)
        return -1;
    if (mu_gpus_unnamed(st))
        mu_warn(st,
                "the step has MIG slices and NVIDIA's library gave no UUIDs within %d "
                "s: CUDA_VISIBLE_DEVICES is left as Slurm set it, so that tasks may "
                "share a slice; check nvidia-smi -L on this node",
                NVML_SECONDS);
    st->have_plan = true;
    return 0;
}
