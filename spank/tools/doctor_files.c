/* SPDX-License-Identifier: BSD-3-Clause */
/* doctor_files.c - checks each topology or graph file that NCCL would read here against
 * the machine (case 039). The environment, nccl.conf and the site name such files;
 * nvidia-topologyd writes one.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/parse.h"
#include "spank/core/options/muster_conf.h"
#include "spank/hw/load/locality.h"
#include "spank/hw/machine/machine.h"
#include "spank/hw/io/sysfile.h"
#include "spank/hw/io/xml.h"
#include "spank/tools/doctor_facts.h"

#define AREA "platform"
/* Errors and warnings printed for a file; the rest, and hints, are only counted. */
#define SHOWN 5

/* The file under examination. */
struct exam {
    const char *path;
    char from[640]; /* where it is named: "NCCL_TOPO_FILE, /etc/nccl.conf line 3" */
    struct mu_findings *out;
    int shown, left;
};

static void add_finding(void *arg, const struct mu_nccl_finding *f)
{
    struct exam *e = arg;

    if (f->level == MU_NCCL_HINT || e->shown++ >= SHOWN) {
        e->left++;
        return;
    }
    mu_findings_add(
        e->out, f->level == MU_NCCL_ERROR ? MU_ERROR : MU_WARNING, AREA,
        "correct or remove the file: NCCL finds the paths of a real machine "
        "without it",
        "%s line %d: %s (%s)", e->path, f->line, f->text, e->from);
}

/* Case 039: a graph numbers the GPUs from 0 to n - 1 of the machine that wrote it. */
static void check_graph(struct exam *e, const char *text, size_t len,
                        const struct mu_node *node)
{
    struct mu_xml_doc doc = { 0 };
    struct mu_err err = { 0 };
    struct mu_cpuset gpus = { { 0 } };
    char dev[32];
    int count;
    long n;

    if (mu_xml_doc_parse(e->path, text, len, &doc, &err) < 0) {
        mu_findings_add(e->out, MU_ERROR, AREA, "remove the file", "%s (%s)", err.text,
                        e->from);
        goto out;
    }
    for (int i = 0; i < doc.nelems; i++)
        if (mu_xml_elem_is(&doc, i, "gpu") &&
            mu_xml_elem_attr(&doc, i, "dev", dev, sizeof dev) &&
            mu_parse_int("dev", dev, 0, MU_CPUSET_MAX - 1, &n, NULL) == 0)
            mu_cpuset_add(&gpus, (int)n);
    count = mu_cpuset_count(&gpus);
    if (node && count != node->ngpus)
        mu_findings_add(e->out, MU_ERROR, AREA,
                        "remove it on machines of another size: NCCL fails with \"dev "
                        "not found\"",
                        "%s is a graph of %d GPU%s, this machine has %d (%s)", e->path,
                        count, mu_plural(count), node->ngpus, e->from);
    else
        mu_findings_add(e->out, MU_OK, AREA, "", "%s is a graph of %d GPU%s (%s)",
                        e->path, count, mu_plural(count), e->from);
out:
    mu_xml_doc_clear(&doc);
}

static void check_topology(struct exam *e, const char *text, size_t len,
                           const struct mu_machine *machine, bool here)
{
    struct mu_nccl_verdict verdict = { 0 };

    mu_nccl_check(text, len, machine->node.ncores ? machine : NULL, here, add_finding,
                  e, &verdict);
    if (e->left > 0)
        mu_findings_add(e->out, MU_HINT, AREA, "",
                        "%s: %d more; muster topo --check %s --here prints all",
                        e->path, e->left, e->path);
    if (verdict.errors + verdict.warnings == 0)
        mu_findings_add(e->out, MU_OK, AREA, "", "%s fits this machine (%s)", e->path,
                        e->from);
    if (!machine->node.virtual_machine && mu_node_numas_with_cpus(&machine->node) == 1)
        mu_findings_add(e->out, MU_HINT, AREA, "",
                        "a machine with one NUMA node needs no topology file (%s, %s)",
                        e->path, e->from);
}

static void examine(struct exam *e, bool graph, const struct mu_machine *machine,
                    bool here)
{
    struct mu_err err = { 0 };
    char *text = NULL;
    size_t len;

    e->shown = e->left = 0;
    if (mu_read_file(e->path, &text, &len, &err) < 0)
        mu_findings_add(e->out, MU_WARNING, AREA, "correct the name or remove it",
                        "%s (%s): NCCL silently runs without it", err.text, e->from);
    else if (graph)
        check_graph(e, text, len, machine->node.ngpus ? &machine->node : NULL);
    else
        check_topology(e, text, len, machine, here);
    free(text);
}

/* The file of the site's topo= for this node, else of topology= if that is an NCCL
 * file; false: none.
 */
static bool site_file(const struct mu_doctor_input *in, char *path, size_t len,
                      const char **key)
{
    struct mu_site_keys *keys = calloc(1, sizeof *keys);
    char start[512];
    bool found = false;

    if (!keys)
        return false;
    mu_doctor_site_keys(in, keys);
    if (keys->opts.topo == MU_TOPO_FILE) {
        *key = "topo";
        found = mu_copy(path, len, keys->opts.topo_file);
    } else if (keys->topology[0] &&
               mu_sysfile_read("", start, sizeof start, "%s", keys->topology) > 0 &&
               strstr(start, "<system")) {
        *key = "topology";
        found = mu_copy(path, len, keys->topology);
    }
    free(keys);
    return found;
}

void mu_doctor_files(const struct mu_doctor_input *in, const char *topology,
                     struct mu_findings *out)
{
    static const char *const names[] = { "NCCL_TOPO_FILE", "NCCL_GRAPH_FILE" };
    struct mu_machine machine = { 0 };
    struct exam e = { .out = out };
    char path[4096];
    const char *key;

    if (topology)
        mu_machine_load_file(topology, &machine, NULL);
    else
        mu_machine_load_live(&machine, NULL);
    for (int i = 0; i < 2; i++) {
        const struct mu_conf_line *line =
            in->facts.nccl_conf ? mu_conf_find(in->facts.nccl_conf, names[i]) : NULL;

        e.path = mu_facts_env(&in->facts, names[i]);
        if (e.path)
            snprintf(e.from, sizeof e.from, "%s, the environment", names[i]);
        else if (line && (e.path = line->value))
            snprintf(e.from, sizeof e.from, "%s, %.500s line %d", names[i], line->file,
                     line->line);
        if (e.path && e.path[0])
            examine(&e, i == 1, &machine, !topology);
    }
    e.path = path;
    if (site_file(in, path, sizeof path, &key)) {
        snprintf(e.from, sizeof e.from, "%s= in %.500s", key, in->site_path);
        examine(&e, false, &machine, !topology);
    }
    if (!topology && access(MU_TOPOLOGYD_FILE, R_OK) == 0) {
        e.path = MU_TOPOLOGYD_FILE;
        snprintf(e.from, sizeof e.from, "nvidia-topologyd");
        examine(&e, false, &machine, true);
    }
    mu_machine_clear(&machine);
}
