/* SPDX-License-Identifier: BSD-3-Clause */
/* record.h - MUSTER_PLAN, the line with which the plugin sends a task its place */
#ifndef MU_RECORD_H
#define MU_RECORD_H

#include <stddef.h>

#include "runtime/base/cpuset.h"
#include "runtime/base/err.h"

#define MU_RECORD_VERSION 1
#define MU_RECORD_LINE 8192

/* One task's place, for example
 *   v=1;task=2;gpus=0000:0f:00.0;cpus=16-23,144-151;mems=1;nics=mlx5_2;path=PXB
 * task is the local rank. gpus are PCI bus ids (/K for the K-th device of a function)
 * or MIG UUIDs, nics are names or bus ids; commas separate both. An empty field is "-".
 * The reader ignores unknown fields and refuses another version.
 */
struct mu_record {
    int task;
    char gpus[1024];
    struct mu_cpuset cpus; /* Linux CPU numbers */
    struct mu_cpuset mems; /* NUMA OS indices; empty: memory is not bound */
    char nics[1024];
    char path[8]; /* PIX PXB PHB NODE PKG SYS or "-" */
    /* In a step of several nodes: the link layer of the RDMA devices that NCCL is to
     * use on this node, "none" where it has none. "" in a step of one node.
     */
    char fabric[16];
};

/* On failure, as when the line does not fit into len, nothing is written. */
int mu_record_encode(const struct mu_record *record, char *line, size_t len,
                     struct mu_err *err);
int mu_record_decode(const char *line, struct mu_record *record, struct mu_err *err);

#endif
