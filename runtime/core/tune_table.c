/* SPDX-License-Identifier: BSD-3-Clause */
/* tune_table.c - a table of measured times, and which ways of NCCL it proves faster */
#include "runtime/core/tune_table.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/parse.h"

#define FASTER 0.98 /* of the default's time, and 1/FASTER slower: less is noise */

/* In the order of NCCL's numbers. */
static const char *const funcs[] = { "Broadcast",     "Reduce",    "AllGather",
                                     "ReduceScatter", "AllReduce", NULL };
static const char *const algos[] = { "TREE",          "RING", "COLLNET_DIRECT",
                                     "COLLNET_CHAIN", "NVLS", "NVLS_TREE",
                                     "PAT",           NULL };
static const char *const protos[] = { "LL", "LL128", "SIMPLE", NULL };
static const char *const forms[] = { "any", "stream", "graph", NULL };

const char *mu_tune_func_name(int func)
{
    return funcs[func];
}

const char *mu_tune_algo_name(int algo)
{
    return algos[algo];
}

const char *mu_tune_proto_name(int proto)
{
    return protos[proto];
}

const char *mu_tune_form_name(enum mu_tune_form form)
{
    return forms[form];
}

/* ---- The text -------------------------------------------------------------------- */

enum { RANKS, NODES, FUNC, BYTES, ALGO, PROTO, CHANNELS, US, DEFAULT_US, FORM, FIELDS };

static int word(const char *what, const char *text, const char *const *words, int *out,
                struct mu_err *err)
{
    *out = mu_parse_word(text, words);
    return *out < 0 ? mu_err_set(err, EINVAL, "unknown %s '%.40s'", what, text) : 0;
}

static int number(const char *what, const char *text, long min, long max, int *out,
                  struct mu_err *err)
{
    long value;

    if (mu_parse_int(what, text, min, max, &value, err) < 0)
        return -1;
    *out = (int)value;
    return 0;
}

static int parse_row(char *line, struct mu_tune_row *row, struct mu_err *err)
{
    char *field[FIELDS], *save = NULL, *one = strtok_r(line, " \t", &save);
    int n = 0, form = MU_TUNE_ANY;

    for (; one; one = strtok_r(NULL, " \t", &save), n++)
        if (n < FIELDS)
            field[n] = one;
    if (n != FIELDS && n != FORM)
        return mu_err_set(err, EINVAL, "a row has %d or %d fields, this one %d", FORM,
                          FIELDS, n);
    if (number("ranks", field[RANKS], 2, 1 << 30, &row->ranks, err) < 0 ||
        number("nodes", field[NODES], 1, row->ranks, &row->nodes, err) < 0 ||
        word("function", field[FUNC], funcs, &row->func, err) < 0 ||
        mu_parse_size("bytes", field[BYTES], (uint64_t)1 << 50, &row->bytes, err) < 0 ||
        word("algorithm", field[ALGO], algos, &row->algo, err) < 0 ||
        word("protocol", field[PROTO], protos, &row->proto, err) < 0 ||
        number("channels", field[CHANNELS], 0, 64, &row->channels, err) < 0)
        return -1;
    if (mu_parse_double("us", field[US], 1e-3, 1e12, &row->us, err) < 0 ||
        mu_parse_double("default_us", field[DEFAULT_US], 1e-3, 1e12, &row->default_us,
                        err) < 0 ||
        (n == FIELDS && word("form", field[FORM], forms, &form, err) < 0))
        return -1;
    row->form = (enum mu_tune_form)form;
    return 0;
}

static int parse_release(const char *text, int *out, struct mu_err *err)
{
    int major, minor, patch;
    char rest;

    if (sscanf(text, "%2d.%2d.%2d%c", &major, &minor, &patch, &rest) != 3 ||
        major < 2 || minor < 0 || patch < 0)
        return mu_err_set(err, EINVAL,
                          "'nccl' needs a release such as 2.28.3, not '%.40s'", text);
    *out = major * 10000 + minor * 100 + patch;
    return 0;
}

static int parse_line(struct mu_tune *t, char *line, struct mu_err *err)
{
    if (!*line || *line == '#')
        return 0;
    if (strncmp(line, "nccl ", 5) == 0)
        return parse_release(line + 5, &t->nccl, err);
    if (!t->nccl)
        return mu_err_set(err, EINVAL, "the line 'nccl RELEASE' is missing before it");
    if (t->n == MU_TUNE_ROWS)
        return mu_err_set(err, E2BIG, "more than %d rows", MU_TUNE_ROWS);
    return parse_row(line, &t->rows[t->n], err) < 0 ? -1 : (t->n++, 0);
}

