/* SPDX-License-Identifier: BSD-3-Clause */
/* doctor_slurm.c - gres.conf compared with the hardware, PMIx, the plugin's version */
#include "spank/core/doctor/doctor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spank/core/slurm/gres_conf.h"
#include "spank/core/slurm/core_numbers.h"

#define AREA "slurm"

/* Where the minors of a machine are unknown, the PCI order is used instead. */
static int find_by_minor(const struct mu_node *node, int minor)
{
    int found = mu_node_gpu_of_minor(node, minor);

    if (found < 0 && minor >= 0 && minor < node->ngpus && node->gpus[minor].minor < 0)
        return minor;
    return found;
}

/* Case 014 a: thread ids in place of core ids. Returns true if the line has this error;
 * it is reported once per line.
 */
static bool check_core_ids(const struct mu_facts *facts, const struct mu_gres *gres,
                           const struct mu_gres *before, struct mu_findings *out)
{
    int last = -1, cores = facts->node->ncores;

    for (int c = mu_cpuset_next(&gres->cores, -1); c >= 0;
         c = mu_cpuset_next(&gres->cores, c))
        last = c;
    if (last < cores)
        return false;
    if (!before || before->line != gres->line || before->file != gres->file)
        mu_findings_add(
            out, MU_ERROR, AREA,
            "write core numbers as Slurm counts them (0 to the number of cores "
            "minus 1, no hardware threads), or AutoDetect=nvml",
            "%s line %d: Cores=%s holds Linux CPU numbers: this machine has %d "
            "core%s, so core %d does not exist",
            gres->file, gres->line, gres->cores_text, cores, mu_plural(cores), last);
    return true;
}

/* Case 014 b, c: compare the cores in gres.conf with those of the PCI bus. */
static void check_locality(const struct mu_facts *facts, const struct mu_gres *gres,
                           int g, struct mu_findings *out)
{
    const struct mu_node *node = facts->node;
    struct mu_cpuset cpus, here;
    char slurm_cpus[512], bus_cpus[512];

    if (g < 0 || !node->gpus[g].local_known ||
        !mu_slurm_cores(node, &gres->cores, &cpus))
        return;
    mu_node_cpus(node, &here);
    mu_cpuset_and(&here, &node->gpus[g].local);
    if (mu_cpuset_equal(&cpus, &here))
        return;
    mu_cpuset_format(&cpus, slurm_cpus, sizeof slurm_cpus);
    mu_cpuset_format(&here, bus_cpus, sizeof bus_cpus);
    mu_findings_add(
        out, MU_WARNING, AREA,
        "correct Cores= in gres.conf, or use AutoDetect=nvml; Muster itself uses the "
        "PCI bus",
        "GPU%d: Slurm has CPUs %s (%s line %d), the PCI bus reports CPUs %s (NUMA %d)",
        g, slurm_cpus, gres->file, gres->line, bus_cpus,
        node->gpus[g].numa >= 0 ? node->numas[node->gpus[g].numa].os_index : -1);
}

/* Read the lines for this node from all files; report a file that is missing or wrong.
 */
static void read_gres(const struct mu_facts *facts, struct mu_gres_conf *conf,
                      struct mu_findings *out)
{
    for (int i = 0; i < facts->gres->n; i++) {
        const struct mu_slurm_file *file = &facts->gres->file[i];
        struct mu_err err = { 0 };

        if (!file->text)
            mu_findings_add(
                out, MU_WARNING, AREA,
                "make the file readable; until then its lines are not checked",
                "%s line %d includes %s, which cannot be read",
                facts->gres->file[file->from].path, file->line, file->path);
        else if (mu_gres_conf_parse(file->path, file->text, facts->host, conf, &err) <
                 0)
            mu_findings_add(out, MU_ERROR, AREA, "", "%s", err.text);
    }
}

