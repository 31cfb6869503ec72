/* SPDX-License-Identifier: BSD-3-Clause */
/* nccl_check.h - shared by the files that check an NCCL topology file: nccl_check.c
 * calls the rules, which call nccl_report.c and nccl_elements.c
 */
#ifndef MU_NCCL_CHECK_H
#define MU_NCCL_CHECK_H

#include "spank/hw/machine/machine.h"
#include "spank/hw/io/xml.h"

#define MU_CHECK_CPUS 256

/* One <cpu> of the file. */
struct mu_check_cpu {
    int elem;
    int numaid; /* -1: not known in the file, -2: missing or malformed */
    bool has_mask;
    bool incomplete; /* already reported */
    struct mu_cpuset mask;
};

struct mu_check {
    const struct mu_xml_doc *doc;
    const struct mu_machine *machine; /* NULL: the file is checked by itself */
    bool here;
    bool rccl; /* AMD's fork: format version 2, <xgmi> */
    int ncpus;
    struct mu_check_cpu cpu[MU_CHECK_CPUS];
    void (*report)(void *arg, const struct mu_nccl_finding *finding);
    void *arg;
    struct mu_nccl_verdict *verdict;
};

void mu_check_report(struct mu_check *c, enum mu_nccl_level level, int line,
                     const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* As mu_check_report, at the line of an element. */
#define mu_check_at(c, level, index, ...)                                              \
    mu_check_report((c), (level), (c)->doc->elem[index].line, __VA_ARGS__)

/* The CPUs as a list for a sentence, cut with "..."; "none" for the empty set. */
#define MU_CHECK_LIST 256
void mu_check_list(const struct mu_cpuset *set, char buf[MU_CHECK_LIST]);

/* Whether NCCL's own reader accepts the text; the place where it stops is reported. */
bool mu_nccl_parse(struct mu_check *c, const char *text, size_t len);

/* The element's <cpu> (index into cpu[]), -1. */
int mu_check_cpu_of(const struct mu_check *c, int elem);

/* The first <pci> element with this bus id, as it is written; -1. */
int mu_check_pci_with(const struct mu_check *c, const char *busid);

/* The kinds a <pci> may be. */
enum mu_check_pci { MU_CHECK_SWITCH, MU_CHECK_GPU, MU_CHECK_NIC, MU_CHECK_OTHER };
enum mu_check_pci mu_check_kind(const struct mu_check *c, int elem);

/* Rules of the file alone, and against a machine. */
void mu_check_cpus(struct mu_check *c);
void mu_check_pcis(struct mu_check *c);
void mu_check_links(struct mu_check *c);
void mu_check_compare(struct mu_check *c);

#endif
