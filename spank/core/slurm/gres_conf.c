/* SPDX-License-Identifier: BSD-3-Clause */
/* gres_conf.c - parses the GPU lines of gres.conf */
#include "spank/core/slurm/gres_conf.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "runtime/base/parse.h"
#include "spank/core/slurm/hostlist.h"
#include "spank/core/slurm/conf_lines.h"

/* The numbers at the end of a file's name: /dev/nvidia3 or /dev/gpu[0-3]; false: none.
 */
static bool file_numbers(const char *file, struct mu_cpuset *out)
{
    const char *p = strchr(file, '[');
    char list[128];
    size_t len;

    if (p)
        p++;
    else
        for (p = file + strlen(file); p > file && p[-1] >= '0' && p[-1] <= '9';)
            p--;
    if (!mu_copy(list, sizeof list, p))
        return false;
    len = strlen(list);
    if (len && list[len - 1] == ']')
        list[len - 1] = '\0';
    return mu_cpuset_parse(list, out, NULL) == 0 && !mu_cpuset_empty(out);
}

/* The numbers in the names of NVIDIA's own device files are minors; those of MIG's
 * capability files are not.
 */
static bool are_minors(const struct mu_gres_conf *conf, const char *file)
{
    const char *prefix = conf->devices ? conf->devices : "/dev/nvidia";
    const char *end = file + strlen(prefix);

    return strncmp(file, prefix, strlen(prefix)) == 0 &&
           (*end == '[' || (*end >= '0' && *end <= '9'));
}

static int add(struct mu_gres_conf *out, const struct mu_gres *gres, struct mu_err *err)
{
    if (out->n == MU_GRES_MAX)
        return mu_err_set(err, ENOSPC, "more than %d devices", MU_GRES_MAX);
    out->gres[out->n++] = *gres;
    return 0;
}

/* A line without NodeName= applies to all nodes. */
static bool for_node(const char *line, const char *host)
{
    struct mu_hostlist list = { 0 };
    char nodes[8192];
    bool found;

    if (!host || !mu_slurm_value(line, "NodeName", nodes, sizeof nodes))
        return true;
    if (mu_hostlist_parse(nodes, &list, NULL) < 0)
        return false;
    found = mu_hostlist_find(&list, host) >= 0;
    mu_hostlist_clear(&list);
    return found;
}

/* The next file of "/dev/nvidia[0,2],/dev/nvidia4": a comma inside brackets does not
 * separate files.
 */
static char *next_file(char **rest)
{
    char *file = *rest, *p = file;
    int depth = 0;

    if (!file || !*file)
        return NULL;
    for (; *p && (*p != ',' || depth > 0); p++)
        depth += (*p == '[') - (*p == ']');
    *rest = *p ? p + 1 : NULL;
    *p = '\0';
    return file;
}

/* /dev/nvidia-caps/nvidia-capN: of a MIG slice's GPU instance or compute instance. */
static bool is_cap(const char *file)
{
    static const char prefix[] = "/dev/nvidia-caps/nvidia-cap";

    return strncmp(file, prefix, sizeof prefix - 1) == 0;
}

/* All files of one device: the GPU's own, and those of a slice's instances. */
static void add_device(char *files, const struct mu_gres_conf *conf,
                       struct mu_gres *gres)
{
    struct mu_cpuset numbers = { 0 };
    char *file;

    while ((file = next_file(&files))) {
        if (!file_numbers(file, &numbers))
            continue;
        if (are_minors(conf, file))
            gres->minor = mu_cpuset_next(&numbers, -1);
        if (!is_cap(file))
            continue;
        for (int k = mu_cpuset_next(&numbers, -1); k >= 0 && gres->caps < MU_GRES_CAPS;
             k = mu_cpuset_next(&numbers, k))
            gres->cap[gres->caps++] = k;
    }
    if (gres->caps > 0) /* a slice is no GPU of that number */
        gres->minor = -1;
}

static int add_files(char *files, struct mu_gres *gres, struct mu_gres_conf *out,
                     struct mu_err *err)
{
    char *file;

    while ((file = next_file(&files))) {
        struct mu_cpuset numbers = { 0 };

        gres->minor = -1;
        gres->caps = 0;
        if (!file_numbers(file, &numbers)) {
            if (add(out, gres, err) < 0)
                return -1;
            continue;
        }
        for (int k = mu_cpuset_next(&numbers, -1); k >= 0;
             k = mu_cpuset_next(&numbers, k)) {
            gres->minor = are_minors(out, file) ? k : -1;
            gres->caps = is_cap(file);
            gres->cap[0] = k;
            if (add(out, gres, err) < 0)
                return -1;
        }
    }
    return 0;
}

static int take_line(const char *line, const char *host, struct mu_gres *gres,
                     struct mu_gres_conf *out, struct mu_err *err)
{
    char value[1024], files[4096];

    if (!for_node(line, host))
        return 0;
    if (mu_slurm_value(line, "AutoDetect", value, sizeof value) &&
        strcasecmp(value, "off") != 0)
        out->autodetect = true;
    if (!mu_slurm_value(line, "Name", value, sizeof value) ||
        strcasecmp(value, "gpu") != 0)
        return 0;
    if (mu_slurm_value(line, "Cores", value, sizeof value) ||
        mu_slurm_value(line, "CPUs", value, sizeof value)) {
        gres->cores_given = true;
        snprintf(gres->cores_text, sizeof gres->cores_text, "%.255s", value);
        if (mu_cpuset_parse(value, &gres->cores, err) < 0)
            return mu_err_context(err, "Cores");
    }
    gres->has_file = mu_slurm_value(line, "File", files, sizeof files);
    if (gres->has_file)
        return add_files(files, gres, out, err);
    /* MultipleFiles= lists the files of one device, a MIG slice. */
    gres->has_file = mu_slurm_value(line, "MultipleFiles", files, sizeof files);
    if (gres->has_file)
        add_device(files, out, gres);
    return add(out, gres, err);
}

int mu_gres_conf_parse(const char *file, const char *text, const char *host,
                       struct mu_gres_conf *out, struct mu_err *err)
{
    int number = 1;

    for (const char *line = text; line; number++) {
        struct mu_gres gres = { .file = file, .line = number, .minor = -1 };

        if (take_line(line, host, &gres, out, err) < 0)
            return mu_err_context(err, "%s: line %d", file, number);
        line = strchr(line, '\n');
        line = line ? line + 1 : NULL;
    }
    return 0;
}

bool mu_gres_conf_has_slices(const struct mu_gres_conf *conf)
{
    for (int i = 0; i < conf->n; i++)
        if (conf->gres[i].caps > 0)
            return true;
    return false;
}

/* The GPU (index in the node) of a line, -1: none. */
static int gpu_of(const struct mu_gres *gres, const struct mu_node *node)
{
    if (gres->caps == 0)
        return mu_node_gpu_of_minor(node, gres->minor);
    for (int i = 0; i < node->ngpus; i++)
        for (int k = 0; k < gres->caps; k++)
            if (node->gpus[i].cap > 0 && node->gpus[i].cap == gres->cap[k])
                return i;
    return -1;
}

void mu_gres_order_make(const struct mu_gres_conf *conf, const struct mu_node *node,
                        struct mu_gres_order *out)
{
    out->n = 0;
    if (conf->autodetect || conf->n > MU_GPUS_MAX)
        return;
    for (int gpu_num = 0; gpu_num < conf->n; gpu_num++) {
        out->gpu_node[gpu_num] = gpu_of(&conf->gres[gpu_num], node);
        if (out->gpu_node[gpu_num] < 0)
            return;
    }
    out->n = conf->n;
}