/* GPUs of gres.conf that this machine does not show, once per line. */
static void check_present(const struct mu_facts *facts, const struct mu_gres_conf *conf,
                          struct mu_findings *out)
{
    struct mu_cpuset missing = { 0 };
    int ngpus = facts->node->ngpus;
    char list[256];

    for (int i = 0; i < conf->n && !facts->gres_elsewhere; i++) {
        const struct mu_gres *gres = &conf->gres[i];

        if (gres->minor >= 0 && find_by_minor(facts->node, gres->minor) < 0)
            mu_cpuset_add(&missing, gres->minor);
        if (mu_cpuset_empty(&missing) ||
            (i + 1 < conf->n && gres[1].line == gres->line &&
             gres[1].file == gres->file))
            continue;
        mu_cpuset_format(&missing, list, sizeof list);
        mu_findings_add(
            out, MU_ERROR, AREA,
            "nvidia-smi -L; then correct File= for this node, or bring the GPU back",
            "%s line %d: File=/dev/nvidia[%s]: this machine shows %d GPU%s, and not "
            "these",
            gres->file, gres->line, list, ngpus, mu_plural(ngpus));
        missing = (struct mu_cpuset){ 0 };
    }
}

static void check_gres(const struct mu_facts *facts, struct mu_findings *out)
{
    struct mu_gres_conf *conf = calloc(1, sizeof *conf);
    int without = 0, files = 0, position = 0;

    if (!conf)
        return;
    read_gres(facts, conf, out);
    check_present(facts, conf, out);
    for (int i = 0; i < conf->n; i++)
        files += conf->gres[i].has_file;
    for (int i = 0; i < conf->n; i++) {
        const struct mu_gres *gres = &conf->gres[i];
        int g = find_by_minor(facts->node, gres->minor);

        /* A file name without a minor counts by its position, if the lines list all
         * GPUs of the node. */
        if (gres->minor < 0 && gres->has_file && files == facts->node->ngpus)
            g = position;
        position += gres->has_file;
        without += !gres->cores_given;
        if (!gres->cores_given || facts->node->smt_guess)
            continue;
        if (!check_core_ids(facts, gres, i ? gres - 1 : NULL, out))
            check_locality(facts, gres, g, out);
    }
    if (conf->n && without == conf->n && !conf->autodetect)
        mu_findings_add(
            out, MU_HINT, AREA,
            "add Cores= or AutoDetect=nvml, so that Slurm allocates CPUs near the GPUs",
            "%s has no Cores=: Slurm has no locality for any GPU",
            facts->gres->file[0].path);
    free(conf);
}

/* Nodes of slurm.conf that this machine cannot reach by name. */
static void check_names(const struct mu_facts *facts, struct mu_findings *out)
{
    for (int i = 0; i < facts->nunresolved; i++) {
        const struct mu_unresolved *u = &facts->unresolved[i];
        const char *name = u->addr[0] ? u->addr : u->node;
        char more[64] = "", todo[400];

        if (u->more)
            snprintf(more, sizeof more, ", nor do%s %d other%s of the line",
                     u->more == 1 ? "es" : "", u->more, mu_plural(u->more));
        snprintf(todo, sizeof todo,
                 "getent hosts %s; add it to DNS or /etc/hosts, or correct the line",
                 name);
        mu_findings_add(out, MU_WARNING, AREA, todo,
                        "%s line %d: node %s: the name %s does not resolve here%s",
                        u->file, u->line, u->node, name, more);
    }
    if (facts->names_late[0])
        mu_findings_add(out, MU_WARNING, AREA,
                        "look at the name servers in /etc/resolv.conf",
                        "nodes of slurm.conf: %s", facts->names_late);
}

