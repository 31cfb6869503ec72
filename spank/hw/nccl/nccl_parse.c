/* SPDX-License-Identifier: BSD-3-Clause */
/* nccl_parse.c - whether NCCL's own reader accepts a topology file.
 *
 * NCCL does not read general XML, and communicator creation fails where its reader
 * stops. The rules, found by running NCCL 2.28 to 2.30:
 * - Blanks, line ends and comments between tags are skipped; a tab or text stops it.
 * - It stops at a declaration <?xml ...?>.
 * - Blanks separate attributes, all on the line of the tag. The 17th is dropped.
 * - A string has at most 255 characters.
 * - A file has at most 256 elements, so that the limit of 640 children has no effect.
 */
#include <stdio.h>
#include <string.h>

#include "spank/hw/nccl/nccl_check.h"
#include "spank/hw/nccl/nccl_dialect.h"

#define DEEPEST 128

struct scan {
    struct mu_check *c;
    const char *at, *end;
    int line;
    int elements;
    int depth;
    char name[DEEPEST][256];
};

static int next(struct scan *s)
{
    int ch;

    if (s->at == s->end)
        return -1;
    ch = (unsigned char)*s->at++;
    if (ch == '\n')
        s->line++;
    return ch;
}

static bool stop(struct scan *s, const char *what)
{
    mu_check_report(s->c, MU_NCCL_ERROR, s->line, "NCCL stops reading here: %s", what);
    return false;
}

/* The error is in the line that is not closed, not in the next one. */
static void step_back_over_newline(struct scan *s, int ch)
{
    if (ch == '\n')
        s->line--;
}

static const char *describe(int ch, char buf[32])
{
    if (ch < 0)
        return "the end of the file";
    if (ch == '\t')
        return "a tab";
    if (ch == '\n' || ch == '\r')
        return "a line break";
    if (ch < 32 || ch > 126)
        snprintf(buf, 32, "character 0x%02x", (unsigned)ch);
    else
        snprintf(buf, 32, "'%c'", ch);
    return buf;
}

/* Read up to a blank, '>', '/', '=' or a line end; *last is the character that ended
 * it.
 */
static bool token(struct scan *s, char *out, size_t size, int *last)
{
    size_t n = 0;
    int ch;

    while ((ch = next(s)) >= 0) {
        if (strchr(" >/=\n\r", ch) && ch)
            break;
        if (n >= MU_NCCL_STRING_MAX)
            return stop(s, "a name is longer than 255 characters");
        if (n + 1 < size)
            out[n] = (char)ch;
        n++;
        if (n == 3 && size > 3 && strncmp(out, "!--", 3) == 0)
            break;
    }
    out[n + 1 < size ? n : size - 1] = '\0';
    *last = ch;
    return ch >= 0 ? true : stop(s, "the file ends within a tag");
}

static bool value(struct scan *s, int *last)
{
    int quote = next(s), ch;
    size_t n = 0;
    char buf[32], text[96];

    if (quote != '"' && quote != '\'') {
        step_back_over_newline(s, quote);
        snprintf(text, sizeof text, "an attribute's value starts with %s, not a quote",
                 describe(quote, buf));
        return stop(s, text);
    }
    while ((ch = next(s)) >= 0 && ch != '"' && ch != '\'')
        if (++n > MU_NCCL_STRING_MAX)
            return stop(s, "a value is longer than 255 characters");
    if (ch < 0)
        return stop(s, "the file ends within a value");
    *last = next(s);
    return true;
}

static bool skip_comment(struct scan *s)
{
    int a = 0, b = 0, ch;

    while ((ch = next(s)) >= 0) {
        if (a == '-' && b == '-' && ch == '>')
            return true;
        a = b;
        b = ch;
    }
    return stop(s, "a comment is not closed");
}

/* Read the attributes behind the element's name, up to '>' or "/>". */
static bool attributes(struct scan *s, int last, bool *single)
{
    char name[256], buf[32], text[96];
    int count = 0;

    *single = false;
    while (last == ' ') {
        if (!token(s, name, sizeof name, &last))
            return false;
        if (last == '=' && !value(s, &last))
            return false;
        if (name[0] && ++count == MU_NCCL_ATTRS_MAX + 1)
            mu_check_report(s->c, MU_NCCL_WARNING, s->line,
                            "more than %d attributes: NCCL drops the rest",
                            MU_NCCL_ATTRS_MAX);
    }
    if (last == '/') {
        *single = true;
        last = next(s);
    }
    if (last == '>')
        return true;
    step_back_over_newline(s, last);
    snprintf(text, sizeof text, "expected '>' or a blank and an attribute, got %s",
             describe(last, buf));
    return stop(s, text);
}

static bool close_tag(struct scan *s)
{
    char name[256], text[256];
    int last;

    if (!token(s, name, sizeof name, &last))
        return false;
    if (last != '>')
        return stop(s, "a closing tag has no '>' right behind its name");
    if (s->depth == 0 || strcmp(name, s->name[s->depth - 1]) != 0) {
        snprintf(text, sizeof text, "</%.60s> closes %s%.60s", name,
                 s->depth ? "" : "nothing", s->depth ? s->name[s->depth - 1] : "");
        return stop(s, text);
    }
    s->depth--;
    return true;
}

static bool open_tag(struct scan *s, const char *name, int last)
{
    bool single;

    if (!attributes(s, last, &single))
        return false;
    if (++s->elements == MU_NCCL_NODES_MAX + 1)
        return stop(s, "more than 256 elements in one file");
    if (single)
        return true;
    if (s->depth == DEEPEST)
        return stop(s, "elements are nested too deep");
    snprintf(s->name[s->depth++], sizeof s->name[0], "%s", name);
    return true;
}

/* One tag, behind its '<'. */
static bool tag(struct scan *s)
{
    char name[256];
    int last;

    if (!token(s, name, sizeof name, &last))
        return false;
    if (strncmp(name, "!--", 3) == 0)
        return skip_comment(s);
    if (name[0] == '\0' && last == '/')
        return close_tag(s);
    if (name[0] == '?')
        return stop(s, "an XML declaration (<?xml ...?>): remove the line");
    return open_tag(s, name, last);
}

bool mu_nccl_parse(struct mu_check *c, const char *text, size_t len)
{
    struct scan s = { .c = c, .at = text, .end = text + len, .line = 1 };
    char buf[32], what[160];
    int ch;

    for (;;) {
        do
            ch = next(&s);
        while (ch == ' ' || ch == '\n' || ch == '\r');
        if (ch < 0)
            break;
        if (ch != '<') {
            snprintf(
                what, sizeof what, "%s where a tag must start: %s", describe(ch, buf),
                ch == '\t' ? "indent with blanks" : "remove the text between the tags");
            return stop(&s, what);
        }
        if (!tag(&s))
            return false;
    }
    if (s.depth > 0) {
        snprintf(what, sizeof what, "the file ends within <%.60s>",
                 s.name[s.depth - 1]);
        return stop(&s, what);
    }
    return true;
}
