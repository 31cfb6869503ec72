/* SPDX-License-Identifier: BSD-3-Clause */
/* nccl_elements.c - finds the elements of an NCCL topology file and their kinds */
#include <stdlib.h>
#include <string.h>

#include "spank/hw/nccl/nccl_check.h"

int mu_check_pci_with(const struct mu_check *c, const char *busid)
{
    char other[64];

    for (int e = 0; e < c->doc->nelems; e++)
        if (mu_xml_elem_is(c->doc, e, "pci") &&
            mu_xml_elem_attr(c->doc, e, "busid", other, sizeof other) &&
            strcmp(busid, other) == 0)
            return e;
    return -1;
}

int mu_check_cpu_of(const struct mu_check *c, int elem)
{
    for (elem = c->doc->elem[elem].parent; elem >= 0; elem = c->doc->elem[elem].parent)
        for (int i = 0; i < c->ncpus; i++)
            if (c->cpu[i].elem == elem)
                return i;
    return -1;
}

static unsigned hex(const struct mu_check *c, int elem, const char *name)
{
    char buf[32];

    mu_xml_elem_attr(c->doc, elem, name, buf, sizeof buf);
    return (unsigned)strtoul(buf, NULL, 16);
}

enum mu_check_pci mu_check_kind(const struct mu_check *c, int elem)
{
    unsigned class_id = hex(c, elem, "class"), vendor = hex(c, elem, "vendor");

    if (mu_xml_elem_has(c->doc, elem, "gpu"))
        return MU_CHECK_GPU;
    if (vendor ? mu_pci_is_gpu(class_id, vendor, hex(c, elem, "device"))
               : class_id >> 8 == 0x0302 || class_id >> 8 == 0x0380 ||
                     class_id >> 8 == 0x1200)
        return MU_CHECK_GPU;
    if (mu_xml_elem_has(c->doc, elem, "nic") || class_id >> 16 == 0x02)
        return MU_CHECK_NIC;
    if (mu_xml_elem_has(c->doc, elem, "pci") || class_id >> 8 == 0x0604)
        return MU_CHECK_SWITCH;
    return MU_CHECK_OTHER;
}
