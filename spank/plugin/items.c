/* SPDX-License-Identifier: BSD-3-Clause */
/* items.c - fills struct mu_step from SPANK items, the step's environment and cgroup */
#include <errno.h>
#include <sched.h>
#include <slurm/slurm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "runtime/base/parse.h"
#include "spank/core/env/task_env.h"
#include "spank/core/slurm/hostlist.h"
#include "spank/hw/io/sysfile.h"
#include "spank/plugin/plugin.h"

#define CGROUP_TEXT 65536

/* srun has the release of the headers of this build: Slurm loads no other build. */
const struct mu_takeover_slurm mu_this_slurm = {
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(23, 11, 0)
    .tres_bind = true,
#endif
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(23, 11, 4)
    .task_sharing = true,
#endif
};

const char *mu_item_env(spank_t sp, const char *name, char *buf, size_t len)
{
    return spank_getenv(sp, name, buf, (int)len) == ESPANK_SUCCESS ? buf : NULL;
}

const char *mu_folder_of(spank_t sp, char *buf, size_t len)
{
    const char *tmp = mu_item_env(sp, "TMPDIR", buf, len);

    return tmp && tmp[0] == '/' ? tmp : "/tmp";
}

const char *mu_item_env_begin(spank_t sp, const char *name, char *buf, size_t len)
{
    spank_err_t rc = spank_getenv(sp, name, buf, (int)len);

    if (rc != ESPANK_SUCCESS && rc != ESPANK_NOSPACE)
        return NULL;
    buf[len - 1] = '\0';
    return buf;
}

int mu_item_number(spank_t sp, const char *name, int missing)
{
    char text[32];
    long n;

    if (!mu_item_env(sp, name, text, sizeof text) ||
        mu_parse_int(name, text, 0, 1 << 30, &n, NULL) < 0)
        return missing;
    return (int)n;
}

const char *mu_users_value(void *arg, const char *name)
{
    struct mu_user_lookup *lookup = arg;
    /* Muster sets no value that does not fit. */
    const char *value =
        mu_item_env_begin(lookup->sp, name, lookup->value, sizeof lookup->value);

    return value && !mu_env_set_has(lookup->st->step.set, name, value) ? value : NULL;
}

void mu_step_takeover_input(spank_t sp, struct mu_takeover_buffer *buffer,
                            struct mu_takeover_input *in)
{
    const struct {
        const char *name, **value;
    } wanted[] = {
        { "SLURM_GPU_BIND", &in->env_gpu_bind },
        { "SLURM_TRES_BIND", &in->env_tres_bind },
        { "SLURM_GPUS_PER_TASK", &in->env_gpus_per_task },
        { "SLURM_TRES_PER_TASK", &in->env_tres_per_task },
        { "SLURM_NTASKS_PER_GPU", &in->env_ntasks_per_gpu },
        { "SLURM_GRES_FLAGS", &in->env_gres_flags },
        { "SLURM_CPU_BIND", &in->env_cpu_bind },
        { "SLURM_CPU_BIND_TYPE", &in->env_cpu_bind_type },
        { "SLURM_SHARDS_ON_NODE", &in->env_shards },
        { "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", &in->env_mps },
        { MU_TAKEOVER_VARIABLE, &in->env_request },
    };

    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
        *wanted[i].value =
            mu_item_env(sp, wanted[i].name, buffer->text[i], sizeof buffer->text[i]);
}

static void copy_env(spank_t sp, const char *name, char *buf, size_t len)
{
    if (!mu_item_env(sp, name, buf, len))
        buf[0] = '\0';
}

static int item_u32(spank_t sp, spank_item_t item, const char *what, uint32_t *out,
                    struct mu_err *err)
{
    spank_err_t rc = spank_get_item(sp, item, out);

    if (rc != ESPANK_SUCCESS)
        return mu_err_set(err, EIO, "Slurm does not report %s: %s", what,
                          spank_strerror(rc));
    return 0;
}

/* Under cgroup v2 slurmstepd runs unconfined in step_N/slurm; its tasks will run in the
 * sibling step_N/user, so that `file` is read there. Returns false for another layout.
 */
static bool set_of_v2(const char *file, struct mu_cpuset *set)
{
    static const char *const roots[] = { "/sys/fs/cgroup", "/sys/fs/cgroup/unified" };
    char *text = NULL, *line, *end, path[4200], *list = NULL;
    bool found = false;

    if (mu_sysfile_text("/proc/self/cgroup", CGROUP_TEXT, &text, NULL) < 0)
        return false;
    line = strncmp(text, "0::/", 4) == 0 ? text : strstr(text, "\n0::/");
    if (line) {
        line += *line == '\n';
        line[strcspn(line, "\n")] = '\0';
        end = strrchr(line, '/');
        if (strstr(line, "/step_") && strcmp(end, "/slurm") == 0) {
            *end = '\0';
            for (int i = 0; i < 2 && !found; i++) {
                snprintf(path, sizeof path, "%s%.3900s/user/%s", roots[i], line + 3,
                         file);
                found = mu_sysfile_text(path, CGROUP_TEXT, &list, NULL) == 0 &&
                        mu_cpuset_parse(list, set, NULL) == 0 && !mu_cpuset_empty(set);
                free(list);
                list = NULL;
            }
        }
    }
    free(text);
    return found;
}

