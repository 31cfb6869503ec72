/* SPDX-License-Identifier: BSD-3-Clause */
/* plugin.h - the one struct of state behind the hooks, and the parts that work on it.
 *
 *   plugin.c       the hooks, by context
 *   srun.c         in srun: options checked, the bind request taken over before srun
 *                  reads it
 *   stepd.c        in slurmstepd: what is on for this step, once per node
 *   step_plan.c    the plan of the step on this node
 *   items.c        spank items, environment and cgroup into struct mu_step
 *   step_cpus.c    the step's CPUs where no cgroup tells
 *   gpu_order.c    in which order Slurm counts the node's GPUs
 *   gpus.c         which GPUs the step owns, which one a task can open, their names
 *   task_init.c    in the task: its slot of the plan carried out, by the next three
 *   apply.c        in the task: affinity, memory policy
 *   taskenv.c      in the task: the environment
 *   container.c    in the task: what the image of its container sets
 *   rendezvous.c   where the tasks meet: ports, network, rank 0's address
 *   rank0_node.c   which node rank 0 is on
 *   nodeaddr.c     where Slurm reaches a node whose name does not resolve
 *   master_port.c  is MASTER_PORT free
 *   step_report.c  what a step is told once per node
 *   other_steps.c  the job's other steps on this node, and what is shared with them
 *   topofile.c     NCCL_TOPO_FILE: checked, copied, removed
 *   settings.c     the site file, the options that hold
 *   messages.c     lines on the user's standard error
 */
#ifndef MU_PLUGIN_H
#define MU_PLUGIN_H

#include <slurm/slurm_errno.h>
#include <slurm/spank.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "runtime/base/err.h"
#include "runtime/base/record.h"
#include "spank/core/node/alloc.h"
#include "spank/core/slurm/command_line.h"
#include "spank/core/slurm/gres_conf.h"
#include "spank/core/node/node.h"
#include "spank/core/slurm/node_addr.h"
#include "spank/core/options/muster_option.h"
#include "spank/core/plan/plan.h"
#include "spank/core/network/port.h"
#include "spank/core/gpubind/takeover.h"
#include "spank/core/options/muster_conf.h"
#include "spank/hw/live/network.h"

#define MU_OPTION_TEXT 4096
#define MU_ENV_TEXT 8192
/* More the kernel gives no program in one variable. */
#define MU_NODES_TEXT (128 * 1024)

/* Step ids from here up are no steps of tasks: interactive, batch, extern. */
#define MU_STEP_SPECIAL 0xfffffffau
#define MU_STEP_INTERACTIVE 0xfffffffau
#define MU_STEP_BATCH 0xfffffffbu

/* One step on one node, as slurmstepd sees it in user_init. */
struct mu_step {
    uint32_t job, step; /* of a heterogeneous job: its first component's id */
    int ntasks;         /* of this component's step, all nodes */
    int nlocal;         /* tasks on this node */
    int nnodes, nodeid;
    int cpus_per_task; /* as Slurm counts, 0 no request */
    int threads;       /* of each core that cpus_per_task counts, 0 all of them */
    char host[256];    /* Slurm's name of this node */
    char partition[256];
    char nodelist[MU_NODES_TEXT];
    char rank0_host[256]; /* Slurm's name of rank 0's node */
    bool is_rank0_host;   /* that is this node */
    char gpus[1024];      /* SLURM_STEP_GPUS: node indices, "" none */
    char job_gpus[1024];  /* SLURM_JOB_GPUS, likewise; "" unknown */
    /* The step's devices as Slurm set them, and in which variable:
     * CUDA_VISIBLE_DEVICES, or that of AMD's or Intel's GPUs. */
    char visible[MU_ENV_TEXT];
    const char *visible_name;
    char set[MU_ENV_TEXT];  /* MUSTER_SET of an outer step, "" none */
    char ports[256];        /* SLURM_STEP_RESV_PORTS */
    struct mu_cpuset cpus;  /* what the step may run on */
    struct mu_cpuset mems;  /* NUMA nodes it may take memory from; empty unknown */
    struct mu_cpuset cores; /* Slurm's own core numbers of the step, see step_cpus.c */
    bool confined; /* false: the cpus are the machine's, Slurm confines nobody */
    struct mu_bind_request request;
    bool taken_over; /* srun or the batch step made the request neutral */
    enum mu_launcher launcher;
    int launcher_nproc;
};

/* What is to be done for this step, decided in user_init. */
enum mu_action {
    MU_ACTION_NOTHING,
    /* taken over, but off: CUDA_VISIBLE_DEVICES as Slurm would have it */
    MU_ACTION_NARROW,
    MU_ACTION_PLAN,
};

/* A copy of an NCCL topology file that this step made; dir "" none. */
struct mu_topofile {
    char dir[1024], path[1100];
    int dirfd;
    uid_t owner;
};

