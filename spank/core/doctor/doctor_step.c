/* SPDX-License-Identifier: BSD-3-Clause */
/* doctor_step.c - CPUs of the step, inherited bindings, launchers inside launchers */
#include "spank/core/doctor/doctor.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/marker.h"
#include "runtime/base/record.h"

#define AREA "step"

/* The first number of "8", "8(x2)" or "4,8"; -1: the variable is not set. */
static long env_number(const struct mu_facts *facts, const char *name)
{
    const char *text = mu_facts_env(facts, name);

    return text ? strtol(text, NULL, 10) : -1;
}

/* Hardware threads of the first core of the machine; 0: unknown. */
static int threads(const struct mu_facts *facts)
{
    return facts->node && facts->node->core_data && facts->node->ncores
               ? facts->node->cores[0].ncpus
               : 0;
}

static void check_threads(const struct mu_facts *facts, struct mu_findings *out)
{
    long c = env_number(facts, "SLURM_CPUS_PER_TASK");
    int t = threads(facts);
    long cores = t > 1 ? (c + t - 1) / t : c;

    if (c > 0 && t > 1)
        mu_findings_add(out, MU_HINT, AREA, "",
                        "-c %ld on a machine with %d threads per core is %ld core%s "
                        "per task: Slurm counts hardware threads",
                        c, t, cores, mu_plural(cores));
}

/* Entry `index` of "8(x2),4"; -1: there is none. */
static long entry(const char *list, long index)
{
    while (list && *list) {
        char *end;
        long value = strtol(list, &end, 10), times = 1;

        if (end == list)
            return -1;
        if (strncmp(end, "(x", 2) == 0)
            times = strtol(end + 2, &end, 10);
        if (index < times)
            return value;
        index -= times;
        list = end + strcspn(end, ",");
        list += *list == ',';
    }
    return -1;
}

/* Tasks of the examined step on this node: of another step of the job, else of this
 * one, else those that the job requested. -1: unknown.
 */
static long tasks_here(const struct mu_facts *facts)
{
    long node = env_number(facts, "SLURM_NODEID");
    long n = facts->command_tasks;

    if (n <= 0)
        n = entry(mu_facts_env(facts, "SLURM_STEP_TASKS_PER_NODE"),
                  node > 0 ? node : 0);
    if (n < 0 && !mu_facts_env(facts, "SLURM_PROCID"))
        n = entry(mu_facts_env(facts, "SLURM_TASKS_PER_NODE"), node > 0 ? node : 0);
    return n < 0 ? env_number(facts, "SLURM_NTASKS_PER_NODE") : n;
}

/* CPUs of the job on this node as Slurm counts them; 0: unknown. Without ConstrainCores
 * the cgroup has all CPUs of the machine, so Slurm's variables come first. Of nodes
 * with unequal numbers only the step's number is known.
 */
static int job_cpus(const struct mu_facts *facts)
{
    const char *list = mu_facts_env(facts, "SLURM_JOB_CPUS_PER_NODE");
    long on_node = env_number(facts, "SLURM_CPUS_ON_NODE");
    struct mu_cpuset machine = { 0 };

    if (list && !strchr(list, ',') && entry(list, 0) > 0)
        return (int)entry(list, 0);
    if (on_node > 0)
        return (int)on_node;
    if (facts->node)
        mu_node_cpus(facts->node, &machine);
    return mu_cpuset_inside(&machine, &facts->job_cpus) && facts->node
               ? 0
               : mu_cpuset_count(&facts->job_cpus);
}

/* Case 016: the task has one core, but its share of the job's CPUs is larger. */
static void check_one_cpu(const struct mu_facts *facts, struct mu_findings *out)
{
    int own = mu_cpuset_count(&facts->affinity), job = job_cpus(facts);
    long tasks = tasks_here(facts);
    int core = threads(facts) > 0 ? threads(facts) : 1;

    if (!mu_facts_env(facts, "SLURM_PROCID") || own < 1 || own > core ||
        job / (tasks > 0 ? tasks : 1) < 2 * own)
        return;
    mu_findings_add(
        out, MU_WARNING, AREA,
        "export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK in the job script, or "
        "give -c to srun: since Slurm 22.05 srun does not read the sbatch value",
        "this task may use %d CPU%s, but the job owns %d on this node", own,
        mu_plural(own), job);
}

/* Where ThreadsPerCore in slurm.conf is 1, Slurm counts cores, and a task has all
 * threads of them.
 */
static void check_confined(const struct mu_facts *facts, struct mu_findings *out)
{
    int own = mu_cpuset_count(&facts->affinity), job = job_cpus(facts);
    int core = threads(facts) > 0 ? threads(facts) : 1;

    if (mu_facts_env(facts, "SLURM_PROCID") && job > 0 && own > job * core)
        mu_findings_add(
            out, MU_WARNING, AREA,
            "set ConstrainCores=yes in cgroup.conf and TaskPlugin=task/cgroup,"
            "task/affinity in slurm.conf",
            "this task may run on %d CPUs, but its job owns %d on this node: it takes "
            "CPUs of other jobs",
            own, job);
}

