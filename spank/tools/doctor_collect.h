/* SPDX-License-Identifier: BSD-3-Clause */
/* doctor_collect.h - writes the facts of this node that should be alike on all nodes of
 * a job (spank/core/doctor/node_facts.h)
 *
 * What differs by nature is left out: addresses, serial numbers, load.
 */
#ifndef MU_DOCTOR_COLLECT_H
#define MU_DOCTOR_COLLECT_H

#include <stdio.h>

struct mu_collector {
    FILE *out;
    const char *node; /* its name in each line */
    const char *root; /* a recorded tree, or "" */
};

/* One line; an empty value is left out, a line break becomes a blank. */
void mu_collect(const struct mu_collector *c, const char *value, const char *key, ...)
    __attribute__((format(printf, 3, 4)));
/* The fact is the content of a small file, root/path. */
void mu_collect_file(const struct mu_collector *c, const char *path, const char *key,
                     ...) __attribute__((format(printf, 3, 4)));

/* doctor_collect_system.c: kernel, firmware, CPU, memory, sysctl, mounts. */
void mu_collect_system(const struct mu_collector *c);
/* doctor_collect_devices.c: GPUs, RDMA devices, interfaces. */
void mu_collect_devices(const struct mu_collector *c);

/* doctor_collect_node.c: writes all facts, with those of Slurm, NCCL, PMIx and limits.
 * A fact that cannot be read is left out. Returns an exit status.
 */
int mu_collect_node(FILE *out);

#endif
