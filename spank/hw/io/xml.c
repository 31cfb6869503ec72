/* SPDX-License-Identifier: BSD-3-Clause */
/* xml.c - tags, attributes and lines; what they mean is known elsewhere */
#include "spank/hw/io/xml.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void mu_xml_start(struct mu_xml *xml, const char *file, const char *text, size_t len)
{
    memset(xml, 0, sizeof *xml);
    xml->file = file;
    xml->at = text;
    xml->end = text + len;
    xml->line = 1;
    if (len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)
        xml->at += 3;
}

static int fail(const struct mu_xml *xml, int line, struct mu_err *err,
                const char *what)
{
    return mu_err_set(err, EINVAL, "%s: line %d: %s", xml->file, line, what);
}

static bool blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static bool name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           c == '_' || c == '-' || c == '.' || c == ':';
}

static void step(struct mu_xml *xml, size_t n)
{
    while (n-- > 0 && xml->at < xml->end)
        if (*xml->at++ == '\n')
            xml->line++;
}

static void skip_blanks(struct mu_xml *xml)
{
    while (xml->at < xml->end && blank(*xml->at))
        step(xml, 1);
}

static bool at(const struct mu_xml *xml, const char *text)
{
    size_t n = strlen(text);

    return (size_t)(xml->end - xml->at) >= n && memcmp(xml->at, text, n) == 0;
}

static struct mu_xml_slice take_name(struct mu_xml *xml)
{
    struct mu_xml_slice s = { xml->at, 0 };

    while (xml->at < xml->end && name_char(*xml->at) && s.len < 4096) {
        xml->at++;
        s.len++;
    }
    return s;
}

/* Move behind the next `stop`; false at the end of the text. */
static bool skip_past(struct mu_xml *xml, const char *stop)
{
    while (xml->at < xml->end) {
        if (at(xml, stop)) {
            step(xml, strlen(stop));
            return true;
        }
        step(xml, 1);
    }
    return false;
}

static int read_attr(struct mu_xml *xml, struct mu_xml_event *event, struct mu_err *err)
{
    struct mu_xml_slice name = take_name(xml), value;
    int line = xml->line;
    char quote;

    if (name.len == 0)
        return fail(xml, line, err, "expected an attribute or '>' in this tag");
    if (event->nattrs == MU_XML_ATTRS)
        return fail(xml, line, err, "more than 64 attributes in one element");
    skip_blanks(xml);
    if (!at(xml, "="))
        return fail(xml, line, err, "an attribute has no '=' after its name");
    step(xml, 1);
    skip_blanks(xml);
    if (!at(xml, "\"") && !at(xml, "'"))
        return fail(xml, line, err, "an attribute's value is not in quotes");
    quote = *xml->at;
    step(xml, 1);
    value.at = xml->at;
    while (xml->at < xml->end && *xml->at != quote && *xml->at != '<')
        step(xml, 1);
    if (xml->at == xml->end || *xml->at != quote)
        return fail(xml, line, err, "a quote is not closed");
    if (xml->at - value.at > 1 << 20)
        return fail(xml, line, err, "an attribute's value is longer than a mebibyte");
    value.len = (int)(xml->at - value.at);
    step(xml, 1);
    event->attr[event->nattrs].name = name;
    event->attr[event->nattrs++].value = value;
    return 0;
}

static int read_open(struct mu_xml *xml, struct mu_xml_event *event, struct mu_err *err)
{
    event->kind = MU_XML_OPEN;
    event->name = take_name(xml);
    if (event->name.len == 0)
        return fail(xml, event->line, err, "'<' is not followed by a name");
    for (;;) {
        skip_blanks(xml);
        if (xml->at == xml->end)
            return fail(xml, event->line, err,
                        "this tag is not closed: the file ends in it");
        if (at(xml, "/>")) {
            event->self_closed = true;
            break;
        }
        if (at(xml, ">"))
            break;
        if (read_attr(xml, event, err) < 0)
            return -1;
    }
    step(xml, event->self_closed ? 2 : 1);
    if (xml->depth == MU_XML_DEPTH)
        return fail(xml, event->line, err, "elements are nested more than 128 deep");
    xml->open[xml->depth] = event->name;
    xml->open_line[xml->depth++] = event->line;
    xml->pending_close = event->self_closed;
    return 0;
}

static int close_top(struct mu_xml *xml, struct mu_xml_event *event)
{
    event->kind = MU_XML_CLOSE;
    event->name = xml->open[--xml->depth];
    return 0;
}

