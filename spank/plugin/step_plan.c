/* SPDX-License-Identifier: BSD-3-Clause */
/* step_plan.c - makes the plan of a step on this node from the machine, the step's
 * share of it and the options
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/parse.h"
#include "spank/hw/io/sysfile.h"
#include "spank/hw/live/nvml.h"
#include "spank/hw/load/locality.h"
#include "spank/hw/load/node_load.h"
#include "spank/hw/machine/runtime_order.h"
#include "spank/plugin/plugin.h"

#define NVML_DEVICES (MU_GPUS_MAX + 16) /* GPUs, and the MIG devices on them */
#define NVML_SECONDS 3

/* Slurm names MIG devices by UUIDs, which only NVIDIA's library can resolve. It is
 * slow, so it is called only where Slurm used such a UUID.
 */
static int name_migs(struct mu_state *st, struct mu_err *err)
{
    struct mu_nvml_device *list = calloc(NVML_DEVICES, sizeof *list);
    int n, rc = 0;

    if (list && strstr(st->step.visible, "MIG-")) {
        n = mu_nvml_list(NULL, NVML_SECONDS, list, NVML_DEVICES);
        rc = mu_nvml_name_migs(list, n, &st->node, err);
    }
    free(list);
    return rc < 0 ? -1 : 0;
}

static int load_node(struct mu_state *st, struct mu_err *err)
{
    struct mu_err why = { 0 };

    if (!st->site.topology[0]) {
        if (mu_node_load_live(&st->node, err) < 0 || name_migs(st, err) < 0)
            return -1;
        mu_locality_complete(&st->node, "", st->locality_file, sizeof st->locality_file,
                             &why);
        if (why.text[0])
            mu_info(st, "/etc/nccl.conf does not help with the GPUs' locality: %s",
                    why.text);
        return 0;
    }
    if (mu_check_owner(st->site.topology, err) < 0)
        return -1;
    if (mu_node_load_file(st->site.topology, &st->node, err) < 0)
        return -1;
    /* A file has no order of AMD's driver. */
    mu_runtime_order(mu_sysfile_root(), &st->node);
    return 0;
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
    st->alloc.mig = strstr(st->step.visible, "MIG-") != NULL;
    mu_gres_find_order(st);
    return mu_gpus_of_step(st->step.gpus, st->step.visible, &st->order, &st->alloc,
                           &st->node, err);
}

/* The options for the planner: Slurm's bindings of the step included. */
static struct mu_opts planner_opts(const struct mu_state *st)
{
    struct mu_opts opts = st->opts;

    if (!opts.gpu_bind[0])
        mu_copy(opts.gpu_bind, sizeof opts.gpu_bind, st->step.request.gpu_bind);
    if (st->step.request.cpu_bind || st->action == MU_ACTION_NARROW)
        opts.bind = MU_BIND_NONE;
    /* Who asks for a part of a GPU asks to share it. */
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
    st->have_plan = true;
    return 0;
}
