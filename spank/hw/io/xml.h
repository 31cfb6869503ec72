/* SPDX-License-Identifier: BSD-3-Clause */
/* xml.h - reads a document with expat into elements with their lines.
 *
 * People edit these files by hand, so some errors are accepted: text between elements,
 * dashes in a comment, blank lines before the declaration, a shell prompt after the
 * end. libxml2 (and hwloc with it) drops what follows a comment without an error. A
 * document that declares entities or attributes of its own is refused.
 */
#ifndef MU_XML_H
#define MU_XML_H

#include <stdbool.h>
#include <stddef.h>

#include "runtime/base/err.h"

#define MU_XML_ATTRS 64
#define MU_XML_DEPTH 128
#define MU_XML_ELEMENTS (1 << 20)

/* Elements are in document order, so a parent comes before its children. */
struct mu_xml_elem {
    const char *name; /* followed by name, value, name, value ..., each a string */
    int nattrs;
    int line;   /* from 1 */
    int parent; /* -1 for the root */
};

struct mu_xml_doc {
    const char *file; /* borrowed */
    int nelems, room;
    struct mu_xml_elem *elem;
    char *strings; /* those of the elements */
    size_t used;
    int odd_line; /* of the first comment or text directly in an <object>, 0 none */
};

/* file is the name for messages; text need not end with a terminator. -1 with
 * "FILE: line N: ..." in err. Free with mu_xml_doc_clear, also after a failure.
 */
int mu_xml_doc_parse(const char *file, const char *text, size_t len,
                     struct mu_xml_doc *doc, struct mu_err *err);
/* The same up to the root's attributes: doc has one element. */
int mu_xml_root_parse(const char *file, const char *text, size_t len,
                      struct mu_xml_doc *doc, struct mu_err *err);
void mu_xml_doc_clear(struct mu_xml_doc *doc);

bool mu_xml_elem_is(const struct mu_xml_doc *doc, int elem, const char *name);
/* Has the element a child of this name? */
bool mu_xml_elem_has(const struct mu_xml_doc *doc, int elem, const char *name);

/* Copy an attribute into buf; false (and "") when it is absent. A value that does not
 * fit is cut.
 */
bool mu_xml_elem_attr(const struct mu_xml_doc *doc, int elem, const char *name,
                      char *buf, size_t len);

/* What the text of an hwloc XML contains. */
struct mu_xml_count {
    char version[16]; /* of the format, "" for hwloc 1 */
    int topology_line;
    int pci_devices;
    int odd_line; /* of the first comment or text between objects, 0 none */
};

int mu_xml_count_hwloc(const char *file, const char *text, size_t len,
                       struct mu_xml_count *count, struct mu_err *err);

#endif
