/* SPDX-License-Identifier: BSD-3-Clause */
/* nvml.h - data that only NVIDIA's management library reports: how many GPUs it shows
 * to this process, and the UUIDs of MIG devices with their parents
 */
#ifndef MU_NVML_H
#define MU_NVML_H

#include <stdbool.h>

#include "spank/core/node/node.h"

struct mu_nvml_device {
    char busid[MU_BUSID_LEN]; /* of the GPU, or of a MIG device's parent */
    char uuid[MU_NAME_LEN];
    bool mig; /* a MIG device; its parent is in the list, before it */
    int cap;  /* N of the /dev/nvidia-caps/nvidia-capN of a MIG device, 0 unknown */
    /* the NVLink domain of a GPU in a rack (NVL72): "CLUSTER.CLIQUE" in hex and decimal;
     * "" none, or not joined */
    char fabric[48];
};

/* List the devices, at most max, in NVML's order. The library is loaded in a child
 * process, which keeps only the effective user's rights and is killed after `timeout`
 * seconds. The driver may be slow or hang, and the caller keeps none of its state.
 * library: NULL the driver's own, "" the program itself (for tests). Returns the
 * number, -1 where there is no library, no driver or no answer.
 */
int mu_nvml_list(const char *library, double timeout, struct mu_nvml_device *list,
                 int max);

/* Give the node's MIG devices that have no UUID those of the list, GPU by GPU, in the
 * list's order, and label them so. A GPU that is one device to the PCI bus and several
 * MIG devices in the list becomes as many. Returns how many got a UUID.
 */
int mu_nvml_name_migs(const struct mu_nvml_device *list, int n, struct mu_node *node,
                      struct mu_err *err);

#endif
