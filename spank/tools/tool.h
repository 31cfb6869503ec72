/* SPDX-License-Identifier: BSD-3-Clause */
/* tool.h - shared by the commands of muster: exit statuses, messages, the machine */
#ifndef MU_TOOL_H
#define MU_TOOL_H

#include "runtime/base/err.h"
#include "spank/core/node/alloc.h"
#include "spank/core/node/node.h"
#include "spank/core/options/muster_option.h"
#include "spank/hw/machine/machine.h"

enum mu_exit {
    MU_EXIT_OK = 0,
    MU_EXIT_NOT_AS_ASKED = 1, /* planned with a warning; check: the file has errors */
    MU_EXIT_USAGE = 2,
    MU_EXIT_INPUT = 3, /* a file cannot be read or parsed */
};

/* The built-in commands; argv[0] is the command's name. Each returns an exit status. */
int mu_plan_main(int argc, char **argv);
int mu_topo_main(int argc, char **argv);
int mu_doctor_main(int argc, char **argv);
int mu_verify_main(int argc, char **argv);
int mu_run_main(int argc, char **argv);

/* Prints "muster COMMAND: sentence" on standard error; returns `status`. */
int mu_tool_fail(const char *command, int status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Prints that and "see muster COMMAND --help"; returns MU_EXIT_USAGE. */
int mu_tool_usage(const char *command, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Reports a bad option. c is getopt_long's result: '?' unknown, ':' the value is
 * missing (with an option string that begins with a colon, and opterr 0).
 */
int mu_tool_bad_option(const char *command, int c, char *const *argv);

/* Flushes standard output; a full disk or a closed pipe gives a message and
 * MU_EXIT_INPUT.
 */
int mu_tool_finish(const char *command, int status);

/* The options for what the step owns and requests; values point into argv. */
struct mu_ask {
    const char *topology, *cpus, *gpus, *mems, *tasks, *cpus_per_task, *gpu_bind, *opt;
};

/* getopt_long's values for them; MU_ASK_OPTIONS goes into the caller's table. */
enum {
    MU_ASK_TOPOLOGY = 256,
    MU_ASK_CPUS,
    MU_ASK_GPUS,
    MU_ASK_MEMS,
    MU_ASK_TASKS,
    MU_ASK_CPUS_PER_TASK,
    MU_ASK_GPU_BIND,
    MU_ASK_OPT,
    MU_ASK_END,
};
#define MU_ASK_OPTIONS                                                                 \
    { "topology", required_argument, NULL, MU_ASK_TOPOLOGY },                          \
        { "cpus", required_argument, NULL, MU_ASK_CPUS },                              \
        { "gpus", required_argument, NULL, MU_ASK_GPUS },                              \
        { "mems", required_argument, NULL, MU_ASK_MEMS },                              \
        { "tasks", required_argument, NULL, MU_ASK_TASKS },                            \
        { "cpus-per-task", required_argument, NULL, MU_ASK_CPUS_PER_TASK },            \
        { "gpu-bind", required_argument, NULL, MU_ASK_GPU_BIND },                      \
    {                                                                                  \
        "opt", required_argument, NULL, MU_ASK_OPT                                     \
    }

#define MU_ASK_HELP                                                                    \
    "  --topology FILE      a saved machine: hwloc XML, NCCL topology XML, or the "    \
    "text\n"                                                                           \
    "                       of `nvidia-smi topo -m` (default: this node)\n"            \
    "  --cpus LIST          CPUs that the step owns, as Linux numbers (default: "      \
    "all)\n"                                                                           \
    "  --gpus LIST          GPUs that it owns: indices in PCI order, bus ids or "      \
    "UUIDs,\n"                                                                         \
    "                       or `none` (default: all)\n"                                \
    "  --mems LIST          NUMA nodes whose memory it may use (default: all)\n"       \
    "  --tasks N            tasks on the node (default: one per GPU)\n"                \
    "  --cpus-per-task C    hardware threads that each task requests\n"                \
    "  --gpu-bind SPEC      as Slurm's --gpu-bind: closest, single:1, map_gpu:1,0, "   \
    "...\n"                                                                            \
    "  --opt OPTIONS        as srun's --muster: cpus=all,mem=strict, ...\n"

/* Stores one option's value; false when `val` is none of the above. */
bool mu_ask_option(struct mu_ask *ask, int val, const char *value);

/* Loads the machine of --topology, or this node as the plugin sees it: with the site's
 * topology= and the GPUs' locality of topology files. 0, or MU_EXIT_INPUT with a
 * message; *machine is to be cleared either way.
 */
int mu_ask_machine(const char *command, const struct mu_ask *ask,
                   struct mu_machine *machine);

/* Parses the values for the planner. 0, or MU_EXIT_USAGE with a message. */
int mu_ask_resolve(const char *command, const struct mu_ask *ask,
                   const struct mu_node *node, struct mu_alloc *alloc,
                   struct mu_opts *opts);

#endif
