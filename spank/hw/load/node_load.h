/* SPDX-License-Identifier: BSD-3-Clause */
/* node_load.h - a machine, live or from a file, into struct mu_node */
#ifndef MU_NODE_LOAD_H
#define MU_NODE_LOAD_H

#include "runtime/base/err.h"
#include "spank/core/node/node.h"

/* This machine, through hwloc (without its GPU back ends, so that no driver starts) and
 * sysfs.
 */
int mu_node_load_live(struct mu_node *node, struct mu_err *err);

/* A saved machine: hwloc XML, NCCL topology XML, or nvidia-smi topo -m text; the format
 * is recognised. err->code is ENOENT/EACCES when it cannot be read, EINVAL otherwise;
 * the sentence names file and, where there is one, line.
 */
int mu_node_load_file(const char *path, struct mu_node *node, struct mu_err *err);

/* The same for a topology file of the machine `known`, which has what the file leaves
 * out.
 */
int mu_node_load_file_of(const char *path, const struct mu_node *known,
                         struct mu_node *node, struct mu_err *err);

/* The same for the machine that a site file gives this node: this node is `known`. */
int mu_node_load_site(const char *path, struct mu_node *node, struct mu_err *err);

#endif
