/* SPDX-License-Identifier: BSD-3-Clause */
/* nccl_reader.h - shared by the files that read an NCCL topology file
 *
 *   nccl_xml.c      the file as a whole, its <cpu> elements and distances
 *   nccl_devices.c  its PCI devices, GPUs and NICs, and the links among GPUs
 */
#ifndef MU_NCCL_READER_H
#define MU_NCCL_READER_H

#include <errno.h>

#include "spank/hw/io/xml.h"
#include "spank/hw/machine/machine.h"

struct mu_nccl_reader {
    const struct mu_xml_doc *doc;
    struct mu_machine *machine;
    const struct mu_node *known; /* has what the file leaves out; NULL: nothing has */
    int *dev_of;                 /* per element: index into dev[], -1 */
    int *numa_of;                /* per <cpu> element: index into numas[], -1 */
    struct mu_err *err;
};

static inline int mu_nccl_fail(const struct mu_nccl_reader *r, int elem,
                               const char *what, const char *value)
{
    return mu_err_set(r->err, EINVAL, "%s: line %d: %s '%.80s'", r->doc->file,
                      r->doc->elem[elem].line, what, value);
}

static inline void mu_nccl_attr(const struct mu_nccl_reader *r, int elem,
                                const char *name, char *buf, size_t len)
{
    mu_xml_elem_attr(r->doc, elem, name, buf, len);
}

/* One <pci>: a switch, or a function with its GPUs and NICs. Its <cpu> is read. */
int mu_nccl_read_pci(struct mu_nccl_reader *r, int elem);

/* The RDMA devices right below a <cpu> that is read. */
int mu_nccl_read_cpu_nets(struct mu_nccl_reader *r, int cpu);

/* The links among GPUs, after all <pci> are read. */
void mu_nccl_read_links(struct mu_nccl_reader *r);

#endif
