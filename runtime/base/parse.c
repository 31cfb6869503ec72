/* SPDX-License-Identifier: BSD-3-Clause */
#include "runtime/base/parse.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

int mu_parse_int(const char *what, const char *text, long min, long max, long *out,
                 struct mu_err *err)
{
    char *end;
    long n;

    errno = 0;
    n = strtol(text, &end, 10);
    if (end == text || *end || isspace((unsigned char)text[0]) || errno == ERANGE ||
        n < min || n > max)
        return mu_err_set(err, EINVAL, "%s takes a number from %ld to %ld, not '%.80s'",
                          what, min, max, text);
    *out = n;
    return 0;
}

int mu_parse_double(const char *what, const char *text, double min, double max,
                    double *out, struct mu_err *err)
{
    char *end;
    double d;

    errno = 0;
    d = strtod(text, &end);
    if (end == text || *end || isspace((unsigned char)text[0]) ||
        !(d >= min && d <= max))
        return mu_err_set(err, EINVAL, "%s takes a number from %g to %g, not '%.80s'",
                          what, min, max, text);
    *out = d;
    return 0;
}

int mu_parse_size(const char *what, const char *text, uint64_t max, uint64_t *out,
                  struct mu_err *err)
{
    static const char *const units[] = { "", "k", "m", "g", "t", NULL };
    char unit[4] = "";
    char *end;
    unsigned long long n;
    int shift;

    errno = 0;
    n = strtoull(text, &end, 10);
    if (end == text || !isdigit((unsigned char)text[0]) || errno == ERANGE)
        goto bad;
    if (!mu_copy(unit, sizeof unit, end))
        goto bad;
    if (strcasecmp(unit + (unit[0] != 0), "ib") == 0 ||
        strcasecmp(unit + (unit[0] != 0), "b") == 0 || strcasecmp(unit, "b") == 0)
        unit[strcasecmp(unit, "b") != 0] = '\0';
    unit[0] = (char)tolower((unsigned char)unit[0]);
    shift = mu_parse_word(unit, units);
    if (shift < 0 || n > max >> 10 * shift)
        goto bad;
    *out = (uint64_t)n << 10 * shift;
    return 0;
bad:
    return mu_err_set(err, EINVAL, "%s takes bytes up to %llu, like 25M, not '%.80s'",
                      what, (unsigned long long)max, text);
}

int mu_parse_word(const char *text, const char *const *words)
{
    for (int i = 0; words[i]; i++)
        if (strcmp(text, words[i]) == 0)
            return i;
    return -1;
}

char *mu_parse_next(char **rest, char sep)
{
    char *item = *rest;

    if (item) {
        char *at = strchr(item, sep);

        if (at)
            *at++ = '\0';
        *rest = at;
    }
    return item;
}

bool mu_copy(char *dst, size_t len, const char *src)
{
    size_t n = strlen(src);

    if (len == 0)
        return false;
    memcpy(dst, src, n < len ? n : len - 1);
    dst[n < len ? n : len - 1] = '\0';
    return n < len;
}

/* Bytes of the printable UTF-8 character at c; 0: it is none. */
static int printable_len(const unsigned char *c)
{
    /* The second byte is narrower behind some first bytes: no C1 controls, no longer
     * form of a shorter character, no half of a surrogate pair, nothing above U+10FFFF.
     */
    unsigned char least = *c == 0xc2   ? 0xa0
                          : *c == 0xe0 ? 0xa0
                          : *c == 0xf0 ? 0x90
                                       : 0x80;
    unsigned char most = *c == 0xed ? 0x9f : *c == 0xf4 ? 0x8f : 0xbf;
    int len = *c < 0xe0 ? 2 : *c < 0xf0 ? 3 : 4;

    if (*c < 0x80)
        return (*c >= ' ' && *c != 0x7f) || *c == '\t';
    if (*c < 0xc2 || *c > 0xf4 || c[1] < least || c[1] > most)
        return 0;
    for (int i = 2; i < len; i++)
        if ((c[i] & 0xc0) != 0x80)
            return 0;
    return len;
}

void mu_make_printable(char *text)
{
    while (*text) {
        int len = printable_len((const unsigned char *)text);

        if (len == 0)
            *text = '?';
        text += len ? len : 1;
    }
}
