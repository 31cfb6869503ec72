/* SPDX-License-Identifier: BSD-3-Clause */
/* hostlist.c - expands and writes Slurm's compressed host names */
#include "spank/core/slurm/hostlist.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/parse.h"

int mu_hostlist_add(struct mu_hostlist *list, const char *name, struct mu_err *err)
{
    if (list->n == MU_HOSTLIST_MAX)
        return mu_err_set(err, E2BIG, "host list: more than %d names", MU_HOSTLIST_MAX);
    if ((list->n & (list->n - 1)) == 0) { /* a power of two is full: double it */
        size_t room = list->n ? 2 * (size_t)list->n : 1;
        char **bigger = realloc(list->name, room * sizeof *bigger);

        if (!bigger)
            return mu_err_set(err, ENOMEM, "host list: out of memory");
        list->name = bigger;
    }
    list->name[list->n] = strdup(name);
    if (!list->name[list->n])
        return mu_err_set(err, ENOMEM, "host list: out of memory");
    list->n++;
    return 0;
}

static int expand(const char *done, const char *rest, struct mu_hostlist *list,
                  struct mu_err *err);

/* "08-10" or "7": the numbers, padded to the width of the first. Behind a bracket it is
 * read once for each name before it: a long text would cost its length as often.
 */
static int expand_range(const char *done, const char *range, const char *rest,
                        struct mu_hostlist *list, struct mu_err *err)
{
    const char *dash = strchr(range, '-');
    int width = (int)(dash ? (size_t)(dash - range) : strlen(range));
    char first[16];
    long from, to;

    if (width == 0 || width >= (int)sizeof first ||
        (dash && strlen(dash) > sizeof first) || range[strspn(range, "0123456789-")])
        return mu_err_set(err, EINVAL, "host list: '%.80s' is not a number or range",
                          range);
    memcpy(first, range, (size_t)width);
    first[width] = '\0';
    if (mu_parse_int("a host number", first, 0, 999999999, &from, err) < 0 ||
        mu_parse_int("a host number", dash ? dash + 1 : first, from, 999999999, &to,
                     err) < 0)
        return -1;
    if (to - from >= MU_HOSTLIST_MAX)
        return mu_err_set(err, E2BIG, "host list: more than %d names", MU_HOSTLIST_MAX);
    for (long k = from; k <= to; k++) {
        char name[MU_HOST_LEN];

        if (snprintf(name, sizeof name, "%s%0*ld", done, width, k) >= (int)sizeof name)
            return mu_err_set(err, ENAMETOOLONG,
                              "host list: a name has more than %d characters",
                              MU_HOST_LEN - 1);
        if (expand(name, rest, list, err) < 0)
            return -1;
    }
    return 0;
}

/* Append every name that begins with `done` and continues with an expansion of `rest`.
 */
static int expand(const char *done, const char *rest, struct mu_hostlist *list,
                  struct mu_err *err)
{
    const char *open = strchr(rest, '[');
    const char *close = open ? strchr(open, ']') : NULL;
    char name[MU_HOST_LEN], *ranges, *next, *range;
    int rc = 0;

    if (snprintf(name, sizeof name, "%s%.*s", done,
                 open ? (int)(open - rest) : (int)strlen(rest),
                 rest) >= (int)sizeof name)
        return mu_err_set(err, ENAMETOOLONG,
                          "host list: a name has more than %d characters",
                          MU_HOST_LEN - 1);
    if (!open)
        return mu_hostlist_add(list, name, err);
    if (!close)
        return mu_err_set(err, EINVAL, "host list: '%.80s' has no closing ']'", open);
    ranges = next = strndup(open + 1, (size_t)(close - open - 1));
    if (!ranges)
        return mu_err_set(err, ENOMEM, "host list: out of memory");
    while (rc == 0 && (range = mu_parse_next(&next, ',')))
        rc = expand_range(name, range, close + 1, list, err);
    free(ranges);
    return rc;
}

