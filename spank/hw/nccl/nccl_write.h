/* SPDX-License-Identifier: BSD-3-Clause */
/* nccl_write.h - shared by the files that write an NCCL topology file: nccl_write.c its
 * elements, nccl_write_notes.c the attribute that only Muster reads
 */
#ifndef MU_NCCL_WRITE_H
#define MU_NCCL_WRITE_H

#include <stdio.h>

#include "spank/hw/machine/machine.h"

#define MU_NCCL_DEEPEST 64 /* bridges above a device */

struct mu_nccl_writer {
    FILE *out;
    const struct mu_machine *m;
    int nodes; /* elements written: NCCL reads at most 256 */
    struct mu_err *err;
};

/* The attribute of a <cpu>. numa -1: the CPUs without a NUMA node. affinity: what the
 * element lists. written: of each NUMA node, whether it has an element.
 */
void mu_nccl_put_cpu_notes(struct mu_nccl_writer *w, int numa,
                           const struct mu_cpuset *affinity, const bool *written);

/* The attribute of a <pci> that is a GPU or a NIC. */
void mu_nccl_put_leaf_notes(struct mu_nccl_writer *w, int dev);

/* The CPUs of a NUMA node's cores; numa -1: of those without a node. */
void mu_nccl_usable_cpus(const struct mu_node *node, int numa, struct mu_cpuset *out);

#endif