struct mu_state {
    char conf[4096]; /* the site file */
    struct {
        dev_t dev;
        ino_t ino;    /* 0 not known */
    } host_ns;        /* mount namespace in which the plan was made */
    bool conf_needed; /* plugstack.conf names another than the usual one */
    bool option_given, option_too_long;
    char option[MU_OPTION_TEXT]; /* the text of --muster, unparsed */

    enum mu_action action;
    struct mu_opts opts; /* every field set */
    struct mu_site_keys site;
    struct mu_step step;
    struct mu_node node;
    struct mu_gres_order order; /* how Slurm counts node.gpus */
    bool devices_confined;      /* cgroup.conf: a task opens its step's GPUs alone */
    struct mu_alloc alloc;
    struct mu_plan plan;
    struct mu_network network;
    bool have_plan, have_network;
    /* a recorded machine with CPUs that this one lacks: nothing is bound */
    bool simulated;
    char locality_file[4096]; /* that told where GPUs are, "" none */
    struct mu_topofile topofile;
    int exited;     /* tasks of this node that have ended */
    int port_claim; /* descriptor that says MASTER_PORT is ours; 0, -1 none */
    int ports_first, ports_last;   /* of hashed ports */
    bool ports_ephemeral;          /* any outgoing connection may hold them */
    struct mu_port_set ports_skip; /* ports of that range that belong to others */
    struct mu_err failure;         /* why there is no plan */
    bool ranks_only; /* no plan, but tasks get the rank and rendezvous variables */
};

/* messages.c. To the user's standard error, each line behind "muster: "; user_init and
 * later. mu_say_lines takes text of several lines. Warnings name the node.
 */