/* The length of the first item of the list, whose commas may be inside brackets. */
static size_t item_length(const char *text)
{
    size_t n = 0;

    for (bool inside = false; text[n] && (inside || text[n] != ','); n++) {
        if (text[n] == '[')
            inside = true;
        else if (text[n] == ']')
            inside = false;
    }
    return n;
}

static int parse_item(const char *item, struct mu_hostlist *list, struct mu_err *err)
{
    int brackets = 0;

    for (const char *c = item; *c; c++) {
        if (isspace((unsigned char)*c) || (*c == ']' && !brackets))
            return mu_err_set(err, EINVAL, "host list: '%.80s' is not a host name",
                              item);
        if (*c == '[' && ++brackets > 4)
            return mu_err_set(err, EINVAL, "host list: more than 4 brackets in '%.80s'",
                              item);
    }
    if (!*item)
        return mu_err_set(err, EINVAL, "host list: a name is empty");
    return expand("", item, list, err);
}

int mu_hostlist_parse(const char *text, struct mu_hostlist *list, struct mu_err *err)
{
    struct mu_hostlist work = { 0 };

    for (bool more = true; more;) {
        size_t n = item_length(text);
        char *item = strndup(text, n);
        int rc = item ? parse_item(item, &work, err)
                      : mu_err_set(err, ENOMEM, "host list: out of memory");

        free(item);
        if (rc < 0) {
            mu_hostlist_clear(&work);
            return -1;
        }
        more = text[n] == ',';
        text += n + more;
    }
    *list = work;
    return 0;
}

void mu_hostlist_clear(struct mu_hostlist *list)
{
    for (int i = 0; i < list->n; i++)
        free(list->name[i]);
    free(list->name);
    memset(list, 0, sizeof *list);
}

int mu_hostlist_find(const struct mu_hostlist *list, const char *name)
{
    for (int i = 0; i < list->n; i++)
        if (strcmp(list->name[i], name) == 0)
            return i;
    return -1;
}

/* The number at the end of a name: nine digits at most, so that it fits an int. */
static const char *digits_of(const char *name)
{
    const char *end = name + strlen(name), *at = end;

    while (at > name && end - at < 9 && isdigit((unsigned char)at[-1]))
        at--;
    return at;
}

/* Is b the name behind a, with the same prefix and the number of a plus one? A number
 * with a zero in front has a fixed width.
 */
static bool follows(const char *a, const char *b)
{
    const char *na = digits_of(a), *nb = digits_of(b);

    return *na && *nb && na - a == nb - b && strncmp(a, b, (size_t)(na - a)) == 0 &&
           strtol(nb, NULL, 10) == strtol(na, NULL, 10) + 1 &&
           (strlen(na) == strlen(nb) || (*na != '0' && *nb != '0'));
}

static bool same_prefix(const char *a, const char *b)
{
    size_t n = (size_t)(digits_of(a) - a);

    return a[n] && (size_t)(digits_of(b) - b) == n && b[n] && strncmp(a, b, n) == 0;
}

/* Writes the number of name i, or the range that begins there; returns the next. */
static int put_range(FILE *out, const struct mu_hostlist *list, int i)
{
    int last = i;

    while (last + 1 < list->n && follows(list->name[last], list->name[last + 1]))
        last++;
    fputs(digits_of(list->name[i]), out);
    if (last > i)
        fprintf(out, "-%s", digits_of(list->name[last]));
    return last + 1;
}

char *mu_hostlist_format(const struct mu_hostlist *list)
{
    char *text = NULL;
    size_t len;
    FILE *out = open_memstream(&text, &len);
    int i = 0;

    if (!out)
        return NULL;
    while (i < list->n) {
        const char *first = list->name[i];
        bool several = i + 1 < list->n && same_prefix(first, list->name[i + 1]);

        fprintf(out, "%s%.*s%s", i ? "," : "", (int)(digits_of(first) - first), first,
                several ? "[" : "");
        i = put_range(out, list, i);
        while (i < list->n && same_prefix(first, list->name[i])) {
            fputc(',', out);
            i = put_range(out, list, i);
        }
        if (several)
            fputc(']', out);
    }
    if (fclose(out) == 0)
        return text;
    free(text);
    return NULL;
}