static int read_close(struct mu_xml *xml, struct mu_xml_event *event,
                      struct mu_err *err)
{
    struct mu_xml_slice name = take_name(xml), open;

    skip_blanks(xml);
    if (!at(xml, ">"))
        return fail(xml, event->line, err, "a closing tag has no '>'");
    step(xml, 1);
    if (xml->depth == 0)
        return mu_err_set(err, EINVAL, "%s: line %d: </%.*s> closes nothing", xml->file,
                          event->line, name.len > 60 ? 60 : name.len, name.at);
    open = xml->open[xml->depth - 1];
    if (open.len != name.len || memcmp(open.at, name.at, (size_t)name.len) != 0)
        return mu_err_set(err, EINVAL, "%s: line %d: </%.*s> closes <%.*s> of line %d",
                          xml->file, event->line, name.len > 60 ? 60 : name.len,
                          name.at, open.len > 60 ? 60 : open.len, open.at,
                          xml->open_line[xml->depth - 1]);
    return close_top(xml, event);
}

int mu_xml_next(struct mu_xml *xml, struct mu_xml_event *event, struct mu_err *err)
{
    event->nattrs = 0;
    event->self_closed = false;
    event->name = (struct mu_xml_slice){ "", 0 };
    event->line = xml->line;
    if (xml->pending_close) {
        xml->pending_close = false;
        return close_top(xml, event);
    }
    skip_blanks(xml);
    event->line = xml->line;
    if (xml->at == xml->end) {
        if (xml->depth > 0)
            return mu_err_set(
                err, EINVAL, "%s: line %d: <%.*s> is never closed", xml->file,
                xml->open_line[xml->depth - 1],
                xml->open[xml->depth - 1].len > 60 ? 60 : xml->open[xml->depth - 1].len,
                xml->open[xml->depth - 1].at);
        event->kind = MU_XML_END;
        return 0;
    }
    if (*xml->at != '<') {
        event->kind = MU_XML_TEXT;
        while (xml->at < xml->end && *xml->at != '<')
            step(xml, 1);
        return 0;
    }
    if (at(xml, "<!--")) {
        event->kind = MU_XML_COMMENT;
        if (!skip_past(xml, "-->"))
            return fail(xml, event->line, err, "a comment is not closed");
        return 0;
    }
    if (at(xml, "<?") || at(xml, "<!")) {
        event->kind = MU_XML_PROLOG;
        if (!skip_past(xml, ">"))
            return fail(xml, event->line, err, "a declaration is not closed");
        return 0;
    }
    if (at(xml, "</")) {
        step(xml, 2);
        return read_close(xml, event, err);
    }
    step(xml, 1);
    return read_open(xml, event, err);
}

static bool same(struct mu_xml_slice s, const char *text)
{
    return strlen(text) == (size_t)s.len && memcmp(s.at, text, (size_t)s.len) == 0;
}

bool mu_xml_is(const struct mu_xml_event *event, const char *name)
{
    return same(event->name, name);
}

static char entity(const char **p, const char *end)
{
    static const struct {
        const char *text;
        char c;
    } all[] = { { "&amp;", '&' },
                { "&lt;", '<' },
                { "&gt;", '>' },
                { "&quot;", '"' },
                { "&apos;", '\'' } };

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        size_t n = strlen(all[i].text);

        if ((size_t)(end - *p) >= n && memcmp(*p, all[i].text, n) == 0) {
            *p += n;
            return all[i].c;
        }
    }
    return *(*p)++;
}

/* Copy a value, entities replaced, cut to len. */
static void copy_value(struct mu_xml_slice value, char *buf, size_t len)
{
    const char *p = value.at, *end = p + value.len;
    size_t n = 0;

    while (p < end && n + 1 < len) {
        char c = entity(&p, end);

        if (c != '\0')
            buf[n++] = c;
    }
    buf[n] = '\0';
}

static bool event_attr(const struct mu_xml_event *event, const char *name, char *buf,
                       size_t len)
{
    buf[0] = '\0';
    for (int i = 0; i < event->nattrs; i++)
        if (same(event->attr[i].name, name)) {
            copy_value(event->attr[i].value, buf, len);
            return true;
        }
    return false;
}

int mu_xml_count_hwloc(const char *file, const char *text, size_t len,
                       struct mu_xml_count *count, struct mu_err *err)
{
    struct mu_xml_event event;
    struct mu_xml xml;
    char type[32];