int mu_tune_parse(struct mu_tune *t, const char *text, const char *path,
                  struct mu_err *err)
{
    char *copy = strdup(text), *rest = copy, *line;
    int number_of_line = 0, rc = -1;

    *t = (struct mu_tune){ .rows = malloc(MU_TUNE_ROWS * sizeof *t->rows) };
    if (!copy || !t->rows) {
        mu_err_set(err, ENOMEM, "%s: out of memory", path);
        goto out;
    }
    while ((line = mu_parse_next(&rest, '\n'))) {
        number_of_line++;
        if (number_of_line == 1 && strcmp(line, MU_TUNE_FIRST_LINE) != 0) {
            mu_err_set(err, EINVAL,
                       "%s: this is no table of muster: line 1 is not '%s'", path,
                       MU_TUNE_FIRST_LINE);
            goto out;
        }
        if (number_of_line > 1 && parse_line(t, line, err) < 0) {
            mu_err_context(err, "%s line %d", path, number_of_line);
            goto out;
        }
    }
    if (t->n == 0) {
        mu_err_set(err, EINVAL, "%s: the table has no row", path);
        goto out;
    }
    rc = 0;
out:
    free(copy);
    if (rc < 0)
        mu_tune_clear(t);
    return rc;
}

char *mu_tune_format(const struct mu_tune *t)
{
    char *text = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&text, &len);
    bool whole;

    if (!f)
        return NULL;
    fprintf(f, MU_TUNE_FIRST_LINE "\nnccl %d.%d.%d\n", t->nccl / 10000,
            t->nccl / 100 % 100, t->nccl % 100);
    fputs("# ranks nodes function bytes algorithm protocol channels us default_us "
          "form\n",
          f);
    for (int i = 0; i < t->n; i++) {
        const struct mu_tune_row *r = &t->rows[i];

        fprintf(f, "%d\t%d\t%s\t%" PRIu64 "\t%s\t%s\t%d\t%.3f\t%.3f\t%s\n", r->ranks,
                r->nodes, funcs[r->func], r->bytes, algos[r->algo], protos[r->proto],
                r->channels, r->us, r->default_us, forms[r->form]);
    }
    whole = !ferror(f);
    if (fclose(f) == 0 && whole)
        return text;
    free(text);
    return NULL;
}

void mu_tune_clear(struct mu_tune *t)
{
    free(t->rows);
    *t = (struct mu_tune){ 0 };
}

/* ---- Spans ----------------------------------------------------------------------- */

static double share(const struct mu_tune_row *row)
{
    return row->us / row->default_us;
}

static bool is_of(const struct mu_tune_row *row, const struct mu_tune_row *size)
{
    return row->ranks == size->ranks && row->nodes == size->nodes &&
           row->func == size->func && row->bytes == size->bytes;
}

/* The way of `way` at the size of `size`: the slowest share of each form, 0: it was not
 * measured in that form.
 */
struct shares {
    double of[MU_TUNE_FORMS];
};

static struct shares shares_at(const struct mu_tune *t, const struct mu_tune_row *way,
                               const struct mu_tune_row *size)
{
    struct shares s = { { 0 } };

    for (int i = 0; i < t->n; i++) {
        const struct mu_tune_row *r = &t->rows[i];

        if (is_of(r, size) && mu_tune_same_way(r, way) && share(r) > s.of[r->form])
            s.of[r->form] = share(r);
    }
    return s;
}

static bool is_proven(const struct shares *s)
{
    bool faster = false;

    for (int f = 0; f < MU_TUNE_FORMS; f++) {
        if (s->of[f] * FASTER > 1)
            return false;
        faster = faster || (s->of[f] > 0 && s->of[f] < FASTER);
    }
    return faster;
}

/* Of the forms that were measured. */
static double mean(const struct shares *s)
{
    double sum = 0;
    int n = 0;

    for (int f = 0; f < MU_TUNE_FORMS; f++) {
        sum += s->of[f];
        n += s->of[f] > 0;
    }
    return sum / n;
}

bool mu_tune_proven(const struct mu_tune *t, const struct mu_tune_row *row)
{
    const struct shares s = shares_at(t, row, row);

    return is_proven(&s);
}

