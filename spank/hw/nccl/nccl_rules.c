/* SPDX-License-Identifier: BSD-3-Clause */
/* nccl_rules.c - what can be wrong with the <pci>, link and net elements of an NCCL
 * topology file, seen from the file alone
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/parse.h"
#include "spank/hw/nccl/nccl_check.h"

/* dddd:bb:dd.f in lower case: NCCL compares the text with sysfs's. */
static void check_busid(struct mu_check *c, int elem)
{
    char raw[64], normal[MU_BUSID_LEN];
    int first;

    if (!mu_xml_elem_attr(c->doc, elem, "busid", raw, sizeof raw)) {
        mu_check_at(c, MU_NCCL_ERROR, elem, "<pci> has no busid");
        return;
    }
    if (mu_busid_normal(raw, normal, NULL) < 0)
        mu_check_at(c, MU_NCCL_ERROR, elem, "busid \"%.40s\" is not a PCI address",
                    raw);
    else if (strcmp(raw, normal) != 0)
        mu_check_at(
            c, MU_NCCL_ERROR, elem,
            "busid \"%.40s\" must be written %s: NCCL compares it with sysfs as "
            "text",
            raw, normal);
    first = mu_check_pci_with(c, raw);
    if (first >= 0 && first < elem)
        mu_check_at(c, MU_NCCL_ERROR, elem,
                    "a second <pci> has busid %.40s (the first is on line %d)", raw,
                    c->doc->elem[first].line);
}

/* GT/s of a link text in NCCL's list, 0 for others (NCCL assumes 8 GT/s). NCCL compares
 * the beginning only: the list has "16 GT/s", but "16.0 GT/s" only with PCIe.
 */
static double link_rate(const char *text)
{
    static const char *const known[] = { "2.5 GT/s",       "5 GT/s",
                                         "8 GT/s",         "16 GT/s",
                                         "32 GT/s",        "5.0 GT/s PCIe",
                                         "8.0 GT/s PCIe",  "16.0 GT/s PCIe",
                                         "32.0 GT/s PCIe", "64.0 GT/s PCIe" };

    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strncmp(text, known[i], strlen(known[i])) == 0)
            return strtod(text, NULL);
    return 0;
}

static void check_link(struct mu_check *c, int elem, enum mu_check_pci kind)
{
    char speed[64], width[32], busid[64];
    long lanes;

    mu_xml_elem_attr(c->doc, elem, "busid", busid, sizeof busid);
    if (mu_xml_elem_attr(c->doc, elem, "link_speed", speed, sizeof speed) && speed[0]) {
        double rate = link_rate(speed);

        if (rate == 0)
            mu_check_at(c, MU_NCCL_WARNING, elem,
                        "link_speed \"%.40s\" of %s is not one that NCCL recognises: "
                        "NCCL assumes 8 GT/s",
                        speed, busid);
        else if (rate < 8 && kind != MU_CHECK_OTHER)
            mu_check_at(c, MU_NCCL_WARNING, elem,
                        "link_speed %g GT/s of %s is probably the rate of an idle "
                        "link: NCCL uses it as the bandwidth",
                        rate, busid);
    }
    if (!mu_xml_elem_attr(c->doc, elem, "link_width", width, sizeof width))
        return;
    if (mu_parse_int("link_width", width, 0, 64, &lanes, NULL) < 0)
        mu_check_at(c, MU_NCCL_ERROR, elem, "link_width \"%.20s\" is not a number",
                    width);
    else if (lanes == 0)
        mu_check_at(c, MU_NCCL_HINT, elem, "link_width 0 of %s: NCCL assumes 16 lanes",
                    busid);
}

static void check_class(struct mu_check *c, int elem)
{
    char text[32], *end;

    if (!mu_xml_elem_attr(c->doc, elem, "class", text, sizeof text))
        return;
    strtoul(text, &end, 16);
    if (end == text || *end || strncmp(text, "0x", 2) != 0 || strlen(text) != 8)
        mu_check_at(c, MU_NCCL_ERROR, elem,
                    "class \"%.20s\" is not a PCI class such as 0x030200", text);
}

