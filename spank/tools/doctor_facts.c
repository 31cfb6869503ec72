/* SPDX-License-Identifier: BSD-3-Clause */
/* doctor_facts.c - reads the machine, the step, Slurm and NCCL, each within a limit */
#include "spank/tools/doctor_facts.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "runtime/base/cpuset.h"
#include "runtime/base/parse.h"
#include "spank/core/slurm/hostlist.h"
#include "spank/hw/io/mig.h"
#include "spank/hw/live/nccl_conf_files.h"
#include "spank/hw/live/nccl_libraries.h"
#include "spank/hw/live/net_live.h"
#include "spank/hw/load/locality.h"
#include "spank/hw/load/node_load.h"
#include "spank/hw/live/nvml.h"
#include "spank/hw/live/pci_links.h"
#include "spank/hw/live/platform_live.h"
#include "spank/hw/io/sysfile.h"
#include "spank/hw/machine/sysfs.h"
#include "spank/tools/run.h"

#define NVML_DEVICES 256
#define PEERS_MAX 64 /* names that are resolved for a hint */

extern char **environ;

static void gather_cpus(struct mu_facts *facts)
{
    char cgroup[4096], list[4096], *line, *rest = cgroup;

    mu_cpuset_of_process(0, &facts->affinity);
    if (mu_sysfile_read("", cgroup, sizeof cgroup, "/proc/self/cgroup") < 0)
        return;
    while ((line = mu_parse_next(&rest, '\n'))) {
        char *path = strchr(line, '/');

        if (!path)
            continue;
        if (mu_sysfile_read("", list, sizeof list,
                            "/sys/fs/cgroup%s/cpuset.cpus.effective", path) > 0 ||
            (strstr(line, "cpuset") &&
             mu_sysfile_read("", list, sizeof list,
                             "/sys/fs/cgroup/cpuset%s/cpuset.cpus", path) > 0))
            if (mu_cpuset_parse(list, &facts->job_cpus, NULL) == 0)
                return;
    }
}

/* Number of items in "0,1,2", -1 for NULL. */
static int count_items(const char *list)
{
    int n = list && list[0] ? 1 : 0;

    for (const char *p = list; p && *p; p++)
        n += *p == ',';
    return list ? n : -1;
}

/* How many devices a process can use behind /dev/nvidiaN: one, or its MIG slices. */
static int openable_at(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), slices;
    /* EPERM: the device cgroup refuses; ENXIO and others: only the driver lacks */
    bool open = fd >= 0 || (errno != EPERM && errno != EACCES);

    if (fd >= 0)
        close(fd);
    slices = mu_mig_openable(mu_sysfile_root(), atoi(strrchr(path, 'a') + 1));
    return !open ? 0 : slices >= 0 ? slices : 1;
}

static void gather_gpus(struct mu_facts *facts)
{
    struct mu_gpu_counts *c = &facts->gpus;
    const char *on_node = mu_facts_env(facts, "SLURM_GPUS_ON_NODE");
    const char *visible = mu_facts_env(facts, "CUDA_VISIBLE_DEVICES");
    char pattern[4200];
    glob_t found;

    *c =
        (struct mu_gpu_counts){ -1, -1, -1, -1, facts->node ? facts->node->ngpus : -1 };
    c->slurm =
        on_node ? atoi(on_node) : count_items(mu_facts_env(facts, "SLURM_STEP_GPUS"));
    c->visible = count_items(visible);
    snprintf(pattern, sizeof pattern, "%s/dev/nvidia[0-9]*", mu_sysfile_root());
    if (glob(pattern, 0, NULL, &found) == 0) {
        c->openable = 0;
        for (size_t i = 0; i < found.gl_pathc; i++)
            c->openable += openable_at(found.gl_pathv[i]);
        globfree(&found);
    }
}

/* Case 023: the GPUs that NVIDIA's library shows to this process; of a GPU that is cut,
 * the MIG slices.
 */
static void ask_nvml(struct mu_facts *facts)
{
    struct mu_nvml_device *list = calloc(NVML_DEVICES, sizeof *list);
    int n = list ? mu_nvml_list(NULL, 10, list, NVML_DEVICES) : -1;
    bool cut = false;

    if (n >= 0)
        facts->gpus.nvml = 0;
    for (int i = 0; i < n; i++)
        facts->gpus.nvml += list[i].mig || i + 1 == n || !list[i + 1].mig;
    for (int i = 0; i < n; i++)
        cut |= list[i].mig;
    /* A container may lack the driver's list of the slices that can be opened. */
    if (cut && mu_mig_cut(mu_sysfile_root()) <= 0)
        facts->gpus.openable = -1;
    free(list);
}

