/* SPDX-License-Identifier: BSD-3-Clause */
/* ask.c - turns --topology, --cpus, --gpus, --tasks, ... of plan and topo into planner
 * input
 */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "runtime/base/parse.h"
#include "spank/hw/load/locality.h"
#include "spank/hw/io/sysfile.h"
#include "spank/tools/doctor_facts.h"
#include "spank/tools/tool.h"

extern char **environ;

bool mu_ask_option(struct mu_ask *ask, int val, const char *value)
{
    const char **const slot[] = {
        &ask->topology, &ask->cpus,          &ask->gpus,     &ask->mems,
        &ask->tasks,    &ask->cpus_per_task, &ask->gpu_bind, &ask->opt,
    };

    if (val < MU_ASK_TOPOLOGY || val >= MU_ASK_END)
        return false;
    *slot[val - MU_ASK_TOPOLOGY] = value;
    return true;
}

static void read_site(struct mu_site_keys *keys, char *path, size_t len)
{
    struct mu_doctor_input *in = calloc(1, sizeof *in);

    memset(keys, 0, sizeof *keys);
    if (!in)
        return;
    in->facts.env = environ;
    mu_doctor_find_site(in);
    mu_doctor_site_keys(in, keys);
    mu_copy(path, len, in->site_path);
    mu_doctor_release(in);
    free(in);
}

/* The machine that the plugin would plan with on this node: the site's topology=. */
static int load_machine(const char *command, const char *topology,
                        const struct mu_site_keys *keys, const char *site,
                        struct mu_machine *machine)
{
    struct mu_err err = { 0 };
    const char *own = keys->topology;
    int rc;

    if (topology)
        rc = mu_machine_load_file(topology, machine, &err);
    else if (!own[0])
        rc = mu_machine_load_live(machine, &err);
    else
        rc = mu_check_owner(own, &err) < 0 ? -1
                                           : mu_machine_load_site(own, machine, &err);
    if (rc < 0)
        return mu_tool_fail(command, MU_EXIT_INPUT, "%s", err.text);
    if (own[0] && !topology)
        mu_tool_fail(command, MU_EXIT_OK, "this node is %s, topology= in %s", own,
                     site);
    return MU_EXIT_OK;
}

/* As the plugin does it (note: topofile). An option is before the site's key. */
static void complete(const char *command, const struct mu_ask *ask,
                     const struct mu_site_keys *keys, struct mu_node *node)
{
    bool live = strcmp(node->source, "this node") == 0 && !getenv("HWLOC_XMLFILE") &&
                !getenv("HWLOC_SYNTHETIC");
    const struct mu_opts *opts = &keys->opts;
    struct mu_opts own = { 0 };
    struct mu_err why = { 0 };
    char file[4200];

    /* mu_ask_resolve reports bad options */
    if (ask->opt && mu_opts_parse(ask->opt, &own, NULL) == 0 &&
        own.topo != MU_TOPO_UNSET)
        opts = &own;
    mu_locality_complete(node, live ? mu_sysfile_root() : NULL,
                         opts->topo == MU_TOPO_FILE ? opts->topo_file : NULL, file,
                         sizeof file, &why);
    if (why.text[0])
        mu_tool_fail(command, MU_EXIT_OK, "%s", why.text);
    else if (own.topo == MU_TOPO_FILE && !file[0])
        mu_tool_fail(command, MU_EXIT_OK, "warning: topo=%s is not read here: %s %s",
                     own.topo_file, ask->topology ? ask->topology : "this node",
                     node->ngpus > 0 ? "gives the place of each GPU" : "has no GPU");
}

int mu_ask_machine(const char *command, const struct mu_ask *ask,
                   struct mu_machine *machine)
{
    struct mu_site_keys *keys = calloc(1, sizeof *keys);
    char site[512] = "";
    int rc = MU_EXIT_INPUT;

    memset(machine, 0, sizeof *machine);
    if (!keys)
        return mu_tool_fail(command, rc, "out of memory");
    /* A saved machine is no node of this site. */
    if (!ask->topology)
        read_site(keys, site, sizeof site);
    rc = load_machine(command, ask->topology, keys, site, machine);
    if (rc == MU_EXIT_OK)
        complete(command, ask, keys, &machine->node);
    free(keys);
    return rc;
}

static int resolve_cpus(const char *command, const char *list,
                        const struct mu_node *node, struct mu_alloc *alloc)
{
    struct mu_cpuset machine, extra;
    struct mu_err err = { 0 };
    char text[256];

    mu_node_cpus(node, &machine);
    alloc->cpus = machine;
    if (!list)
        return MU_EXIT_OK;
    memset(&alloc->cpus, 0, sizeof alloc->cpus);
    if (mu_cpuset_parse(list, &alloc->cpus, &err) < 0)
        return mu_tool_usage(command, "--cpus: %s", err.text);
    if (mu_cpuset_empty(&alloc->cpus))
        return mu_tool_usage(command, "--cpus: the list is empty");
    extra = alloc->cpus;
    mu_cpuset_andnot(&extra, &machine);
    if (mu_cpuset_empty(&extra))
        return MU_EXIT_OK;
    mu_cpuset_format(&extra, text, sizeof text);
    return mu_tool_usage(
        command, "--cpus: the machine has no CPU %s, or it may not be used", text);
}