/* A GPU needs a core for the process that feeds it. */
static void check_cores_for_gpus(const struct mu_facts *facts, struct mu_findings *out)
{
    int gpus = facts->gpus.slurm, cpus = job_cpus(facts), t = threads(facts);
    int cores = t > 1 ? (cpus + t - 1) / t : cpus;

    if (cpus > 0 && cores < gpus)
        mu_findings_add(out, MU_WARNING, AREA,
                        "request CPUs for each GPU (--cpus-per-gpu=8), or -c with one "
                        "task per GPU",
                        "the job owns %d CPU%s (%d core%s) for %d GPUs on this node: "
                        "their processes wait for each other",
                        cpus, mu_plural(cpus), cores, mu_plural(cores), gpus);
}

/* gres/shard and gres/mps are requests to share a GPU. */
static bool shares_on_purpose(const struct mu_facts *facts)
{
    return mu_facts_env(facts, "SLURM_SHARDS_ON_NODE") ||
           mu_facts_env(facts, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE") ||
           mu_facts_env(facts, "CUDA_MPS_PIPE_DIRECTORY");
}

static void check_tasks_for_gpus(const struct mu_facts *facts, struct mu_findings *out)
{
    int gpus = facts->gpus.slurm;
    long tasks = tasks_here(facts);

    if (gpus > 0 && tasks > gpus && !shares_on_purpose(facts))
        mu_findings_add(out, MU_WARNING, AREA,
                        "start one task per GPU (--ntasks-per-node), or request "
                        "gres/shard or share=yes (muster(7)) where sharing is meant",
                        "%ld tasks on this node have %d GPU%s: several processes use "
                        "one GPU, which NCCL before 2.30 refuses",
                        tasks, gpus, mu_plural(gpus));
}

static void check_inherited_bind(const struct mu_facts *facts, struct mu_findings *out)
{
    const char *list = mu_facts_env(facts, "SLURM_CPU_BIND_LIST");
    const char *bind = mu_facts_env(facts, "SLURM_CPU_BIND");
    char text[512] = "";

    if (mu_facts_env(facts, "SLURM_PROCID") || (!list && !bind))
        return;
    if (list && strncmp(list, "0x", 2) == 0 && !strchr(list, ','))
        mu_doctor_explain_mask(list, facts->node, text, sizeof text, NULL);
    mu_findings_add(out, MU_WARNING, AREA,
                    "unset SLURM_CPU_BIND SLURM_CPU_BIND_LIST SLURM_CPU_BIND_TYPE "
                    "SLURM_CPU_BIND_VERBOSE before sbatch or srun",
                    "this shell inherited the CPU binding of an outer step "
                    "(SLURM_CPU_BIND=%s%s%s); a job started from it may bind to CPUs "
                    "that the job does not own, and fail",
                    bind ? bind : list, text[0] ? "; " : "", text);
}

static void check_cpu_variables(const struct mu_facts *facts, struct mu_findings *out)
{
    const char *slurm = mu_facts_env(facts, "SLURM_CPUS_PER_TASK");
    const char *srun = mu_facts_env(facts, "SRUN_CPUS_PER_TASK");

    if (slurm && srun && strcmp(slurm, srun) != 0)
        mu_findings_add(out, MU_WARNING, AREA, "unset one of the two",
                        "SLURM_CPUS_PER_TASK=%s and SRUN_CPUS_PER_TASK=%s differ: srun "
                        "refuses to start",
                        slurm, srun);
}

/* Case 079. Pairs of variables that srun refuses together. sbatch and salloc set them
 * from options; one of a pair often is left by an outer job.
 */
static void check_exclusive(const struct mu_facts *facts, struct mu_findings *out)
{
    static const char *const pairs[][2] = {
        { "SLURM_NTASKS_PER_GPU", "SLURM_TRES_PER_TASK" },
        { "SLURM_NTASKS_PER_GPU", "SLURM_GPUS_PER_TASK" },
        { "SLURM_NTASKS_PER_GPU", "SLURM_GPUS_PER_SOCKET" },
        { "SLURM_NTASKS_PER_GPU", "SLURM_NTASKS_PER_NODE" },
        { "SLURM_MEM_PER_NODE", "SLURM_MEM_PER_CPU" },
        { "SLURM_MEM_PER_NODE", "SLURM_MEM_PER_GPU" },
        { "SLURM_MEM_PER_CPU", "SLURM_MEM_PER_GPU" },
    };

    /* Inside a step they describe the step. */
    if (mu_facts_env(facts, "SLURM_STEP_ID"))
        return;
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        const char *a = mu_facts_env(facts, pairs[i][0]);
        const char *b = mu_facts_env(facts, pairs[i][1]);

        if (a && b)
            mu_findings_add(
                out, MU_WARNING, AREA,
                "unset the one that you did not ask for, before srun; "
                "SLURM_TRES_PER_TASK=cpu=N only repeats SLURM_CPUS_PER_TASK",
                "%s=%s and %s=%s are both set: srun takes them for mutually "
                "exclusive requests and refuses to start",
                pairs[i][0], a, pairs[i][1], b);
    }
}

