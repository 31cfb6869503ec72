/* SPDX-License-Identifier: BSD-3-Clause */
/* plugin.h - the parts of the plugin, which work on one struct of state
 *
 *   state.h        that struct, and the step on this node
 *   plugin.c       the hooks, by context
 *   srun.c         in srun: checks options, takes over the bind request before srun
 *                  reads it
 *   restart.c      in srun: starts srun anew for a binding of its command line
 *   stepd.c        in slurmstepd: decides once per node what Muster does for the step
 *   inherited.c    drops what an outer step exported
 *   step_plan.c    the plan of the step on this node
 *   items.c        fills struct mu_step from SPANK items, environment and cgroup
 *   step_cpus.c    the step's CPUs where no cgroup confines it
 *   gpu_order.c    the order in which Slurm numbers the node's GPUs
 *   gpus.c         the GPUs that the step owns, that a task can open; their names
 *   task_init.c    in the task: applies its slot of the plan, by the next three
 *   taskenv.c      in the task: the environment
 *   nccl_plugins.c in the task: variables for Muster's plugins of NCCL
 *   container.c    in the task: settings from the container's image
 *   rendezvous.c   ports, network, rank 0's address
 *   rank0_node.c   the node that rank 0 runs on
 *   nodeaddr.c     addresses of nodes whose names do not resolve
 *   master_addr.c  checks the user's MASTER_ADDR
 *   master_port.c  checks that MASTER_PORT is free
 *   leftovers.c    rank variables of the shell that started the step
 *   step_report.c  prints warnings and the plan, once per node
 *   other_steps.c  CPUs and GPUs shared with the job's other steps on this node
 *   topofile.c     NCCL_TOPO_FILE: checked, copied, removed
 *   settings.c     the site file, the merged options
 *   second_line.c  reports a second line for the plugin in plugstack.conf
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
#include "spank/core/slurm/command_line.h"
#include "spank/core/slurm/node_addr.h"
#include "spank/hw/live/apply.h"
#include "spank/plugin/state.h"

struct mu_env;

/* messages.c. Print on the user's standard error, each line after "muster: NODE: ";
 * to be called in user_init and later. mu_info_lines prints text of several lines; in
 * the others a '?' replaces each control byte.
 */