static int resolve_mems(const char *command, const char *list,
                        const struct mu_node *node, struct mu_alloc *alloc)
{
    struct mu_err err = { 0 };

    if (!list)
        return MU_EXIT_OK;
    if (mu_cpuset_parse(list, &alloc->mems, &err) < 0)
        return mu_tool_usage(command, "--mems: %s", err.text);
    for (int i = 0; i < node->nnumas; i++)
        if (mu_cpuset_has(&alloc->mems, node->numas[i].os_index))
            return MU_EXIT_OK;
    return mu_tool_usage(command, "--mems: the machine has no NUMA node %s", list);
}

/* A bus id selects all devices of its function; BUSID/K, a UUID or an index one. */
static int add_gpu(const char *command, const char *word, const struct mu_node *node,
                   struct mu_cpuset *out)
{
    long first, last;
    char copy[MU_NAME_LEN], *dash;
    int found;

    mu_copy(copy, sizeof copy, word);
    dash = strchr(copy, '-');
    if (dash)
        *dash++ = '\0';
    if (mu_parse_int("GPU", copy, 0, 99999, &first, NULL) == 0 &&
        (!dash || mu_parse_int("GPU", dash, 0, 99999, &last, NULL) == 0)) {
        last = dash ? last : first;
        if (last >= node->ngpus || first > last)
            return mu_tool_usage(command,
                                 "--gpus: there is no GPU %s; the machine has %d", word,
                                 node->ngpus);
        mu_cpuset_add_range(out, (int)first, (int)last);
        return MU_EXIT_OK;
    }
    found = mu_node_find_gpu(node, word);
    if (node->ngpus == 0)
        return mu_tool_usage(
            command, "--gpus: there is no GPU '%s'; the machine has none", word);
    if (found < 0)
        return mu_tool_usage(
            command,
            "--gpus: there is no GPU '%s'; name it by its index in PCI "
            "order (0..%d), PCI bus id or UUID",
            word, node->ngpus - 1);
    mu_cpuset_add(out, found);
    if (strcasecmp(word, node->gpus[found].label) == 0 ||
        strcasecmp(word, node->gpus[found].uuid) == 0)
        return MU_EXIT_OK;
    for (int i = found + 1; i < node->ngpus; i++)
        if (strcmp(node->gpus[i].busid, node->gpus[found].busid) == 0)
            mu_cpuset_add(out, i);
    return MU_EXIT_OK;
}

static int resolve_gpus(const char *command, const char *list,
                        const struct mu_node *node, struct mu_alloc *alloc)
{
    struct mu_cpuset set = { { 0 } };
    char *copy, *rest, *word;
    int rc = MU_EXIT_OK;

    if (!list) {
        mu_cpuset_add_range(&set, 0, node->ngpus - 1);
    } else if (strcmp(list, "none") != 0 && list[0] != '\0') {
        copy = rest = strdup(list);
        while (copy && rc == MU_EXIT_OK && (word = mu_parse_next(&rest, ',')))
            rc = add_gpu(command, word, node, &set);
        free(copy);
    }
    for (int i = -1; (i = mu_cpuset_next(&set, i)) >= 0 && alloc->ngpus < MU_GPUS_MAX;)
        alloc->gpu_node[alloc->ngpus++] = i;
    return rc;
}

static int number(const char *command, const char *name, const char *text, long *out)
{
    struct mu_err err = { 0 };

    if (text && mu_parse_int(name, text, 1, MU_CPUSET_MAX, out, &err) < 0)
        return mu_tool_usage(command, "%s", err.text);
    return MU_EXIT_OK;
}

int mu_ask_resolve(const char *command, const struct mu_ask *ask,
                   const struct mu_node *node, struct mu_alloc *alloc,
                   struct mu_opts *opts)
{
    struct mu_opts defaults;
    struct mu_err err = { 0 };
    long tasks, per_task = 0;

    memset(alloc, 0, sizeof *alloc);
    memset(opts, 0, sizeof *opts);
    if (resolve_cpus(command, ask->cpus, node, alloc) != MU_EXIT_OK ||
        resolve_gpus(command, ask->gpus, node, alloc) != MU_EXIT_OK ||
        resolve_mems(command, ask->mems, node, alloc) != MU_EXIT_OK)
        return MU_EXIT_USAGE;
    tasks = alloc->ngpus > 0 ? alloc->ngpus : 1;
    if (number(command, "--tasks", ask->tasks, &tasks) != MU_EXIT_OK ||
        number(command, "--cpus-per-task", ask->cpus_per_task, &per_task) != MU_EXIT_OK)
        return MU_EXIT_USAGE;
    alloc->ntasks = (int)tasks;
    alloc->cpus_per_task = (int)per_task;
    if (ask->opt && mu_opts_parse(ask->opt, opts, &err) < 0)
        return mu_tool_usage(command, "--opt: %s", err.text);
    if (ask->gpu_bind && mu_opts_set(opts, "gpu-bind", ask->gpu_bind, &err) < 0)
        return mu_tool_usage(command, "--%s", err.text); /* "gpu-bind: ..." */
    mu_opts_defaults(&defaults);
    mu_opts_merge(opts, &defaults);
    return MU_EXIT_OK;
}
