/* SPDX-License-Identifier: BSD-3-Clause */
/* nccl_check.c - checks a whole NCCL topology file */
#include "spank/hw/nccl/nccl_check.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/parse.h"
#include "spank/hw/nccl/nccl_dialect.h"

/* RCCL files have the same elements but another version; NCCL would refuse them.
 * Returns false for a file of another kind, whose elements are not checked.
 */
static bool check_version(struct mu_check *c)
{
    char version[32];
    int root = 0;

    for (int e = 0; e < c->doc->nelems; e++)
        c->rccl |= mu_xml_elem_is(c->doc, e, "xgmi") ||
                   (mu_xml_elem_is(c->doc, e, "gpu") &&
                    mu_xml_elem_attr(c->doc, e, "gcn", version, sizeof version));
    if (!mu_xml_elem_is(c->doc, root, "system")) {
        mu_check_at(c, MU_NCCL_ERROR, root,
                    "the outermost element is not <system>: not a topology file%s",
                    mu_xml_elem_is(c->doc, root, "graphs") ? " but an NCCL graph"
                    : mu_xml_elem_is(c->doc, root, "topology")
                        ? " but hwloc's; muster topo --topology FILE --format nccl-xml "
                          "converts it"
                        : "");
        return c->verdict->parsable = false;
    }
    mu_xml_elem_attr(c->doc, root, "version", version, sizeof version);
    if (strcmp(version, c->rccl ? "2" : "1") == 0) {
        if (c->rccl)
            mu_check_at(c, MU_NCCL_HINT, root,
                        "an RCCL file (version 2): NCCL itself would refuse it");
        return true;
    }
    mu_check_at(c, MU_NCCL_ERROR, root, "version is \"%s\"; %s reads version %s only",
                version, c->rccl ? "RCCL" : "NCCL", c->rccl ? "2" : "1");
    c->verdict->parsable = false;
    return true;
}

static void check_hosts(struct mu_check *c)
{
    char first[64] = "", hash[64];

    for (int e = 0; e < c->doc->nelems; e++) {
        if (!mu_xml_elem_is(c->doc, e, "cpu") ||
            !mu_xml_elem_attr(c->doc, e, "host_hash", hash, sizeof hash))
            continue;
        if (first[0] && strcmp(first, hash) != 0) {
            mu_check_at(c, MU_NCCL_ERROR, e,
                        "a second host (host_hash %s): one node cannot use the dump of "
                        "a multi-node NVLink domain",
                        hash);
            return;
        }
        mu_copy(first, sizeof first, hash);
    }
}

/* <gpu> and <net> fix rank, device number and speed to those of the job that made the
 * dump.
 */
static void check_job_elements(struct mu_check *c)
{
    int first = -1, gpus = 0, nets = 0;

    for (int e = 0; e < c->doc->nelems; e++) {
        bool gpu = mu_xml_elem_is(c->doc, e, "gpu");
        bool net = mu_xml_elem_is(c->doc, e, "net");

        if ((gpu || net) && first < 0)
            first = e;
        gpus += gpu;
        nets += net;
    }
    if (first >= 0)
        mu_check_at(
            c, MU_NCCL_WARNING, first,
            "%d <gpu> and %d <net> elements belong to the job that wrote this dump; "
            "NCCL fails on a machine with fewer devices: keep <cpu> and <pci> only",
            gpus, nets);
}

static void check_elements(struct mu_check *c)
{
    check_hosts(c);
    mu_check_cpus(c);
    mu_check_pcis(c);
    mu_check_links(c);
    check_job_elements(c);
    if (c->machine)
        mu_check_compare(c);
}

void mu_nccl_check(const char *text, size_t len, const struct mu_machine *machine,
                   bool here,
                   void (*report)(void *arg, const struct mu_nccl_finding *finding),
                   void *arg, struct mu_nccl_verdict *verdict)
{
    struct mu_check *c = calloc(1, sizeof *c);
    struct mu_xml_doc doc;
    struct mu_err err = { 0 };
    const char *sentence;

    memset(verdict, 0, sizeof *verdict);
    if (!c) {
        struct mu_nccl_finding f = { MU_NCCL_ERROR, 0, "no memory" };

        verdict->errors = 1;
        report(arg, &f);
        return;
    }
    c->report = report;
    c->arg = arg;
    c->verdict = verdict;
    c->machine = machine;
    c->here = here;
    verdict->parsable = mu_nccl_parse(c, text, len);
    if (mu_xml_doc_parse("", text, len, &doc, &err) == 0 &&
        doc.nelems > MU_NCCL_ELEMENTS_MAX) {
        mu_check_report(c, MU_NCCL_ERROR, doc.elem[MU_NCCL_ELEMENTS_MAX].line,
                        "more than %d elements: not a topology file",
                        MU_NCCL_ELEMENTS_MAX);
    } else if (doc.nelems > 0 && !err.code) {
        c->doc = &doc;
        if (check_version(c))
            check_elements(c);
    } else if (strspn(text, " \r\n") == len) {
        mu_check_report(c, MU_NCCL_ERROR, 1, "the file is empty: NCCL ignores it");
    } else if (verdict->parsable) {
        /* ": line N: what" */
        sentence = strncmp(err.text, ": line ", 7) == 0 ? err.text + 2 : err.text;
        mu_check_report(c, MU_NCCL_ERROR, 0, "%s", sentence);
        verdict->parsable = false;
    }
    mu_xml_doc_clear(&doc);
    free(c);
}
