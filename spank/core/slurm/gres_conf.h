/* SPDX-License-Identifier: BSD-3-Clause */
/* gres_conf.h - parses gres.conf: the cores near each GPU, and the order of the GPUs */
#ifndef MU_GRES_CONF_H
#define MU_GRES_CONF_H

#include "runtime/base/cpuset.h"
#include "runtime/base/err.h"
#include "spank/core/node/node.h"

#define MU_GRES_MAX 256
#define MU_GRES_CAPS 8 /* one slice has the files of two instances */

struct mu_gres {
    const char *file; /* borrowed from mu_gres_conf_parse */
    int line;
    int minor; /* N of File=/dev/nvidiaN, -1: another file or none */
    int caps;  /* a MIG slice: /dev/nvidia-caps/nvidia-capN in the line */
    int cap[MU_GRES_CAPS];
    bool has_file; /* false: a line without File= */
    bool cores_given;
    struct mu_cpuset cores; /* abstract core numbers of Slurm, not Linux CPUs */
    char cores_text[256];
};

struct mu_gres_conf {
    /* borrowed: prefix of the device files before the number; NULL: /dev/nvidia */
    const char *devices;
    int n;
    /* one per device file, or per line without File= */
    struct mu_gres gres[MU_GRES_MAX];
    bool autodetect; /* AutoDetect= has a value other than off */
};

/* Add the gpu lines of a gres.conf that apply to this node (all lines if host is NULL).
 * Unknown keys are skipped. A Cores= or CPUs= that is not a list fails with its line.
 */
int mu_gres_conf_parse(const char *file, const char *text, const char *host,
                       struct mu_gres_conf *out, struct mu_err *err);

/* Does a line name a device file of a MIG slice? */
bool mu_gres_conf_has_slices(const struct mu_gres_conf *conf);

/* The GPUs (indices into node->gpus) in the order in which Slurm counts them; n is 0 if
 * that is the PCI order.
 */
struct mu_gres_order {
    int n;
    int gpu_node[MU_GPUS_MAX];
};

/* Slurm 21.08 and later write the index of a GPU among the GPUs of the node into
 * SLURM_STEP_GPUS, not the number in the name of its device file. Under AutoDetect GPUs
 * are in PCI order, otherwise in the order of the lines of gres.conf. If the lines name
 * other files than /dev/nvidiaN, or a file that belongs to no GPU of the node, the PCI
 * order is used. A line with a capability file is the MIG slice of that file.
 */
void mu_gres_order_make(const struct mu_gres_conf *conf, const struct mu_node *node,
                        struct mu_gres_order *out);

#endif
