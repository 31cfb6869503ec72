/* SPDX-License-Identifier: BSD-3-Clause */
/* gpu_order.c - the order in which Slurm numbers the node's GPUs, where it differs from
 * PCI order
 *
 * With confined devices, Slurm's number is the position of a device file in gres.conf.
 * Without, a job has only the numbers in CUDA_VISIBLE_DEVICES and its like, in this job
 * and in the others of the node. CUDA counts them in PCI order, ROCr in the KFD
 * driver's.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "spank/hw/live/slurm_files.h"
#include "spank/plugin/plugin.h"

/* Loads a file of slurm.conf's folder; a missing file has no text. */
static void load(const char *name, struct mu_slurm_files *files)
{
    const char *conf = mu_slurm_conf_path();
    char path[1024];
    int folder = (int)(strrchr(conf, '/') - conf);

    memset(files, 0, sizeof *files);
    if (snprintf(path, sizeof path, "%.*s/%s", folder, conf, name) < (int)sizeof path)
        mu_slurm_files_load(path, files);
}

static bool devices_confined(void)
{
    struct mu_slurm_files *files = calloc(1, sizeof *files);
    bool confined = false;
    char value[16];

    if (!files)
        return false;
    load("cgroup.conf", files);
    for (int i = 0; i < files->n && !confined; i++)
        confined = files->file[i].text &&
                   mu_slurm_text_value(files->file[i].text, "ConstrainDevices", value,
                                       sizeof value) &&
                   strcasecmp(value, "yes") == 0;
    mu_slurm_files_clear(files);
    free(files);
    return confined;
}

/* The names of the GPUs' device files before the number; NULL: NVIDIA's. */
static const char *files_of(const struct mu_state *st)
{
    int vendor = st->node.ngpus > 0 ? st->node.gpus[0].vendor : 0;

    if (st->site.devices[0])
        return st->site.devices;
    return vendor == MU_VENDOR_AMD || vendor == MU_VENDOR_INTEL ? "/dev/dri/renderD"
                                                                : NULL;
}

/* NULL: out of memory; the caller frees it. The texts of the files are gone. */
static struct mu_gres_conf *read_gres_conf(const struct mu_state *st)
{
    struct mu_slurm_files *files = calloc(1, sizeof *files);
    struct mu_gres_conf *conf = calloc(1, sizeof *conf);

    if (files && conf) {
        conf->devices = files_of(st);
        load("gres.conf", files);
        for (int i = 0; i < files->n; i++)
            if (files->file[i].text)
                mu_gres_conf_parse(files->file[i].path, files->file[i].text,
                                   st->step.host, conf, NULL);
        mu_slurm_files_clear(files);
    }
    free(files);
    return conf;
}

bool mu_gres_has_slices(const struct mu_state *st)
{
    struct mu_gres_conf *conf = read_gres_conf(st);
    bool slices = conf && mu_gres_conf_has_slices(conf);

    free(conf);
    return slices;
}

/* Only a line of gres.conf leads from Slurm's number to a slice. Whole GPUs need it
 * where a device cgroup goes by these lines too.
 */
void mu_gres_find_order(struct mu_state *st)
{
    struct mu_gres_conf *conf;

    st->order.n = 0;
    st->devices_confined = st->node.ngpus > 0 && devices_confined();
    if (!st->devices_confined && !st->alloc.mig) {
        mu_gpus_runtime_order(&st->node, &st->order);
        return;
    }
    if (!st->alloc.mig && !mu_gpus_have_minors(&st->node))
        return;
    conf = read_gres_conf(st);
    if (conf)
        mu_gres_order_make(conf, &st->node, &st->order);
    free(conf);
}