/* A memory policy fails with NUMA nodes outside this set. Under cgroup v1 the step and
 * slurmstepd have the same cpuset.
 */
static void read_mems(struct mu_cpuset *mems)
{
    static const char name[] = "Mems_allowed_list:";
    char *text = NULL, *line;

    if (set_of_v2("cpuset.mems.effective", mems))
        return;
    if (mu_sysfile_text("/proc/self/status", CGROUP_TEXT, &text, NULL) < 0)
        return;
    line = strstr(text, name);
    if (line) {
        line += sizeof name - 1;
        line[strcspn(line, "\n")] = '\0';
        mu_cpuset_parse(line, mems, NULL);
    }
    free(text);
}

void mu_online_cpus(struct mu_cpuset *cpus)
{
    char *text = NULL;

    memset(cpus, 0, sizeof *cpus);
    if (mu_sysfile_text("/sys/devices/system/cpu/online", CGROUP_TEXT, &text, NULL) ==
        0)
        mu_cpuset_parse(text, cpus, NULL);
    free(text);
}

static void read_cpus(spank_t sp, struct mu_step *step)
{
    struct mu_cpuset online;
    char *cores = NULL;

    if (spank_get_item(sp, S_STEP_ALLOC_CORES, &cores) == ESPANK_SUCCESS && cores)
        mu_cpuset_parse(cores, &step->cores, NULL);

    if (!set_of_v2("cpuset.cpus.effective", &step->cpus))
        /* v1: the step has slurmstepd's cpuset */
        mu_cpuset_of_process(0, &step->cpus);
    mu_online_cpus(&online);
    step->confined = !mu_cpuset_inside(&online, &step->cpus);
}

static void read_launcher(spank_t sp, struct mu_step *step)
{
    char **argv = NULL;
    int argc = 0;

    if (spank_get_item(sp, S_JOB_ARGV, &argc, &argv) == ESPANK_SUCCESS && argv)
        step->launcher = mu_args_launcher(argc, argv, &step->launcher_nproc);
}

/* Reads the request that srun saved. Without one, Slurm set the binding variables. */
static void read_request(spank_t sp, struct mu_step *step)
{
    struct mu_takeover_change changes[MU_TAKEOVER_CHANGES];
    struct mu_takeover_buffer *buffer = calloc(1, sizeof *buffer);
    struct mu_takeover_input input = { 0 };
    int n;

    if (!buffer)
        return;
    mu_step_takeover_input(sp, buffer, &input);
    if (input.env_request &&
        mu_takeover_decode(input.env_request, &step->request, NULL) == 0) {
        step->taken_over = step->request.gpu_bind[0] && !step->request.slurm_binds;
    } else {
        mu_takeover_decide(&input, &mu_this_slurm, &step->request, changes, &n);
        step->request.slurm_binds = step->request.gpu_bind[0] != '\0';
        step->request.cpu_bind = false; /* unknown: slurmd rewrites it */
    }
    free(buffer);
}

/* Slurm sets SLURMD_NODENAME after user_init. Several slurmd of one machine share its
 * host name: then this node's name is read from the step's node list, by position. Rank
 * 0 runs on the first node, unless srun sent another.
 */
static void read_hosts(spank_t sp, struct mu_step *step)
{
    struct mu_hostlist hosts = { 0 };

    gethostname(step->host, sizeof step->host - 1);
    step->host[strcspn(step->host, ".")] = '\0';
    if (mu_hostlist_parse(step->nodelist, &hosts, NULL) == 0) {
        if (step->nodeid < hosts.n && mu_hostlist_find(&hosts, step->host) < 0)
            mu_copy(step->host, sizeof step->host, hosts.name[step->nodeid]);
        copy_env(sp, MU_RANK0_HOST_VARIABLE, step->rank0_host, sizeof step->rank0_host);
        if (mu_hostlist_find(&hosts, step->rank0_host) < 0)
            mu_copy(step->rank0_host, sizeof step->rank0_host, hosts.name[0]);
    }
    step->is_rank0_host = strcmp(step->host, step->rank0_host) == 0;
    mu_hostlist_clear(&hosts);
}

static void read_visible(spank_t sp, struct mu_step *step)
{
    static const char *const names[] = { "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES",
                                         "ZE_AFFINITY_MASK" };

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        step->visible_name = names[i];
        copy_env(sp, names[i], step->visible, sizeof step->visible);
        if (step->visible[0])
            return;
    }
}

/* In a heterogeneous step, SPANK items count tasks and nodes of one component; the
 * variables of srun count those of all components. --pty has no item: srun sets a
 * variable, and mu_srun_init removes one that it inherits.
 */