void mu_check_pcis(struct mu_check *c)
{
    int bare = 0;

    for (int e = 0; e < c->doc->nelems; e++) {
        char text[32];
        enum mu_check_pci kind;

        if (!mu_xml_elem_is(c->doc, e, "pci"))
            continue;
        kind = mu_check_kind(c, e);
        if (mu_check_cpu_of(c, e) < 0)
            mu_check_at(c, MU_NCCL_ERROR, e, "a <pci> outside any <cpu>");
        check_busid(c, e);
        check_class(c, e);
        check_link(c, e, kind);
        bare += !mu_xml_elem_attr(c->doc, e, "class", text, sizeof text);
    }
    if (bare > 0)
        mu_check_at(c, MU_NCCL_HINT, 0,
                    "%d <pci> element%s without a class: NCCL takes it from sysfs",
                    bare, mu_plural(bare));
}

/* The <pci> element that a link element belongs to, -1. */
static int pci_above(const struct mu_check *c, int elem)
{
    while (elem >= 0 && !mu_xml_elem_is(c->doc, elem, "pci"))
        elem = c->doc->elem[elem].parent;
    return elem;
}

static bool is_link(const struct mu_check *c, int elem)
{
    return mu_xml_elem_is(c->doc, elem, "nvlink") ||
           mu_xml_elem_is(c->doc, elem, "xgmi");
}

/* Links counted from GPU a to the device with this bus id. */
static long count_between(const struct mu_check *c, int a, const char *busid)
{
    char target[64], count[16];
    long n, total = 0;

    for (int e = a + 1; e < c->doc->nelems && c->doc->elem[e].parent >= a; e++)
        if (is_link(c, e) &&
            mu_xml_elem_attr(c->doc, e, "target", target, sizeof target) &&
            strcmp(target, busid) == 0 &&
            mu_xml_elem_attr(c->doc, e, "count", count, sizeof count) &&
            mu_parse_int("count", count, 0, 100000, &n, NULL) == 0)
            total += n;
    return total;
}

static void check_one_link(struct mu_check *c, int elem)
{
    char target[64], count[16], own[64] = "", tclass[32];
    int gpu = pci_above(c, elem), peer;
    long n, back;

    mu_xml_elem_attr(c->doc, elem, "target", target, sizeof target);
    mu_xml_elem_attr(c->doc, elem, "count", count, sizeof count);
    mu_xml_elem_attr(c->doc, elem, "tclass", tclass, sizeof tclass);
    if (gpu >= 0)
        mu_xml_elem_attr(c->doc, gpu, "busid", own, sizeof own);
    if (mu_parse_int("count", count, 1, 1000, &n, NULL) < 0) {
        mu_check_at(c, MU_NCCL_ERROR, elem,
                    "link count \"%.10s\" is not a number from 1 to 1000", count);
        return;
    }
    if (strcmp(own, target) == 0) {
        mu_check_at(c, MU_NCCL_ERROR, elem,
                    "impossible link: GPU %s has %ld link%s to itself", own, n,
                    mu_plural(n));
        return;
    }
    if (strncmp(tclass, "0x0680", 6) == 0 || strcmp(target, "fffffff:ff:ff.0") == 0)
        return; /* a switch, which the file may omit */
    peer = mu_check_pci_with(c, target);
    if (peer < 0) {
        mu_check_at(c, MU_NCCL_WARNING, elem,
                    "%s has a link to %.40s, which is not in the file", own, target);
        return;
    }
    back = count_between(c, peer, own);
    if (mu_check_kind(c, peer) == MU_CHECK_GPU && back != count_between(c, gpu, target))
        mu_check_at(c, MU_NCCL_WARNING, elem,
                    "%ld link%s from %s to %.40s, but %ld back", n, mu_plural(n), own,
                    target, back);
}

static void check_net(struct mu_check *c, int elem)
{
    char speed[32], name[64];
    double mbits;

    mu_xml_elem_attr(c->doc, elem, "name", name, sizeof name);
    if (mu_xml_elem_attr(c->doc, elem, "speed", speed, sizeof speed) &&
        (mu_parse_double("speed", speed, -1, 1e12, &mbits, NULL) < 0 || mbits > 3.2e6))
        mu_check_at(c, MU_NCCL_WARNING, elem,
                    "speed \"%.20s\" of net %s is not a possible number of Mb/s", speed,
                    name);
}

void mu_check_links(struct mu_check *c)
{
    for (int e = 0; e < c->doc->nelems; e++) {
        if (is_link(c, e))
            check_one_link(c, e);
        if (mu_xml_elem_is(c->doc, e, "net"))
            check_net(c, e);
    }
}