void mu_info(const struct mu_state *st, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void mu_warn(const struct mu_state *st, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void mu_error(const struct mu_state *st, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void mu_info_lines(const struct mu_state *st, char *text);

/* settings.c. Reads the site file into *keys, for a partition and a node (NULL
 * unknown). A missing file at the default path counts as empty. Only root may change
 * the site file and the files that it names (spank/hw/io/sysfile.h).
 */
int mu_site_load(const struct mu_state *st, const char *partition, const char *host,
                 struct mu_site_keys *keys, struct mu_err *err);
/* The same for all partitions and nodes; the caller clears *site. */
int mu_site_read(const struct mu_state *st, struct mu_site *site, struct mu_err *err);

/* Merges options, site and defaults; sets every field of *opts. `taken` gets the names
 * of the user's keys that the site locks. Fails on a bad --muster text.
 */
int mu_settle(const struct mu_state *st, const struct mu_site_keys *site,
              struct mu_opts *opts, char *taken, size_t len, struct mu_err *err);

/* second_line.c. The nth line of plugstack.conf that loads the plugin is ignored. */
void mu_second_line_report(int nth);

/* srun.c. mu_srun_init runs before srun reads its environment. mu_srun_check checks the
 * value of --muster in srun, sbatch and salloc: -1 after an error message.
 */
void mu_srun_init(struct mu_state *st);
void mu_srun_inherited(const struct mu_state *st);
int mu_srun_check(const struct mu_state *st);

/* Will the plugin be on in a step with GPUs, where these keys apply? */
bool mu_srun_is_on(const struct mu_state *st, const struct mu_site_keys *site);
/* Options on srun's command line, and its environment, for mu_takeover_decide. */
void mu_srun_takeover_input(int argc, char *const *argv,
                            struct mu_takeover_input *input);
/* In sbatch and salloc: marks a job that asks for parts of GPUs. salloc exports nothing
 * of them; in a batch script Slurm sets SLURM_SHARDS_ON_NODE.
 */
#define MU_PARTS_VARIABLE "SLURM_MUSTER_PARTS"
void mu_srun_mark_parts(void);
/* Sets the variable that takes the request to slurmstepd; an empty one unsets it. */
void mu_srun_send_request(const struct mu_bind_request *request);

/* restart.c. Before everything else in srun: was it started anew? Then, after srun has
 * parsed its options or those of one component: starts it anew where that is needed,
 * and does not return.
 */
void mu_restart_init(struct mu_state *st);
void mu_restart_hook(struct mu_state *st);

/* JOB.STEP: this node's plugin carries out what srun took over (runtime/base/marker.h).
 */
#define MU_SERVED_VARIABLE "SLURM_MUSTER_SERVED"
/* rank0_node.c. In srun: sends the name of rank 0's node to the nodes, where it is not
 * the first of the step (argv: srun's command line).
 */
#define MU_RANK0_HOST_VARIABLE "SLURM_MUSTER_HEAD"
void mu_srun_send_rank0_host(int argc, char **argv);

/* stepd.c */
void mu_stepd_user_init(struct mu_state *st, spank_t sp);
void mu_stepd_task_exit(struct mu_state *st);
void mu_stepd_exit(struct mu_state *st);

/* inherited.c. Drop what the Muster of an outer step exported, where it is unchanged.
 * _own: from this process's: sbatch, salloc, or an srun that starts a job.
 * _job: from a batch script's, where sbatch had no plugin.
 * _step: from that of a step; step->set keeps the list of the names.
 */
void mu_inherited_drop_own(void);
void mu_inherited_drop_job(spank_t sp);
void mu_inherited_drop_step(spank_t sp);

/* step_plan.c. Fills st->node, st->alloc and st->plan. */
int mu_step_plan_make(struct mu_state *st, struct mu_err *err);

/* task_init.c. -1 after an error message: the task must not run. */
int mu_stepd_task_init(struct mu_state *st, spank_t sp);

/* items.c */
int mu_items_read(spank_t sp, struct mu_step *step, struct mu_err *err);
/* A variable of the step or task; NULL if it is not set or does not fit. _begin returns
 * the beginning of a value that does not fit.
 */
const char *mu_item_env(spank_t sp, const char *name, char *buf, size_t len);
const char *mu_item_env_begin(spank_t sp, const char *name, char *buf, size_t len);
/* TMPDIR of the step, buf; or /tmp where that is relative, which means
 * another folder here than at the step's end.
 */
const char *mu_folder_of(spank_t sp, char *buf, size_t len);
/* The variable as a number >= 0; `missing` if it is not set or not a number. */
int mu_item_number(spank_t sp, const char *name, int missing);

/* The user's value of a variable; NULL if there is none or Muster set it in an outer
 * step. arg is a struct mu_user_lookup.
 */
struct mu_user_lookup {
    struct mu_state *st;
    spank_t sp;
    char value[4096];
};
const char *mu_users_value(void *arg, const char *name);
/* master_addr.c. Warns where rank 0's address is unknown, or the user's MASTER_ADDR
 * is not rank 0's; the latter fails the step under strict. With verbose, prints whose
 * value the tasks get.
 */
void mu_master_check(struct mu_state *st, struct mu_user_lookup *lookup);

/* Variables for mu_takeover_decide; *input points into the buffer. */
struct mu_takeover_buffer {
    char text[11][MU_TAKEOVER_TEXT];
};
void mu_step_takeover_input(spank_t sp, struct mu_takeover_buffer *buffer,
                            struct mu_takeover_input *input);
extern const struct mu_takeover_slurm mu_this_slurm;

/* The online CPUs; empty where /sys does not report them. */
void mu_online_cpus(struct mu_cpuset *cpus);

/* step_cpus.c. The step's CPUs, out of the machine's. mu_step_cpus_disputed, called in
 * the task: did Slurm bind the task outside the step's CPUs?
 */
void mu_step_cpus(const struct mu_state *st, const struct mu_cpuset *machine,
                  struct mu_cpuset *cpus);
bool mu_step_cpus_disputed(const struct mu_state *st);
/* The CPUs that -c requests, where it counts `threads` of each core (0: all). */
int mu_cpus_of_request(const struct mu_node *node, int cpus_per_task, int threads);

/* gpu_order.c. Fills st->order (the node's GPU for each of Slurm's numbers) and
 * st->devices_confined; st->alloc.mig must be set. Does gres.conf name MIG slices?
 */
void mu_gres_find_order(struct mu_state *st);
bool mu_gres_has_slices(const struct mu_state *st);

/* gpus.c. Fills alloc->gpu_node from a step's SLURM_STEP_GPUS; a UUID in its
 * CUDA_VISIBLE_DEVICES replaces the number at that position.
 */
int mu_gpus_of_step(const char *numbers, const char *visible,
                    const struct mu_gres_order *order, struct mu_alloc *alloc,
                    const struct mu_node *node, struct mu_err *err);
/* The order in which the runtimes count the GPUs of the node; n is 0 where that is PCI
 * order.
 */
void mu_gpus_runtime_order(const struct mu_node *node, struct mu_gres_order *order);
/* Is the device file of every GPU of the driver known? */
bool mu_gpus_have_minors(const struct mu_node *node);
/* Can this process open the GPU (index into node.gpus)? 1 yes, 0 no, -1 there is no
 * device file to try.
 */
int mu_gpu_open(const struct mu_state *st, int gpu_node);
/* Is there a GPU's device file that this process may not open? */
bool mu_gpus_confined(const struct mu_state *st);
/* Number of the node's GPUs that this process can open and that belong neither to the
 * step nor to the job (SLURM_JOB_GPUS): 0 with ConstrainDevices.
 */
int mu_gpus_foreign(const struct mu_state *st);
/* Does the runtime count several devices for a GPU of the step (tiles of Intel's)? */
bool mu_gpus_tiled(const struct mu_state *st);
/* Has the step a MIG slice whose UUID, its only name, is unknown? */
bool mu_gpus_unnamed(const struct mu_state *st);
/* The value of CUDA_VISIBLE_DEVICES, or of the variable of another vendor's runtime, in
 * the numbers of that runtime; called in the task.
 */
int mu_gpus_visible(const struct mu_state *st, const int *gpu_node, int ngpus,
                    char *buf, size_t len, struct mu_err *err);

/* nccl_plugins.c. Adds the variables for the plugins that the step asks for and that
 * this task can open; first: of the node's tasks, which prints what is missing.
 */
int mu_nccl_plugins_add(const struct mu_state *st, bool first, struct mu_env *env,
                        struct mu_err *err);

/* taskenv.c. Writes the environment of one task, which is bound to `bound`; hidden:
 * Slurm narrowed the task, so that its CUDA_VISIBLE_DEVICES is kept.
 */
int mu_taskenv_write(const struct mu_state *st, spank_t sp, const struct mu_slot *slot,
                     const struct mu_bound *bound, bool hidden, struct mu_err *err);
/* Without a plan: writes rank and rendezvous variables; task: local rank. */
int mu_taskenv_ranks(const struct mu_state *st, spank_t sp, int task,
                     struct mu_err *err);
/* Without a plan, after the take-over: CUDA_VISIBLE_DEVICES names the step's GPUs, as
 * without any binding, so that a task never sees GPUs of other steps.
 */
void mu_taskenv_restore(const struct mu_state *st, spank_t sp);
/* Sets only CUDA_VISIBLE_DEVICES and SLURM_STEP_GPUS, as Slurm's binding would. */
int mu_taskenv_narrow(const struct mu_state *st, spank_t sp, const struct mu_slot *slot,
                      struct mu_err *err);

/* rendezvous.c. In srun on a node of the job (usually rank 0's): sends its kernel's
 * port settings to all nodes, so that all hash the same port even if theirs differ.
 */
#define MU_PORTS_VARIABLE "SLURM_MUSTER_PORTS"
#define MU_PORTS_TEXT 4096
void mu_srun_send_ports(void);
/* In each srun: sends 32 random bits to all nodes, which are hashed into the ports, so
 * that other users cannot compute them from the job's id.
 */
#define MU_SEED_VARIABLE "SLURM_MUSTER_SEED"
/* ... and the secret by which the ranks of the step prove themselves without PMIx. */
#define MU_TOKEN_VARIABLE "SLURM_MUSTER_TOKEN"
#define MU_TOKEN_DIGITS 64
void mu_srun_send_secrets(void);
/* What srun sent; false where it has no plugin, or an older one. */
bool mu_token_of_srun(spank_t sp, char token[MU_TOKEN_DIGITS + 1]);
/* Called as the user. First choose the range of hashed ports and the ports to skip;
 * then decide st->network, without NCCL's settings where there is no plan.
 */
void mu_choose_ports(struct mu_state *st, spank_t sp);
int mu_decide_network(struct mu_state *st, spank_t sp, struct mu_err *err);
/* MASTER_PORT: reserved by Slurm, or hashed. */
int mu_master_port(const struct mu_state *st);

/* container.c. Remember in user_init, settle in the task's process: if the task is in a
 * container, the image's settings are kept. With verbose, the node's first task prints
 * them.
 */
void mu_container_remember(struct mu_state *st);
void mu_container_settle(struct mu_state *st, spank_t sp, int task);

/* nodeaddr.c. The callback `node_addrs` of struct mu_network_request; arg is the
 * spank_t.
 */
void mu_node_addrs(void *arg, struct mu_node_addr *list, int n);

/* step_report.c. Once per node, after the plan. */
void mu_report(const struct mu_state *st);

/* other_steps.c. Called as the user, after the plan: prints which CPUs and GPUs of this
 * step other steps of the job use at this moment.
 */
void mu_other_steps_report(const struct mu_state *st);
/* NCCL_RAS_ADDR of the job's first other step that runs on a GPU of this one; false:
 * there is none. A tool that is attached with --overlap asks that step.
 */
bool mu_other_steps_ras(const struct mu_state *st, char *addr, size_t len);

/* leftovers.c. Once per step, after the role is decided: warns where the user's
 * environment gives all tasks the same rank.
 */
void mu_leftovers_report(struct mu_state *st, spank_t sp);

/* master_port.c. On rank 0's node: warns if another step or program uses the hashed
 * port; holds the claim until release.
 */
void mu_port_check(struct mu_state *st);
void mu_port_release(struct mu_state *st);

/* topofile.c. mu_topofile_prepare is the callback `topo` of struct mu_network_request,
 * called as the user; arg is a struct mu_topofile_request. Root calls
 * mu_topofile_remove, which undoes it with the user's rights, within 2 s.
 */
struct mu_topofile_request {
    struct mu_state *st;
    const char *tmpdir;
};
bool mu_topofile_prepare(void *arg, const char *platform, const char **file,
                         const char **reason);
void mu_topofile_remove(struct mu_state *st);
/* In the task's process: where it has another /tmp, makes a copy there or leaves
 * NCCL_TOPO_FILE out, with a line from the node's first task.
 */
void mu_topofile_settle(struct mu_state *st, spank_t sp, int task);

#endif