static void read_world(spank_t sp, struct mu_step *step)
{
    char text[32];

    step->world = mu_item_number(sp, "SLURM_STEP_NUM_TASKS", 0);
    if (step->world < step->ntasks)
        step->world = step->ntasks;
    step->world_nodes = mu_item_number(sp, "SLURM_STEP_NUM_NODES", 0);
    if (step->world_nodes < step->nnodes)
        step->world_nodes = step->nnodes;
    step->pty = mu_item_env(sp, "SLURM_PTY_PORT", text, sizeof text) != NULL;
}

/* gres/shard and gres/mps have no list of their own: Slurm sets these two. */
static void read_parts(spank_t sp, struct mu_step *step)
{
    static const char *const names[] = { "SLURM_SHARDS_ON_NODE",
                                         "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE" };
    char value[32];

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        step->parts |= mu_item_env(sp, names[i], value, sizeof value) && value[0];
}

/* The user's value; what Muster exported in an outer step does not count. */
static bool users_word(spank_t sp, const struct mu_step *step, const char *name,
                       char *buf, size_t len)
{
    return mu_item_env(sp, name, buf, len) && !mu_env_set_has(step->set, name, buf);
}

/* How the user's variables make the runtimes count the devices. */
static void read_device_orders(spank_t sp, struct mu_step *step)
{
    char word[64];

    step->cuda_order = users_word(sp, step, "CUDA_DEVICE_ORDER", word, sizeof word) &&
                       strcmp(word, "PCI_BUS_ID") != 0;
    step->ze_composite =
        users_word(sp, step, "ZE_FLAT_DEVICE_HIERARCHY", word, sizeof word) &&
        strcasecmp(word, "COMPOSITE") == 0;
}

int mu_items_read(spank_t sp, struct mu_step *step, struct mu_err *err)
{
    char hint[64];
    uint32_t ntasks, nlocal, nnodes, nodeid;

    /* First: where an item fails, its message is for the user of a step with GPUs. */
    copy_env(sp, "SLURM_STEP_GPUS", step->gpus, sizeof step->gpus);
    if (item_u32(sp, S_JOB_ID, "the job id", &step->job, err) < 0 ||
        item_u32(sp, S_JOB_STEPID, "the step id", &step->step, err) < 0 ||
        item_u32(sp, S_JOB_TOTAL_TASK_COUNT, "the number of tasks", &ntasks, err) < 0 ||
        item_u32(sp, S_JOB_LOCAL_TASK_COUNT, "the tasks of this node", &nlocal, err) <
            0 ||
        item_u32(sp, S_JOB_NNODES, "the number of nodes", &nnodes, err) < 0 ||
        item_u32(sp, S_JOB_NODEID, "the node's number", &nodeid, err) < 0)
        return -1;
    step->ntasks = (int)ntasks;
    step->nlocal = (int)nlocal;
    step->nnodes = (int)nnodes;
    step->nodeid = (int)nodeid;
    /* Each component of a heterogeneous job has another id. The variable has the first
     * one's everywhere; step numbers are unique within the whole job. */
    if (mu_item_number(sp, "SLURM_HET_SIZE", 0) > 0)
        step->job = (uint32_t)mu_item_number(sp, "SLURM_JOB_ID", (int)step->job);
    read_world(sp, step);
    step->cpus_per_task = mu_item_number(sp, "SLURM_CPUS_PER_TASK", 0);
    /* --threads-per-core (1 with --hint=nomultithread or compute_bound): the threads
     * that Slurm uses of each core, and that -c counts. */
    step->threads = mu_item_number(sp, "SLURM_THREADS_PER_CORE", 0);
    if (step->threads == 0)
        step->threads = mu_item_env(sp, "SLURM_HINT", hint, sizeof hint) &&
                        strcmp(hint, "nomultithread") == 0;
    copy_env(sp, "SLURM_STEP_NODELIST", step->nodelist, sizeof step->nodelist);
    read_hosts(sp, step);
    copy_env(sp, "SLURM_JOB_PARTITION", step->partition, sizeof step->partition);
    copy_env(sp, "SLURM_JOB_GPUS", step->job_gpus, sizeof step->job_gpus);
    read_visible(sp, step);
    read_parts(sp, step);
    if (!mu_item_env_begin(sp, "SLURM_MEM_BIND", step->mem_bind, sizeof step->mem_bind))
        step->mem_bind[0] = '\0';
    copy_env(sp, "MUSTER_SET", step->set, sizeof step->set);
    read_device_orders(sp, step);
    /* Only the first port is used. */
    if (!mu_item_env_begin(sp, "SLURM_STEP_RESV_PORTS", step->ports,
                           sizeof step->ports))
        step->ports[0] = '\0';
    read_cpus(sp, step);
    read_mems(&step->mems);
    read_launcher(sp, step);
    read_request(sp, step);
    return 0;
}