void mu_info(const struct mu_state *st, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void mu_warn(const struct mu_state *st, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void mu_say_lines(char *text);

/* settings.c. The site file into *keys, for a partition and a node (NULL unknown). No
 * file at the default place is an empty one. Only root may change it, and what it names
 * (spank/hw/io/sysfile.h).
 */
int mu_site_load(const struct mu_state *st, const char *partition, const char *host,
                 struct mu_site_keys *keys, struct mu_err *err);

/* Options, site and defaults together, every field of *opts set. `taken` gets the names
 * of keys that the site locked against the user. Fails on a bad --muster text.
 */
int mu_settle(const struct mu_state *st, const struct mu_site_keys *site,
              struct mu_opts *opts, char *taken, size_t len, struct mu_err *err);

/* srun.c. Before srun reads its environment; and when a value of --muster is given to
 * srun, sbatch or salloc: -1 after an error message.
 */
void mu_srun_init(struct mu_state *st);
void mu_srun_inherited(const struct mu_state *st);
int mu_srun_check(const struct mu_state *st);

/* rank0_node.c. In srun: tell the nodes which one rank 0 is on, where that is not the
 * first of the step (argv: srun's own command line).
 */
#define MU_RANK0_HOST_VARIABLE "SLURM_MUSTER_HEAD"
void mu_srun_send_rank0_host(int argc, char **argv);

/* stepd.c */
void mu_stepd_user_init(struct mu_state *st, spank_t sp);
void mu_stepd_task_exit(struct mu_state *st);
void mu_stepd_exit(struct mu_state *st);

/* step_plan.c. st->node, st->alloc and st->plan. */
int mu_step_plan_make(struct mu_state *st, struct mu_err *err);

/* task_init.c. -1 after an error message: the task must not run. */
int mu_stepd_task_init(struct mu_state *st, spank_t sp);

/* items.c */
int mu_items_read(spank_t sp, struct mu_step *step, struct mu_err *err);
/* A variable of the step or task; NULL if it is not there or does not fit. _begin: its
 * beginning where it does not fit.
 */
const char *mu_item_env(spank_t sp, const char *name, char *buf, size_t len);
const char *mu_item_env_begin(spank_t sp, const char *name, char *buf, size_t len);
/* The same as a number from 0 on; `missing` if it is none. */
int mu_item_number(spank_t sp, const char *name, int missing);

/* The user's own value of a variable, NULL if there is none or an outer step's Muster
 * set it; arg is a struct mu_user_lookup.
 */
struct mu_user_lookup {
    struct mu_state *st;
    spank_t sp;
    char value[4096];
};
const char *mu_users_value(void *arg, const char *name);

/* Words of the environment for mu_takeover_decide; buffers hold what they point to. */
struct mu_takeover_buffer {
    char text[9][MU_TAKEOVER_TEXT];
};
void mu_words_of_step(spank_t sp, struct mu_takeover_buffer *buffer,
                      struct mu_takeover_words *words);
extern const struct mu_takeover_slurm mu_this_slurm;

/* The CPUs that are on line; empty where /sys does not tell. */
void mu_online_cpus(struct mu_cpuset *cpus);

/* step_cpus.c. The CPUs of the step on this node, out of the machine's; and, called in
 * the task: Slurm's own binding of it says that they are others.
 */
void mu_step_cpus(const struct mu_state *st, const struct mu_cpuset *machine,
                  struct mu_cpuset *cpus);
bool mu_step_cpus_disputed(const struct mu_state *st);
/* The node's CPUs that -c asks for, where it counts `threads` of each core (0: all). */
int mu_cpus_of_request(const struct mu_node *node, int cpus_per_task, int threads);

/* gpu_order.c. Which of the node's GPUs Slurm means by each number, into st->order, and
 * st->devices_confined.
 */
void mu_gres_find_order(struct mu_state *st);

/* gpus.c. Fill alloc->gpu_node from a step's SLURM_STEP_GPUS; those of its
 * CUDA_VISIBLE_DEVICES that are UUIDs by these.
 */
int mu_gpus_of_step(const char *numbers, const char *visible,
                    const struct mu_gres_order *order, struct mu_alloc *alloc,
                    const struct mu_node *node, struct mu_err *err);
/* Is the device file of every GPU known that the driver has? */
bool mu_gpus_have_minors(const struct mu_node *node);
/* Can this process open the GPU (index into node.gpus)? 1 yes, 0 no, -1 there is no
 * device file to try.
 */
int mu_gpu_open(const struct mu_state *st, int gpu_node);
/* Is there a GPU's device file that this process may not open? */
bool mu_gpus_confined(const struct mu_state *st);
/* How many GPUs of the node this process can open that are neither the step's nor, as
 * far as Slurm tells, the job's: none where ConstrainDevices is on.
 */
int mu_gpus_foreign(const struct mu_state *st);
/* The value of CUDA_VISIBLE_DEVICES for these GPUs, called in the task. */
int mu_gpus_visible(const struct mu_state *st, const int *gpu_node, int ngpus,
                    char *buf, size_t len, struct mu_err *err);

/* apply.c. All act on the calling process. */
int mu_apply_affinity(const struct mu_cpuset *cpus, struct mu_err *err);
int mu_apply_memory(const struct mu_cpuset *mems, bool strict, struct mu_err *err);

/* taskenv.c. Write the environment of one task; hidden: Slurm narrowed the task itself
 * and its CUDA_VISIBLE_DEVICES stays.
 */
int mu_taskenv_write(const struct mu_state *st, spank_t sp, const struct mu_slot *slot,
                     bool hidden, struct mu_err *err);
/* Without a plan: what does not depend on it, ranks and rendezvous; task: local rank.
 */
int mu_taskenv_ranks(const struct mu_state *st, spank_t sp, int task,
                     struct mu_err *err);
/* Without a plan, after the take-over: CUDA_VISIBLE_DEVICES names the step's GPUs, as
 * it would without any binding, so that a task never sees those of others.
 */
void mu_taskenv_restore(const struct mu_state *st, spank_t sp);
/* Only CUDA_VISIBLE_DEVICES and SLURM_STEP_GPUS, as Slurm's own binding would have it.
 */
int mu_taskenv_narrow(const struct mu_state *st, spank_t sp, const struct mu_slot *slot,
                      struct mu_err *err);

/* rendezvous.c. In srun on a node of the job, which is rank 0's as a rule: tell all
 * nodes what its kernel says of ports, so that they hash alike even if their own
 * differ.
 */
#define MU_PORTS_VARIABLE "SLURM_MUSTER_PORTS"
#define MU_PORTS_TEXT 4096
void mu_srun_tell_ports(void);
/* Called as the user: the range of hashed ports and what to skip in it; then
 * st->network, without NCCL's settings where there is no plan.
 */
void mu_choose_ports(struct mu_state *st, spank_t sp);
int mu_decide_network(struct mu_state *st, spank_t sp, struct mu_err *err);
/* The port others meet at: reserved by Slurm, or hashed. */
int mu_master_port(const struct mu_state *st);

/* container.c. In user_init, and in the task's process: where the task is in a
 * container by now, what the image sets is not overwritten; with verbose the first task
 * tells.
 */
void mu_container_remember(struct mu_state *st);
void mu_container_settle(struct mu_state *st, spank_t sp, int task);

/* nodeaddr.c. The callback `node_addrs` of struct mu_network_request; arg is the
 * spank_t.
 */
void mu_node_addrs(void *arg, struct mu_node_addr *list, int n);

/* step_report.c. Once per node, after the plan. */
void mu_report(const struct mu_state *st);

/* other_steps.c. Called as the user, after the plan: say which CPUs and GPUs of this
 * step other steps of the job use at this moment.
 */
void mu_other_steps_say(const struct mu_state *st);

/* master_port.c. On rank 0's node: warn if another step or program has the hashed port;
 * the claim is held until release.
 */
void mu_port_check(struct mu_state *st);
void mu_port_release(struct mu_state *st);

/* topofile.c. The callback `topo` of struct mu_network_request, called as the user; arg
 * is a struct mu_topofile_request. Remove undoes it, called as root.
 */
struct mu_topofile_request {
    struct mu_state *st;
    const char *tmpdir;
};
bool mu_topofile_prepare(void *arg, const char *platform, const char **file,
                         const char **reason);
void mu_topofile_remove(struct mu_state *st);

#endif
