/* SPDX-License-Identifier: BSD-3-Clause */
/* gres_conf.h - what gres.conf says about the cores near each GPU, and their order */
#ifndef MU_GRES_CONF_H
#define MU_GRES_CONF_H

#include "runtime/base/cpuset.h"
#include "runtime/base/err.h"
#include "spank/core/node/node.h"

#define MU_GRES_MAX 256

struct mu_gres {
    const char *file; /* borrowed from mu_gres_conf_parse */
    int line;
    int minor;     /* N of File=/dev/nvidiaN, -1: another file or none */
    bool has_file; /* one device file; false: a line without File= */
    bool cores_given;
    struct mu_cpuset cores; /* abstract core numbers of Slurm, not Linux CPUs */
    char cores_text[256];
};

struct mu_gres_conf {
    /* borrowed: what the files are called before their number, NULL /dev/nvidia */
    const char *devices;
    int n;
    struct mu_gres
        gres[MU_GRES_MAX]; /* one per device file, or per line without File= */
    bool autodetect;       /* AutoDetect= with something else than off */
};

/* Add the gpu lines of a gres.conf that are for this node (all lines when host is
 * NULL). Unknown keys are skipped; Cores= or CPUs= that are no list fail with the line.
 */
int mu_gres_conf_parse(const char *file, const char *text, const char *host,
                       struct mu_gres_conf *out, struct mu_err *err);

/* The GPUs (indices into node->gpus) in the order in which Slurm counts them; n is 0
 * where that is the PCI order.
 */
struct mu_gres_order {
    int n;
    int gpu_node[MU_GPUS_MAX];
};

/* Slurm 21.08 and later write the place of a GPU among the node's into SLURM_STEP_GPUS,
 * not the number in its device file's name. Under AutoDetect the places are those of
 * the PCI bus, else those of gres.conf's lines. Where these name other files than
 * /dev/nvidiaN, or one that no GPU of the node has, the PCI order is all there is.
 */
void mu_gres_order_make(const struct mu_gres_conf *conf, const struct mu_node *node,
                        struct mu_gres_order *out);

#endif