/* Compare the CPUs in MUSTER_PLAN with the affinity of this process. */
static void check_binding(const struct mu_facts *facts, struct mu_findings *out)
{
    const char *line = mu_facts_env(facts, "MUSTER_PLAN");
    char have[1024], want[1024];
    struct mu_record record;
    struct mu_err err = { 0 };

    if (!line)
        return;
    if (mu_record_decode(line, &record, &err) < 0) {
        mu_findings_add(out, MU_ERROR, AREA, "", "%s", err.text);
        return;
    }
    mu_cpuset_format(&facts->affinity, have, sizeof have);
    mu_cpuset_format(&record.cpus, want, sizeof want);
    if (mu_cpuset_empty(&record.cpus))
        mu_findings_add(out, MU_OK, AREA, "",
                        "this task runs on CPUs %s as Slurm bound it: Muster left its "
                        "CPUs alone",
                        have);
    else if (!mu_cpuset_equal(&record.cpus, &facts->affinity))
        mu_findings_add(
            out, MU_WARNING, AREA,
            "look for a TaskProlog, a wrapper or a program that changes the binding",
            "Muster placed this task on CPUs %s, but it runs on CPUs %s", want, have);
    else
        mu_findings_add(
            out, MU_OK, AREA, "",
            "this task runs on CPUs %s as Muster placed "
            "it%s%s",
            have,
            mu_facts_env(facts, "SLURM_CPU_BIND_LIST") ? "; Slurm's own mask was " : "",
            mu_facts_env(facts, "SLURM_CPU_BIND_LIST")
                ? mu_facts_env(facts, "SLURM_CPU_BIND_LIST")
                : "");
}

static void check_served(const struct mu_facts *facts, struct mu_findings *out)
{
    const struct mu_marker marker = { mu_facts_env(facts, "SLURM_MUSTER_REQUEST"),
                                      mu_facts_env(facts, "SLURM_MUSTER_SERVED"),
                                      mu_facts_env(facts, "MUSTER_SET"),
                                      mu_facts_env(facts, "SLURM_JOB_ID"),
                                      mu_facts_env(facts, "SLURM_STEP_ID") };
    const char *bind = mu_marker_unserved(&marker);

    if (bind)
        mu_findings_add(
            out, MU_ERROR, AREA,
            "run srun --muster=off; an administrator installs the plugin on this node, "
            "or writes installed = no for its partition in the submit host's "
            "muster.conf",
            "srun took --gpu-bind=%s over, but this node lacks the plugin that carries "
            "it out: each task sees all GPUs",
            bind);
}

static void check_launcher(const struct mu_facts *facts, struct mu_findings *out)
{
    static const char *const launchers[] = { "torchrun",
                                             "accelerate",
                                             "mpirun",
                                             "mpiexec",
                                             "torch.distributed.run",
                                             "torch.distributed.launch",
                                             NULL };
    long tasks = tasks_here(facts);
    const char *found = NULL;

    for (int i = 0; facts->command_line && launchers[i] && !found; i++)
        if (strstr(facts->command_line, launchers[i]))
            found = launchers[i];
    if (found && tasks > 1)
        mu_findings_add(
            out, MU_WARNING, AREA,
            "start one launcher per node (--ntasks-per-node=1), or start the "
            "program itself with srun and no launcher",
            "%ld copies of %s run on each node: each starts more processes (%ld x %ld "
            "= %ld if each uses all GPUs), and all need the same port",
            tasks, found, tasks, tasks, tasks * tasks);
}

/* The port is hashed for each step: a tool started elsewhere cannot guess it. */
static void show_ras(const struct mu_facts *facts, struct mu_findings *out)
{
    for (int i = 0; i < facts->nras; i++) {
        const char *addr = facts->ras[i].addr, *colon = strrchr(addr, ':');

        if (colon)
            mu_findings_add(out, MU_HINT, AREA, "",
                            "NCCL's RAS of step %s answers at %s on this node: run "
                            "ncclras -h %.*s -p %s",
                            facts->ras[i].step, addr, (int)(colon - addr), addr,
                            colon + 1);
    }
}

void mu_doctor_step(const struct mu_facts *facts, struct mu_findings *out)
{
    check_threads(facts, out);
    check_one_cpu(facts, out);
    check_confined(facts, out);
    check_cores_for_gpus(facts, out);
    check_tasks_for_gpus(facts, out);
    check_inherited_bind(facts, out);
    check_cpu_variables(facts, out);
    check_exclusive(facts, out);
    check_binding(facts, out);
    check_served(facts, out);
    check_launcher(facts, out);
    show_ras(facts, out);
}
