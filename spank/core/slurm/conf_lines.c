/* SPDX-License-Identifier: BSD-3-Clause */
/* conf_lines.c - parses lines of slurm.conf and gres.conf */
#include "spank/core/slurm/conf_lines.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

#define BLANKS " \t\r"

/* The newline of a continued line is moved after its last part, so that the following
 * lines keep their numbers. In place: out never passes in.
 */
void mu_slurm_conf_join(char *text)
{
    char *out = text;
    size_t moved = 0;

    for (const char *in = text; *in;) {
        size_t blanks = in[0] != '\\' ? 0 : in[1] == '\r' ? 2 : 1;

        if (blanks > 0 && in[blanks] == '\n') {
            memset(out, ' ', blanks);
            out += blanks;
            in += blanks + 1;
            moved++;
            continue;
        }
        if (*in == '\n') {
            memset(out, '\n', moved);
            out += moved;
            moved = 0;
        }
        *out++ = *in++;
    }
    memset(out, ' ', moved);
}

/* The end of the line without its comment. */
static const char *end_of(const char *line)
{
    const char *end = line;

    while (*end && *end != '\n' && !(*end == '#' && (end == line || end[-1] != '\\')))
        end++;
    return end;
}

static const char *skip_blanks(const char *at, const char *end)
{
    while (at < end && strchr(BLANKS, *at))
        at++;
    return at;
}

struct pair {
    const char *key, *value;
    size_t nkey, nvalue;
};

/* Read the next KEY=VALUE at *at and advance *at past it; words without '=' are
 * skipped.
 */
static bool next_pair(const char **at, const char *end, struct pair *pair)
{
    while ((*at = skip_blanks(*at, end)) < end) {
        const char *p = *at;

        pair->key = p;
        while (p < end && (isalnum((unsigned char)*p) || *p == '_' || *p == '.'))
            p++;
        pair->nkey = (size_t)(p - pair->key);
        p = skip_blanks(p, end);
        if (p == end || *p != '=' || pair->nkey == 0) {
            *at += pair->nkey > 0 ? pair->nkey : 1;
            continue;
        }
        p = skip_blanks(p + 1, end);
        pair->value = p;
        if (p < end && *p == '"' && memchr(p + 1, '"', (size_t)(end - p - 1))) {
            pair->value = ++p;
            p = memchr(p, '"', (size_t)(end - p));
            *at = p + 1;
        } else {
            while (p < end && !strchr(BLANKS, *p))
                p++;
            *at = p;
        }
        pair->nvalue = (size_t)(p - pair->value);
        return true;
    }
    return false;
}

bool mu_slurm_value(const char *line, const char *key, char *buf, size_t len)
{
    const char *end = end_of(line);
    struct pair pair;

    buf[0] = '\0';
    while (next_pair(&line, end, &pair)) {
        if (pair.nkey != strlen(key) || strncasecmp(pair.key, key, pair.nkey) != 0)
            continue;
        if (pair.nvalue >= len)
            return false;
        memcpy(buf, pair.value, pair.nvalue);
        buf[pair.nvalue] = '\0';
        return true;
    }
    return false;
}

bool mu_slurm_text_value(const char *text, const char *key, char *buf, size_t len)
{
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (mu_slurm_value(line, key, buf, len))
            return true;
    }
    return false;
}

bool mu_slurm_include_of_line(const char *line, char *out, size_t len)
{
    const char *end = end_of(line);
    size_t n = 0;

    line = skip_blanks(line, end);
    if (strncasecmp(line, "Include", 7) != 0 || line + 7 >= end ||
        !strchr(BLANKS, line[7]))
        return false;
    line = skip_blanks(line + 7, end);
    while (line + n < end && !strchr(BLANKS, line[n]))
        n++;
    if (n == 0 || n >= len)
        return false;
    memcpy(out, line, n);
    out[n] = '\0';
    return true;
}