/* Case 078: a container may have the device in /sys and not in /dev. */
static void gather_closed_verbs(struct mu_facts *facts)
{
    for (int i = 0; i < facts->node->nnics && facts->nclosed < MU_CLOSED_MAX; i++) {
        const struct mu_nic *nic = &facts->node->nics[i];
        struct mu_closed_verbs *c = &facts->closed[facts->nclosed];

        if (!nic->active || !nic->name[0] || !mu_nic_has_verbs(nic))
            continue;
        c->error =
            mu_sysfs_uverbs(mu_sysfile_root(), nic->name, c->file, sizeof c->file);
        if (c->error <= 0)
            continue;
        mu_copy(c->nic, sizeof c->nic, nic->name);
        if (c->file[0])
            mu_copy(c->why, sizeof c->why, strerror(c->error));
        facts->nclosed++;
    }
}

static uint64_t limit_of(int resource)
{
    struct rlimit l;

    return getrlimit((__rlimit_resource_t)resource, &l) < 0 ||
                   l.rlim_cur == RLIM_INFINITY
               ? MU_UNLIMITED
               : l.rlim_cur;
}

static void gather_limits(struct mu_limits *limits)
{
    struct statvfs fs;

    *limits = (struct mu_limits){ .known = true,
                                  .memlock = limit_of(RLIMIT_MEMLOCK),
                                  .addresses = limit_of(RLIMIT_AS),
                                  .shm_free = MU_UNLIMITED };
    if (statvfs("/dev/shm", &fs) == 0)
        limits->shm_free = (uint64_t)fs.f_bavail * fs.f_frsize;
}

static void gather_peers(struct mu_doctor_input *in)
{
    const char *list = mu_facts_env(&in->facts, "SLURM_STEP_NODELIST");
    const char *own = mu_facts_env(&in->facts, "SLURMD_NODENAME");
    struct mu_hostlist hosts = { 0 };
    int n = 0;

    if (!list || !own || mu_hostlist_parse(list, &hosts, NULL) < 0)
        return;
    in->peers = calloc(PEERS_MAX, sizeof *in->peers);
    for (int i = 0; in->peers && i < hosts.n && n < PEERS_MAX; i++)
        if (strcmp(hosts.name[i], own) != 0)
            mu_copy(in->peers[n++].host, sizeof in->peers[0].host, hosts.name[i]);
    mu_hostlist_clear(&hosts);
    if (n)
        mu_net_resolve(in->peers, n, 5, NULL);
    in->facts.peers = in->peers;
    in->facts.npeers = n;
}

/* "slurm 22.05.8" */
static void gather_slurm_version(struct mu_facts *facts)
{
    static const char *const programs[] = { "srun", "slurmd", "sinfo", NULL };
    char text[128];

    for (int i = 0; programs[i] && !facts->slurm_version[0]; i++) {
        char *argv[] = { (char *)programs[i], (char *)"-V", NULL };
        char *at;

        if (mu_run(argv, 5, text, sizeof text) != 0 || !(at = strchr(text, ' ')))
            continue;
        at[1 + strcspn(at + 1, "\n ")] = '\0';
        mu_copy(facts->slurm_version, sizeof facts->slurm_version, at + 1);
    }
}

/* The file that SLURM_CONF names, else /etc/slurm/slurm.conf. Slurm looks for its other
 * files in the same folder.
 */
static const char *conf_path(const struct mu_doctor_input *in)
{
    const char *named = mu_facts_env(&in->facts, "SLURM_CONF");

    return named && named[0] ? named : "/etc/slurm/slurm.conf";
}