/* Case 048 */
static void check_pmix(const struct mu_facts *facts, struct mu_findings *out)
{
    if (!facts->slurm_version[0])
        return;
    if (!facts->pmix_plugin)
        mu_findings_add(
            out, MU_WARNING, AREA,
            "install Slurm's PMIx plugin (Debian: slurm-wlm-basic-plugins; "
            "RPM: slurm-libpmi built --with pmix)",
            "Slurm's plugin directory has no mpi_pmix*.so: srun --mpi=pmix will fail");
    else if (facts->pmix_missing[0])
        mu_findings_add(
            out, MU_ERROR, AREA,
            "install the package that contains it on every node (Debian: "
            "libpmix-dev for libpmix.so, libpmix2 for libpmix.so.2)",
            "Slurm's PMIx plugin is installed, but %s cannot be loaded: srun "
            "--mpi=pmix will fail",
            facts->pmix_missing);
    else
        mu_findings_add(
            out, MU_OK, AREA, "",
            "srun --mpi=pmix: Slurm's plugin and its library can be loaded");
}

/* "22.05" of "22.05.8" */
static size_t release_len(const char *version)
{
    const char *dot = strchr(version, '.');
    const char *end = dot ? strchr(dot + 1, '.') : NULL;

    return end ? (size_t)(end - version) : strlen(version);
}

/* Case 051 */
static void check_plugin(const struct mu_facts *facts, struct mu_findings *out)
{
    const char *a = facts->plugin_version, *b = facts->slurm_version;

    if (facts->plugin_fault[0])
        mu_findings_add(
            out, MU_ERROR, AREA,
            "install it on this node, mount its folder, or correct the line",
            "%s: %s cannot be loaded (%s): %s", facts->plugin_from, facts->plugin_path,
            facts->plugin_fault,
            facts->plugin_required
                ? "the line has required, so every srun, sbatch and salloc stops"
                : "steps run without Muster");
    else if (!b[0] || (!facts->plugin_path[0] && facts->nstack))
        return; /* mu_doctor_stack reports lines that could be the plugin's */
    else if (!facts->plugin_path[0])
        mu_findings_add(out, MU_HINT, AREA,
                        "add the line shown in muster-spank(8) to plugstack.conf",
                        "no plugstack.conf line loads muster.so");
    else if (a[0] &&
             (release_len(a) != release_len(b) || strncmp(a, b, release_len(a)) != 0))
        mu_findings_add(
            out, MU_ERROR, AREA,
            "build Muster against this Slurm's headers: a plugin works with one "
            "major.minor version only",
            "%s was built for Slurm %s, but this is Slurm %s: it is not loaded "
            "(\"Incompatible Slurm plugin\")",
            facts->plugin_path, a, b);
    else
        mu_findings_add(out, MU_OK, AREA, "", "%s matches Slurm %s", facts->plugin_path,
                        b);
}

static void check_required(const struct mu_facts *facts, struct mu_findings *out)
{
    if (facts->plugin_required && !facts->plugin_fault[0])
        mu_findings_add(out, MU_HINT, AREA, "write optional",
                        "%s has required: where %s is missing, or Slurm is upgraded "
                        "before it, every srun, sbatch and salloc stops",
                        facts->plugin_from, facts->plugin_path);
}

static void check_conf(const struct mu_facts *facts, struct mu_findings *out)
{
    if (facts->conf_missing[0])
        mu_findings_add(out, MU_ERROR, AREA, "correct SLURM_CONF, or unset it",
                        "SLURM_CONF names %s, which cannot be read: Slurm's commands "
                        "fail here",
                        facts->conf_missing);
    if (facts->plugin_refused[0])
        mu_findings_add(out, MU_ERROR, AREA,
                        "correct the line; see muster-spank(8) for the argument",
                        "%s: %s; steps run without Muster", facts->plugin_from,
                        facts->plugin_refused);
}

void mu_doctor_slurm(const struct mu_facts *facts, struct mu_findings *out)
{
    if (facts->gres && facts->node)
        check_gres(facts, out);
    check_names(facts, out);
    check_conf(facts, out);
    check_pmix(facts, out);
    check_plugin(facts, out);
    check_required(facts, out);
}
