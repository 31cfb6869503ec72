/* SPDX-License-Identifier: BSD-3-Clause */
/* xml.h - a small XML reader that knows lines and forgives what people type by hand.
 *
 * NCCL's topology files are XML only roughly: dumps with digits typed between elements,
 * comments, a blank line first. libxml2 (and hwloc with it) gives no line for what is
 * wrong with the content, and drops parts without a word. No DTD, no entities but the
 * five of XML.
 */
#ifndef MU_XML_H
#define MU_XML_H

#include <stdbool.h>
#include <stddef.h>

#include "runtime/base/err.h"

#define MU_XML_ATTRS 64
#define MU_XML_DEPTH 128

enum mu_xml_kind {
    MU_XML_OPEN,  /* <name ...> or <name ... />, which gives a CLOSE as well */
    MU_XML_CLOSE, /* </name> */
    MU_XML_TEXT,  /* anything but blanks between tags */
    MU_XML_COMMENT,
    MU_XML_PROLOG, /* <?...?> and <!...> */
    MU_XML_END,
};

/* Borrowed from the text that is read. */
struct mu_xml_slice {
    const char *at;
    int len;
};

struct mu_xml_event {
    enum mu_xml_kind kind;
    int line; /* from 1 */
    struct mu_xml_slice name;
    int nattrs;
    struct {
        struct mu_xml_slice name, value;
    } attr[MU_XML_ATTRS];
    bool self_closed;
};

struct mu_xml {
    const char *file, *at, *end; /* borrowed */
    int line;
    int depth;
    struct mu_xml_slice open[MU_XML_DEPTH];
    int open_line[MU_XML_DEPTH];
    bool pending_close; /* after <name/> */
};

/* file is the name for messages; text need not end with a terminator. */
void mu_xml_start(struct mu_xml *xml, const char *file, const char *text, size_t len);

/* The next event; 0, or -1 with "FILE: line N: ..." in err. Elements must nest. */
int mu_xml_next(struct mu_xml *xml, struct mu_xml_event *event, struct mu_err *err);

bool mu_xml_is(const struct mu_xml_event *event, const char *name);

/* What an hwloc XML holds by its text alone. */
struct mu_xml_count {
    char version[16]; /* of the format, "" for hwloc 1 */
    int topology_line;
    int pci_devices;
    int odd_line; /* of the first comment or text between objects, 0 none */
};

int mu_xml_count_hwloc(const char *file, const char *text, size_t len,
                       struct mu_xml_count *count, struct mu_err *err);

/* A whole document, for readers that look back and forth. Elements are in document
 * order, so a parent comes before its children. Slices are borrowed from the text.
 */
struct mu_xml_elem {
    struct mu_xml_slice name;
    int line;
    int parent; /* -1 for the root */
    int first_attr, nattrs;
};

struct mu_xml_attr {
    struct mu_xml_slice name, value;
};

struct mu_xml_doc {
    const char *file; /* borrowed */
    int nelems;
    struct mu_xml_elem *elem;
    int nattrs;
    struct mu_xml_attr *attr;
    int text_line; /* of the first text between tags, 0 none */
};

/* Free with mu_xml_doc_clear, also after a failure. */
int mu_xml_doc_parse(const char *file, const char *text, size_t len,
                     struct mu_xml_doc *doc, struct mu_err *err);
void mu_xml_doc_clear(struct mu_xml_doc *doc);

bool mu_xml_elem_is(const struct mu_xml_doc *doc, int elem, const char *name);
/* Has the element a child of this name? */
bool mu_xml_elem_has(const struct mu_xml_doc *doc, int elem, const char *name);

/* Copy an attribute, entities replaced, into buf; false (and "") when it is absent.
 * A value that does not fit is cut.
 */
bool mu_xml_elem_attr(const struct mu_xml_doc *doc, int elem, const char *name,
                      char *buf, size_t len);

#endif
