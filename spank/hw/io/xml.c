/* SPDX-License-Identifier: BSD-3-Clause */
/* xml.c - elements, attributes and lines of a document, for readers that interpret them
 */
#include "spank/hw/io/xml.h"

#include <errno.h>
#include <expat.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/parse.h"

/* expat 2.9 has these with 64 bits, and warns of the older names. */
#if XML_MAJOR_VERSION == 2 && XML_MINOR_VERSION < 9
#define XML_GetCurrentLineNumber64 XML_GetCurrentLineNumber
#define XML_GetCurrentByteIndex64 XML_GetCurrentByteIndex
#endif

struct scan {
    XML_Parser parser;
    struct mu_xml_doc *doc;
    struct mu_err *err;
    int lines_before; /* skipped before the text that expat reads */
    bool root_only;
    bool refused; /* by us: err is set */
    int depth;
    int open[MU_XML_DEPTH]; /* elements */
};

static bool blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static int line(const struct scan *s)
{
    return s->lines_before + (int)XML_GetCurrentLineNumber64(s->parser);
}

/* No more elements; a handler may still be called once. */
static void refuse(struct scan *s, int code, const char *what)
{
    mu_err_set(s->err, code, "%s: line %d: %s", s->doc->file, line(s), what);
    s->refused = true;
    XML_StopParser(s->parser, XML_FALSE);
}

/* The buffer is large enough: a string takes at most twice its part of the text. */
static const char *keep(struct mu_xml_doc *doc, const char *string)
{
    size_t size = strlen(string) + 1;

    doc->used += size;
    return memcpy(doc->strings + doc->used - size, string, size);
}

static bool add_elem(struct mu_xml_doc *doc, struct mu_xml_elem elem)
{
    int room = doc->room * 2 + 64;

    if (doc->nelems == doc->room) {
        void *more = realloc(doc->elem, sizeof *doc->elem * (size_t)room);

        if (!more)
            return false;
        doc->elem = more;
        doc->room = room;
    }
    doc->elem[doc->nelems++] = elem;
    return true;
}

static void on_open(void *arg, const XML_Char *name, const XML_Char **attr)
{
    struct scan *s = arg;
    struct mu_xml_elem elem = { NULL, 0, line(s), -1 };

    if (s->refused)
        return;
    if (s->depth == MU_XML_DEPTH) {
        refuse(s, EINVAL, "elements are nested more than 128 deep");
        return;
    }
    if (s->doc->nelems == MU_XML_ELEMENTS) {
        refuse(s, EINVAL, "more than 1048576 elements");
        return;
    }
    elem.name = keep(s->doc, name);
    for (; attr[2 * elem.nattrs]; elem.nattrs++) {
        keep(s->doc, attr[2 * elem.nattrs]);
        keep(s->doc, attr[2 * elem.nattrs + 1]);
    }
    if (elem.nattrs > MU_XML_ATTRS)
        refuse(s, EINVAL, "more than 64 attributes in one element");
    if (s->depth > 0)
        elem.parent = s->open[s->depth - 1];
    s->open[s->depth++] = s->doc->nelems;
    if (!add_elem(s->doc, elem))
        refuse(s, ENOMEM, "no memory to read it");
    if (s->root_only)
        XML_StopParser(s->parser, XML_FALSE);
}

static void on_close(void *arg, const XML_Char *name)
{
    struct scan *s = arg;

    if (!s->refused)
        s->depth--;
}

static void on_text(void *arg, const XML_Char *text, int len)
{
    struct scan *s = arg;
    struct mu_xml_doc *doc = s->doc;

    if (!doc->odd_line && s->depth > 0 &&
        mu_xml_elem_is(doc, s->open[s->depth - 1], "object"))
        for (int i = 0; i < len && !doc->odd_line; i++)
            if (!blank(text[i]))
                doc->odd_line = line(s);
}

static void on_comment(void *arg, const XML_Char *text)
{
    on_text(arg, "-", 1);
}

/* Declarations can define entities that grow without bound, and attributes that the
 * file itself does not contain.
 */
static void on_doctype(void *arg, const XML_Char *name, const XML_Char *system_id,
                       const XML_Char *public_id, int has_declarations)
{
    if (has_declarations)
        refuse(arg, EINVAL, "<!DOCTYPE> declares something in [ ]: remove that part");
}

/* NCCL accepts dashes and any byte in a comment; XML forbids them. */
static void blank_comments(char *text)
{
    for (char *end; (text = strstr(text, "<!--")); text = end) {
        text += strlen("<!--");
        end = strstr(text, "-->");
        if (!end)
            return;
        for (; text < end; text++)
            if (*text != '\n')
                *text = ' ';
    }
}

/* The line of the tag in which expat stopped: it detects an open quote only further
 * down.
 */
static int tag_line(const struct scan *s, const char *text, int64_t at)
{
    int first = line(s);

    for (bool quote = text[at] == '<'; at > 0 && text[at - 1] != '<'; at--) {
        if (text[at - 1] == '>' && !quote)
            return line(s);
        first -= text[at - 1] == '\n';
    }
    return first;
}

