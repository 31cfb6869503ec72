/* SPDX-License-Identifier: BSD-3-Clause */
/* state.h - the one struct of state behind the hooks: the step on this node, what
 * Muster does for it, its plan
 */
#ifndef MU_STATE_H
#define MU_STATE_H

#include <slurm/spank.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "runtime/base/err.h"
#include "spank/core/gpubind/takeover.h"
#include "spank/core/network/port.h"
#include "spank/core/node/alloc.h"
#include "spank/core/node/node.h"
#include "spank/core/options/muster_conf.h"
#include "spank/core/options/muster_option.h"
#include "spank/core/options/rank_rule.h"
#include "spank/core/options/restart.h"
#include "spank/core/plan/plan.h"
#include "spank/core/slurm/gres_conf.h"
#include "spank/hw/live/network.h"

#define MU_OPTION_TEXT 4096
#define MU_ENV_TEXT 8192
/* The kernel's limit of one environment variable. */
#define MU_NODES_TEXT (128 * 1024)

/* Step ids from here on have no tasks: interactive, batch, extern. */
#define MU_STEP_SPECIAL 0xfffffffau
#define MU_STEP_INTERACTIVE 0xfffffffau
#define MU_STEP_BATCH 0xfffffffbu

/* One step on one node, as slurmstepd sees it in user_init. */
struct mu_step {
    uint32_t job, step; /* of a heterogeneous job: its first component's id */
    int ntasks;         /* of this component's step, all nodes */
    int nlocal;         /* tasks on this node */
    int nnodes, nodeid;
    int world, world_nodes; /* tasks and nodes of all components */
    bool pty;               /* srun --pty */
    int cpus_per_task;      /* Slurm's count, 0 no request */
    int threads;            /* threads of a core that cpus_per_task counts, 0 all */
    char host[256];         /* Slurm's name of this node */
    char partition[256];
    char nodelist[MU_NODES_TEXT];
    char rank0_host[256]; /* Slurm's name of rank 0's node */
    bool is_rank0_host;   /* rank 0 runs on this node */
    char gpus[1024];      /* SLURM_STEP_GPUS: node indices, "" none */
    char job_gpus[1024];  /* SLURM_JOB_GPUS: node indices, "" unknown */
    /* The step's devices as Slurm set them, and the variable: CUDA_VISIBLE_DEVICES, or
     * that of AMD's or Intel's GPUs. */
    char visible[MU_ENV_TEXT];
    const char *visible_name;
    bool cuda_order;   /* the user's CUDA_DEVICE_ORDER is another than PCI_BUS_ID */
    bool ze_composite; /* the user's ZE_FLAT_DEVICE_HIERARCHY counts cards, not tiles */
    char set[MU_ENV_TEXT];  /* MUSTER_SET of an outer step, "" none */
    char ports[256];        /* SLURM_STEP_RESV_PORTS */
    struct mu_cpuset cpus;  /* CPUs that the step may use */
    struct mu_cpuset mems;  /* NUMA nodes that the step may use; empty unknown */
    struct mu_cpuset cores; /* the step's cores in Slurm's numbering, see step_cpus.c */
    bool parts;             /* the step has gres/shard or gres/mps: parts of GPUs */
    bool confined; /* false: cpus are all of the machine, Slurm confines no task */
    char mem_bind[1024]; /* SLURM_MEM_BIND: the user's --mem-bind, "" none */
    struct mu_bind_request request;
    bool taken_over; /* srun or the batch step made the request neutral */
    enum mu_launcher launcher;
    int launcher_nproc;
};

/* What Muster does for this step, decided in user_init. */
enum mu_action {
    MU_ACTION_NOTHING,
    /* off, but took over the binding: CUDA_VISIBLE_DEVICES as Slurm would set it */
    MU_ACTION_NARROW,
    MU_ACTION_PLAN,
};

/* A copy of an NCCL topology file that this step made; dir "" none. */
struct mu_topofile {
    char dir[1024], path[1100];
    uid_t uid; /* of the user, whose groups are owned memory */
    gid_t gid, *groups;
    int ngroups;
    char *text; /* owned; for a task that does not see the copy */
    size_t len;
};

struct mu_state {
    spank_context_t context; /* of this process, as init found it */
    int lines;               /* of plugstack.conf that load the plugin */
    struct {
        int init_post_opt, user_init, task_init, task_exit, exit;
    } calls;         /* of all these lines */
    char conf[4096]; /* the site file */
    struct {
        dev_t dev;
        ino_t ino;    /* 0 unknown */
    } host_ns;        /* mount namespace in which the plan was made */
    bool conf_needed; /* plugstack.conf names another site file than the default */
    struct mu_err
        arguments; /* why plugstack.conf's arguments are refused, code 0: fine */
    bool option_given, option_too_long;
    char option[MU_OPTION_TEXT]; /* the text of --muster, unparsed */

    /* In srun: whether Muster started it anew, and then gave the --muster itself. */
    bool restarted, own_option;
    struct mu_restart restart;
    bool restart_over; /* nothing is left to do in srun's further calls */

    void *held_hwloc; /* from init until the machine is read (mu_hwloc_hold) */
    enum mu_action action;
    enum mu_role role;    /* of the step's tasks */
    const char *role_why; /* a static sentence */
    struct mu_opts opts;  /* every field set */
    struct mu_site_keys site;
    struct mu_step step;
    struct mu_node node;
    struct mu_gres_order order; /* how Slurm numbers node.gpus */
    bool devices_confined;      /* cgroup.conf: a task can open only its step's GPUs */
    struct mu_alloc alloc;
    struct mu_plan plan;
    struct mu_network network;
    bool have_plan, have_network;
    /* a recorded machine with CPUs that this one lacks: nothing is bound */
    bool simulated;
    char locality_file[4096]; /* the file that gave the GPUs' locality, "" none */
    struct mu_topofile topofile;
    int exited;     /* tasks of this node that have ended */
    int port_claim; /* descriptor of the claim on MASTER_PORT; 0, -1 none */
    int ports_first, ports_last;   /* range of hashed ports */
    uint32_t ports_seed;           /* of srun; 0 none */
    bool ports_ephemeral;          /* any outgoing connection can take them */
    struct mu_port_set ports_skip; /* ports of that range that are not free */
    struct mu_err failure;         /* why there is no plan */
    bool refused;    /* share=no forbids the step: its tasks must not run */
    bool ranks_only; /* no plan, but tasks get the rank and rendezvous variables */
};

#endif