static void conf_dir(const struct mu_doctor_input *in, char *dir, size_t len)
{
    const char *path = conf_path(in), *slash = strrchr(path, '/');

    snprintf(dir, len, "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
}

static void read_slurm_conf(struct mu_doctor_input *in)
{
    const char *named = mu_facts_env(&in->facts, "SLURM_CONF");

    mu_slurm_files_load(conf_path(in), &in->slurm);
    if (named && named[0] && !in->slurm.file[0].text)
        mu_copy(in->facts.conf_missing, sizeof in->facts.conf_missing, named);
}

/* Slurm's plugin names the PMIx library that it loads; up to 22.05 without version. */
static void check_pmix_library(struct mu_facts *facts, const char *plugin)
{
    int fd = open(plugin, O_RDONLY | O_CLOEXEC);
    struct stat st;
    char *text = NULL;
    const char *so = "libpmix.so";
    void *lib;

    if (fd >= 0 && fstat(fd, &st) == 0 && st.st_size < 1 << 24 &&
        (text = malloc((size_t)st.st_size)) &&
        read(fd, text, (size_t)st.st_size) == st.st_size &&
        memmem(text, (size_t)st.st_size, "libpmix.so.2", 12))
        so = "libpmix.so.2";
    free(text);
    if (fd >= 0)
        close(fd);
    lib = dlopen(so, RTLD_LAZY | RTLD_LOCAL);
    if (lib)
        dlclose(lib);
    else
        mu_copy(facts->pmix_missing, sizeof facts->pmix_missing, so);
}

static void gather_pmix(struct mu_doctor_input *in)
{
    char path[512];

    in->facts.pmix_plugin = mu_doctor_plugin_dir(in, "mpi_pmix*.so", path, sizeof path);
    if (in->facts.pmix_plugin)
        check_pmix_library(&in->facts, path);
}

void mu_doctor_find_site(struct mu_doctor_input *in)
{
    char dir[4096], path[4200];

    read_slurm_conf(in);
    conf_dir(in, dir, sizeof dir);
    if (!mu_doctor_slurm_key(&in->slurm, "PlugStackConfig", path, sizeof path))
        snprintf(path, sizeof path, "%s/plugstack.conf", dir);
    mu_doctor_plugstack(in, path);
}

static int gather_slurm(struct mu_doctor_input *in, const char *gres_conf,
                        struct mu_err *err)
{
    struct mu_facts *facts = &in->facts;
    char dir[4096], path[4200];

    gather_slurm_version(facts);
    mu_doctor_find_site(in);
    mu_doctor_plugin(in);
    mu_doctor_names(in);
    gather_pmix(in);
    conf_dir(in, dir, sizeof dir);
    snprintf(path, sizeof path, "%s/gres.conf", dir);
    mu_slurm_files_load(gres_conf ? gres_conf : path, &in->gres);
    if (gres_conf && (in->gres.n == 0 || !in->gres.file[0].text))
        return mu_err_set(err, errno, "%s: %s", gres_conf, strerror(errno));
    if (in->gres.n > 0 && in->gres.file[0].text)
        facts->gres = &in->gres;
    return 0;
}

/* Slurm's name of this node; unknown for a saved machine or a given file (foreign). */
static void gather_host(struct mu_doctor_input *in, bool foreign)
{
    struct mu_facts *facts = &in->facts;

    facts->host = mu_facts_env(facts, "SLURMD_NODENAME");
    if (facts->host || foreign || gethostname(in->host, sizeof in->host - 1) < 0)
        return;
    in->host[strcspn(in->host, ".")] = '\0';
    facts->host = in->host;
}

/* As the plugin does it: GPUs of unknown place get that of a topology file. */
static void complete_node(struct mu_doctor_input *in, const char *topology)
{
    struct mu_site_keys *keys = calloc(1, sizeof *keys);
    struct mu_err why = { 0 };
    char file[4200];

    if (!keys)
        return;
    mu_doctor_site_keys(in, keys);
    mu_locality_complete(&in->node, topology ? NULL : mu_sysfile_root(),
                         keys->opts.topo == MU_TOPO_FILE ? keys->opts.topo_file : NULL,
                         file, sizeof file, &why);
    free(keys);
}

int mu_doctor_gather(const char *topology, const char *gres_conf,
                     struct mu_doctor_input *out, struct mu_err *err)
{
    struct mu_facts *facts = &out->facts;

    *out = (struct mu_doctor_input){ 0 };
    facts->env = environ;
    gather_cpus(facts);
    gather_host(out, topology || gres_conf);
    if (topology) {
        if (mu_node_load_file(topology, &out->node, err) < 0)
            return -1;
        facts->node = &out->node;
    } else if (mu_node_load_live(&out->node, NULL) == 0) {
        facts->node = &out->node;
    }
    if (mu_net_load_live(&out->net, NULL) == 0)
        facts->net = &out->net;
    if (mu_conf_load_live(mu_facts_env(facts, "NCCL_CONF_FILE"),
                          mu_facts_env(facts, "HOME"), "/etc/nccl.conf", &out->conf,
                          NULL) == 0)
        facts->nccl_conf = &out->conf;
    gather_gpus(facts);
    if (!topology) {
        ask_nvml(facts);
        gather_limits(&facts->limits);
        mu_doctor_shm(&facts->stale);
        facts->gpudirect = mu_platform_gpudirect(mu_sysfile_root());
    }
    gather_peers(out);
    facts->nccl = out->library;
    facts->nnccl =
        mu_nccl_libraries(mu_facts_env(facts, "LD_LIBRARY_PATH"), out->library,
                          sizeof out->library / sizeof out->library[0]);
    mu_doctor_tasks(out);
    if (facts->node && !topology)
        gather_closed_verbs(facts);
    if (facts->node && !topology)
        mu_pci_links_load("", facts->node, &out->links, &facts->nlinks, &out->acs,
                          &facts->nacs, NULL);
    facts->link = out->links;
    facts->acs = out->acs;
    facts->iommu = access("/sys/kernel/iommu_groups/0", F_OK) == 0;
    if (gather_slurm(out, gres_conf, err) < 0)
        return -1;
    if (facts->node)
        complete_node(out, topology);
    return 0;
}

void mu_doctor_release(struct mu_doctor_input *input)
{
    mu_node_clear(&input->node);
    mu_net_clear(&input->net);
    mu_conf_clear(&input->conf);
    free(input->peers);
    free(input->links);
    free(input->acs);
    mu_slurm_files_clear(&input->gres);
    mu_slurm_files_clear(&input->slurm);
}