/* Report why expat stopped; text is its input. */
static int explain(const struct scan *s, const char *text)
{
    const struct mu_xml_doc *doc = s->doc;
    const struct mu_xml_elem *open =
        s->depth ? &doc->elem[s->open[s->depth - 1]] : NULL;
    enum XML_Error error = XML_GetErrorCode(s->parser);
    int64_t at = XML_GetCurrentByteIndex64(s->parser);
    const char *what = XML_ErrorString(error);

    if (s->refused)
        return -1;
    if ((s->root_only || (!open && text[at] != '<')) && doc->nelems)
        return 0; /* the latter: a shell prompt after the end */
    if (error == XML_ERROR_NO_ELEMENTS && !open)
        return mu_err_set(s->err, EINVAL, "%s: line 1: the file has no element",
                          doc->file);
    if (error == XML_ERROR_NO_ELEMENTS)
        return mu_err_set(s->err, EINVAL, "%s: line %d: <%.60s> is never closed",
                          doc->file, open->line, open->name);
    if (error == XML_ERROR_TAG_MISMATCH)
        return mu_err_set(s->err, EINVAL,
                          "%s: line %d: this tag does not close <%.60s> of line %d",
                          doc->file, line(s), open->name, open->line);
    if (error == XML_ERROR_UNCLOSED_TOKEN)
        what = "the file ends within this tag or comment";
    if (error != XML_ERROR_INVALID_TOKEN)
        return mu_err_set(s->err, EINVAL, "%s: line %d: %s", doc->file, line(s), what);
    return mu_err_set(
        s->err, EINVAL, "%s: line %d: %s", doc->file, tag_line(s, text, at),
        text[at] == '<' ? "a quote is not closed"
                        : "this is not XML; save it as UTF-8, and write & as &amp;");
}

static int feed(struct scan *s, const char *text, size_t len)
{
    char *copy = XML_GetBuffer(s->parser, (int)len + 1);

    s->doc->strings = malloc(2 * len + 1);
    if (!copy || !s->doc->strings)
        return mu_err_set(s->err, ENOMEM, "%s: no memory to read it", s->doc->file);
    memcpy(copy, text, len);
    copy[len] = '\0';
    blank_comments(copy);
    XML_SetUserData(s->parser, s);
    XML_SetElementHandler(s->parser, on_open, on_close);
    XML_SetCharacterDataHandler(s->parser, on_text);
    XML_SetCommentHandler(s->parser, on_comment);
    XML_SetStartDoctypeDeclHandler(s->parser, on_doctype);
    if (XML_ParseBuffer(s->parser, (int)len, XML_TRUE) == XML_STATUS_OK)
        return 0;
    return explain(s, copy);
}

/* Skip the first blanks: expat accepts none before a declaration. */
static int parse(struct scan *s, const char *file, const char *text, size_t len)
{
    size_t at = len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    int rc;

    memset(s->doc, 0, sizeof *s->doc);
    s->doc->file = file;
    if (len >= INT_MAX / 2)
        return mu_err_set(s->err, EFBIG, "%s: larger than 1 GiB", file);
    for (; at < len && blank(text[at]); at++)
        s->lines_before += text[at] == '\n';
    s->parser = XML_ParserCreate(NULL);
    if (!s->parser)
        return mu_err_set(s->err, ENOMEM, "%s: no memory to read it", file);
    rc = feed(s, text + at, len - at);
    XML_ParserFree(s->parser);
    return rc;
}

int mu_xml_doc_parse(const char *file, const char *text, size_t len,
                     struct mu_xml_doc *doc, struct mu_err *err)
{
    struct scan s = { .doc = doc, .err = err };

    return parse(&s, file, text, len);
}

int mu_xml_root_parse(const char *file, const char *text, size_t len,
                      struct mu_xml_doc *doc, struct mu_err *err)
{
    struct scan s = { .doc = doc, .err = err, .root_only = true };

    return parse(&s, file, text, len);
}

void mu_xml_doc_clear(struct mu_xml_doc *doc)
{
    free(doc->elem);
    free(doc->strings);
    memset(doc, 0, sizeof *doc);
}

bool mu_xml_elem_is(const struct mu_xml_doc *doc, int elem, const char *name)
{
    return elem >= 0 && strcmp(doc->elem[elem].name, name) == 0;
}

bool mu_xml_elem_has(const struct mu_xml_doc *doc, int elem, const char *name)
{
    for (int e = elem + 1; e < doc->nelems && doc->elem[e].parent >= elem; e++)
        if (doc->elem[e].parent == elem && mu_xml_elem_is(doc, e, name))
            return true;
    return false;
}

bool mu_xml_elem_attr(const struct mu_xml_doc *doc, int elem, const char *name,
                      char *buf, size_t len)
{
    const char *at = doc->elem[elem].name, *value;

    buf[0] = '\0';
    at += strlen(at) + 1;
    for (int i = 0; i < doc->elem[elem].nattrs; i++, at = value + strlen(value) + 1) {
        value = at + strlen(at) + 1;
        if (strcmp(at, name) == 0) {
            mu_copy(buf, len, value);
            return true;
        }
    }
    return false;
}

int mu_xml_count_hwloc(const char *file, const char *text, size_t len,
                       struct mu_xml_count *count, struct mu_err *err)
{
    struct mu_xml_doc doc;
    char type[32];
    int rc = mu_xml_doc_parse(file, text, len, &doc, err);

    memset(count, 0, sizeof *count);
    count->odd_line = doc.odd_line;
    for (int e = 0; rc == 0 && e < doc.nelems; e++) {
        if (mu_xml_elem_is(&doc, e, "topology")) {
            mu_xml_elem_attr(&doc, e, "version", count->version, sizeof count->version);
            count->topology_line = doc.elem[e].line;
        }
        if (mu_xml_elem_is(&doc, e, "object") &&
            mu_xml_elem_attr(&doc, e, "type", type, sizeof type))
            count->pci_devices += strcmp(type, "PCIDev") == 0;
    }
    if (rc == 0 && !count->topology_line)
        rc = mu_err_set(err, EINVAL, "%s: line 1: the file has no <topology>", file);
    mu_xml_doc_clear(&doc);
    return rc;
}