    memset(count, 0, sizeof *count);
    mu_xml_start(&xml, file, text, len);
    do {
        if (mu_xml_next(&xml, &event, err) < 0)
            return -1;
        if (event.kind == MU_XML_OPEN && mu_xml_is(&event, "topology")) {
            event_attr(&event, "version", count->version, sizeof count->version);
            count->topology_line = event.line;
        }
        if (event.kind == MU_XML_OPEN && mu_xml_is(&event, "object") &&
            event_attr(&event, "type", type, sizeof type) &&
            strcmp(type, "PCIDev") == 0)
            count->pci_devices++;
        if ((event.kind == MU_XML_TEXT || event.kind == MU_XML_COMMENT) &&
            xml.depth > 0 && same(xml.open[xml.depth - 1], "object") &&
            !count->odd_line)
            count->odd_line = event.line;
    } while (event.kind != MU_XML_END);
    if (!count->topology_line)
        return mu_err_set(err, EINVAL, "%s: line 1: no <topology> in it", file);
    return 0;
}

bool mu_xml_elem_is(const struct mu_xml_doc *doc, int elem, const char *name)
{
    return elem >= 0 && same(doc->elem[elem].name, name);
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
    const struct mu_xml_elem *e = &doc->elem[elem];

    buf[0] = '\0';
    for (int i = e->first_attr; i < e->first_attr + e->nattrs; i++)
        if (same(doc->attr[i].name, name)) {
            copy_value(doc->attr[i].value, buf, len);
            return true;
        }
    return false;
}

/* Room for one more element and its attributes; sizes double. */
static int reserve(struct mu_xml_doc *doc, int attrs, int *room_elem, int *room_attr,
                   struct mu_err *err)
{
    while (doc->nelems >= *room_elem) {
        void *more =
            realloc(doc->elem, sizeof *doc->elem * (size_t)(*room_elem * 2 + 64));

        if (!more)
            return mu_err_set(err, ENOMEM, "%s: no memory to read it", doc->file);
        doc->elem = more;
        *room_elem = *room_elem * 2 + 64;
    }
    while (doc->nattrs + attrs > *room_attr) {
        void *more =
            realloc(doc->attr, sizeof *doc->attr * (size_t)(*room_attr * 2 + 256));

        if (!more)
            return mu_err_set(err, ENOMEM, "%s: no memory to read it", doc->file);
        doc->attr = more;
        *room_attr = *room_attr * 2 + 256;
    }
    return 0;
}

static int add_elem(struct mu_xml_doc *doc, const struct mu_xml_event *event,
                    int parent, int room[2], struct mu_err *err)
{
    struct mu_xml_elem *e;

    if (doc->nelems >= 65536)
        return mu_err_set(err, EINVAL, "%s: line %d: more than 65536 elements",
                          doc->file, event->line);
    if (reserve(doc, event->nattrs, &room[0], &room[1], err) < 0)
        return -1;
    e = &doc->elem[doc->nelems++];
    e->name = event->name;
    e->line = event->line;
    e->parent = parent;
    e->first_attr = doc->nattrs;
    e->nattrs = event->nattrs;
    for (int i = 0; i < event->nattrs; i++) {
        doc->attr[doc->nattrs].name = event->attr[i].name;
        doc->attr[doc->nattrs++].value = event->attr[i].value;
    }
    return 0;
}

int mu_xml_doc_parse(const char *file, const char *text, size_t len,
                     struct mu_xml_doc *doc, struct mu_err *err)
{
    int stack[MU_XML_DEPTH + 1], top = 0, room[2] = { 0, 0 };
    struct mu_xml_event event;
    struct mu_xml xml;

    memset(doc, 0, sizeof *doc);
    doc->file = file;
    mu_xml_start(&xml, file, text, len);
    stack[0] = -1;
    do {
        if (mu_xml_next(&xml, &event, err) < 0)
            return -1;
        if (event.kind == MU_XML_TEXT && !doc->text_line)
            doc->text_line = event.line;
        if (event.kind == MU_XML_OPEN) {
            if (add_elem(doc, &event, stack[top], room, err) < 0)
                return -1;
            stack[++top] = doc->nelems - 1;
        }
        if (event.kind == MU_XML_CLOSE)
            top--;
    } while (event.kind != MU_XML_END);
    if (doc->nelems == 0)
        return mu_err_set(err, EINVAL, "%s: line 1: no element in it", file);
    return 0;
}

void mu_xml_doc_clear(struct mu_xml_doc *doc)
{
    free(doc->elem);
    free(doc->attr);
    memset(doc, 0, sizeof *doc);
}
