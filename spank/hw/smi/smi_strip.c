/* SPDX-License-Identifier: BSD-3-Clause */
/* smi_strip.c - extracts the table of nvidia-smi from text of terminals, mails, reports
 */
#include <stdio.h>
#include <string.h>

#include "spank/hw/smi/smi_text.h"

/* How many characters at p are no part of the table; *as replaces them, '\0': nothing.
 */
static size_t skip(const char *p, bool first, char *as)
{
    size_t n = 2;

    *as = '\0';
    if (first && strncmp(p, "\xef\xbb\xbf", 3) == 0)
        return 3;
    if (p[0] == '\033' && p[1] == '[') {
        while (p[n] && !(p[n] >= '@' && p[n] <= '~'))
            n++;
        return p[n] ? n + 1 : n;
    }
    if (p[0] == '\033')
        return 1;
    if (p[0] == '\r') {
        *as = p[1] == '\n' || p[1] == '\r' ? '\0' : '\n';
        return 1;
    }
    if (strncmp(p, "\xc2\xa0", 2) == 0 || p[0] == '|') {
        *as = ' ';
        return p[0] == '|' ? 1 : 2;
    }
    return 0;
}

/* The prefix of the header's GPU0, and so of every line: marks, or a word with a colon.
 * Returns its length without the blanks behind it.
 */
static size_t prefix_of(const char *line)
{
    size_t n = strcspn(line, "\n");
    const char *gpu = memmem(line, n, "GPU0", 4), *end = gpu;
    const char *word = line + strspn(line, " \t");

    while (end && end > word && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    if (!gpu || end <= word)
        return 0;
    if (end[-1] == ':' || (word[0] == '[' && end[-1] == ']'))
        return strcspn(word, " \t") == (size_t)(end - word) ? (size_t)(end - line) : 0;
    for (const char *p = word; p < end; p++)
        if (!strchr(" \t>#/*;%+", *p))
            return 0;
    return (size_t)(end - line);
}

/* Find a header behind a prefix, and remove that prefix from all lines. */
static void strip_prefix(char *text)
{
    char prefix[128], *out = text;
    size_t n = 0;

    for (const char *line = text; n == 0 && *line;) {
        size_t len = strcspn(line, "\n");
        char copy[512];

        n = prefix_of(line);
        snprintf(copy, sizeof copy, "%.*s", (int)(len - n < 511 ? len - n : 511),
                 line + n);
        if (n >= sizeof prefix || (n > 0 && !mu_smi_is_header(copy)))
            n = 0;
        snprintf(prefix, sizeof prefix, "%.*s", (int)n, line);
        line += len + (line[len] == '\n');
    }
    if (n == 0)
        return;
    for (const char *p = text; *p;) {
        if (strncmp(p, prefix, n) == 0)
            p += n;
        while (*p && *p != '\n')
            *out++ = *p++;
        if (*p)
            *out++ = *p++;
    }
    *out = '\0';
}

void mu_smi_strip(char *text)
{
    char *out = text, as;

    for (const char *p = text; *p;) {
        size_t n = skip(p, p == text, &as);

        if (n == 0)
            *out++ = *p++;
        else if (as)
            *out++ = as;
        p += n;
    }
    *out = '\0';
    strip_prefix(text);
}