const struct mu_tune_row *mu_tune_slowest(const struct mu_tune *t,
                                          const struct mu_tune_row *row,
                                          enum mu_tune_form form)
{
    const struct mu_tune_row *found = NULL;

    for (int i = 0; i < t->n; i++) {
        const struct mu_tune_row *r = &t->rows[i];

        if (is_of(r, row) && r->form == form && mu_tune_same_way(r, row) &&
            (!found || share(r) > share(found)))
            found = r;
    }
    return found;
}

/* The way that is fastest at both sizes together, whose rows are in `low` and `high`;
 * NULL: the default.
 */
static const struct mu_tune_row *best(const struct mu_tune *low,
                                      const struct mu_tune_row *low_size,
                                      const struct mu_tune *high,
                                      const struct mu_tune_row *high_size)
{
    const struct mu_tune_row *found = NULL;
    double least = 0;

    for (int i = 0; i < low->n; i++) {
        const struct mu_tune_row *way = &low->rows[i];
        struct shares a, b;

        if (!is_of(way, low_size))
            continue;
        a = shares_at(low, way, low_size);
        if (!is_proven(&a))
            continue;
        b = shares_at(high, way, high_size);
        if (is_proven(&b) && (!found || mean(&a) + mean(&b) < least)) {
            found = way;
            least = mean(&a) + mean(&b);
        }
    }
    return found;
}

const struct mu_tune_row *mu_tune_best(const struct mu_tune *t,
                                       const struct mu_tune_row *size)
{
    return best(t, size, t, size);
}

#define ORDER(a, b) (((a) > (b)) - ((a) < (b)))

static int by_size(const void *one, const void *other)
{
    const struct mu_tune_row *a = one, *b = other;
    int order = ORDER(a->func, b->func);

    return order ? order : ORDER(a->bytes, b->bytes);
}

/* The rows of these ranks and nodes in order, in memory that the caller frees. */
static int sort_rows(const struct mu_tune *t, int ranks, int nodes, struct mu_tune *out)
{
    *out = (struct mu_tune){ .rows = malloc(((size_t)t->n + 1) * sizeof *out->rows) };
    if (!out->rows)
        return -1;
    for (int i = 0; i < t->n; i++)
        if (t->rows[i].ranks == ranks && t->rows[i].nodes == nodes)
            out->rows[out->n++] = t->rows[i];
    qsort(out->rows, (size_t)out->n, sizeof *out->rows, by_size);
    return 0;
}

/* The rows of one size, from `at` on. */
static struct mu_tune one_size(const struct mu_tune *sorted, int at)
{
    struct mu_tune of = { .rows = &sorted->rows[at] };

    while (at + of.n < sorted->n && is_of(&of.rows[of.n], of.rows))
        of.n++;
    return of;
}

static void add(struct mu_tune_span *spans, int *n, const struct mu_tune_row *way,
                uint64_t first, uint64_t last)
{
    if (way && first <= last)
        spans[(*n)++] = (struct mu_tune_span){ way->func, first,      last,
                                               way->algo, way->proto, way->channels };
}

int mu_tune_spans(const struct mu_tune *t, int ranks, int nodes,
                  struct mu_tune_span **out)
{
    struct mu_tune_span *spans = malloc(((size_t)t->n * 2 + 1) * sizeof *spans);
    struct mu_tune sorted = { 0 }, size, next;
    int n = 0;

    if (!spans || sort_rows(t, ranks, nodes, &sorted) < 0) {
        free(spans);
        return -1;
    }
    for (int at = 0; at < sorted.n; at += size.n) {
        size = one_size(&sorted, at);
        next = one_size(&sorted, at + size.n);
        add(spans, &n, best(&size, size.rows, &size, size.rows), size.rows->bytes,
            size.rows->bytes);
        if (next.n > 0 && next.rows->func == size.rows->func)
            add(spans, &n, best(&size, size.rows, &next, next.rows),
                size.rows->bytes + 1, next.rows->bytes - 1);
    }
    free(sorted.rows);
    *out = spans;
    return n;
}

const struct mu_tune_span *mu_tune_find(const struct mu_tune_span *spans, int n,
                                        int func, uint64_t bytes)
{
    int low = 0, high = n;

    while (low < high) {
        int middle = (low + high) / 2;
        const struct mu_tune_span *s = &spans[middle];

        if (s->func < func || (s->func == func && s->last < bytes))
            low = middle + 1;
        else
            high = middle;
    }
    return low < n && spans[low].func == func && bytes >= spans[low].first ? &spans[low]
                                                                           : NULL;
}
