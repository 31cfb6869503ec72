/* SPDX-License-Identifier: BSD-3-Clause */
/* nccl_check_say.c - what the rules for NCCL topology files share: how a finding is
 * told, and which element is which
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/parse.h"
#include "spank/hw/nccl/nccl_check.h"
#include "spank/hw/nccl/nccl_dialect.h"

void mu_check_say(struct mu_check *c, enum mu_nccl_level level, int line,
                  const char *fmt, ...)
{
    char text[2048];
    struct mu_nccl_finding finding = { level, line, text };
    int *count[] = { &c->verdict->errors, &c->verdict->warnings, &c->verdict->hints };
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    ++*count[level];
    c->tell(c->arg, &finding);
}

void mu_check_list(const struct mu_cpuset *set, char buf[MU_CHECK_LIST])
{
    if (mu_cpuset_format(set, buf, MU_CHECK_LIST) >= MU_CHECK_LIST)
        memcpy(buf + MU_CHECK_LIST - 4, "...", 4);
    if (!buf[0])
        mu_copy(buf, MU_CHECK_LIST, "none");
}

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

    if (mu_xml_elem_has(c->doc, elem, "pci") || class_id >> 8 == 0x0604)
        return MU_CHECK_SWITCH;
    if (mu_xml_elem_has(c->doc, elem, "gpu"))
        return MU_CHECK_GPU;
    if (vendor ? mu_pci_is_gpu(class_id, vendor, hex(c, elem, "device"))
               : class_id >> 8 == 0x0302 || class_id >> 8 == 0x0380 ||
                     class_id >> 8 == 0x1200)
        return MU_CHECK_GPU;
    if (mu_xml_elem_has(c->doc, elem, "nic") || class_id >> 16 == 0x02)
        return MU_CHECK_NIC;
    return MU_CHECK_OTHER;
}
