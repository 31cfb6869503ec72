/* SPDX-License-Identifier: BSD-3-Clause */
/* times.c - the table of Muster's and NCCL's times on one machine, and what follows */
#include "runtime/nccl/times.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/parse.h"

#define FIRST_LINE "muster-nccl-times 1\n"
#define COLUMNS "# function bytes way us nccl_us form\n"
#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define NOISE 1.02 /* of a time */

static const char *const functions[] = { [MU_COLL_ALLREDUCE] = "AllReduce",
                                         [MU_COLL_BROADCAST] = "Broadcast",
                                         [MU_COLL_ALLGATHER] = "AllGather",
                                         [MU_COLL_REDUCE_SCATTER] = "ReduceScatter",
                                         NULL };
static const char *const ways[] = { "one-shot", "mapped", NULL };
static const char *const forms[] = { "stream", "graph", NULL };

/* ---- What is measured ------------------------------------------------------------ */

static void plan(struct mu_times *t, enum mu_coll_kind kind, bool mapped,
                 const size_t *sizes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (int graph = 0; graph < 2; graph++)
            t->row[t->n++] = (struct mu_trial){
                .kind = kind, .mapped = mapped, .bytes = sizes[i], .graph = graph
            };
}

/* Large broadcasts are left out: of a group of them, with a root each, NCCL makes one.
 */
void mu_times_plan(struct mu_times *t)
{
    static const size_t small[] = { 4 * KIB,   16 * KIB,  64 * KIB, 128 * KIB,
                                    256 * KIB, 512 * KIB, MIB },
                        large[] = { 256 * KIB, 512 * KIB, MIB,      4 * MIB,
                                    16 * MIB,  64 * MIB,  256 * MIB };

    t->n = 0;
    for (int kind = 0; kind < MU_LIMITS; kind++) {
        plan(t, (enum mu_coll_kind)kind, false, small, sizeof small / sizeof small[0]);
        if (kind != MU_COLL_BROADCAST)
            plan(t, (enum mu_coll_kind)kind, true, large,
                 sizeof large / sizeof large[0]);
    }
}

static float longer(float a, float b)
{
    return a == 0 || b == 0 ? 0 : a > b ? a : b;
}

void mu_times_slowest(struct mu_times *t, const struct mu_times *other)
{
    for (int i = 0; i < t->n; i++) {
        t->row[i].us = longer(t->row[i].us, other->row[i].us);
        t->row[i].nccl_us = longer(t->row[i].nccl_us, other->row[i].nccl_us);
    }
}

/* All of mapped memory or none. One-shot has an end, which depends on the ranks. */
bool mu_times_complete(const struct mu_times *t)
{
    int measured = 0, mapped = 0;

    for (int i = 0; i < t->n; i++) {
        mapped += t->row[i].mapped;
        measured += t->row[i].mapped && t->row[i].us > 0;
    }
    return t->n > 0 && (measured == 0 || measured == mapped);
}

/* ---- The text -------------------------------------------------------------------- */

char *mu_times_text(const struct mu_times *t, const char *machine)
{
    char *text = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&text, &len);
    bool whole;

    if (!f)
        return NULL;
    fprintf(f, FIRST_LINE "%s" COLUMNS, machine);
    for (int i = 0; i < t->n; i++) {
        const struct mu_trial *r = &t->row[i];

        if (r->us > 0 && r->nccl_us > 0)
            fprintf(f, "%s\t%zu\t%s\t%.2f\t%.2f\t%s\n", functions[r->kind], r->bytes,
                    ways[r->mapped], (double)r->us, (double)r->nccl_us,
                    forms[r->graph]);
    }
    whole = !ferror(f);
    if (fclose(f) == 0 && whole)
        return text;
    free(text);
    return NULL;
}

enum { FUNCTION, BYTES, WAY, US, NCCL_US, FORM, FIELDS };

static int word(const char *what, const char *text, const char *const *words,
                struct mu_err *err)
{
    int found = mu_parse_word(text, words);

    if (found < 0)
        mu_err_set(err, EINVAL, "unknown %s '%.40s'", what, text);
    return found;
}

static int parse_row(char *line, struct mu_trial *row, struct mu_err *err)
{
    char *field[FIELDS] = { NULL }, *save = NULL, *one = strtok_r(line, " \t", &save);
    int n = 0, function, way, form;
    double us, nccl_us;
    uint64_t bytes;

    for (; one; one = strtok_r(NULL, " \t", &save), n++)
        if (n < FIELDS)
            field[n] = one;
    if (n != FIELDS)
        return mu_err_set(err, EINVAL, "a row has %d fields, this one %d", FIELDS, n);
    function = word("function", field[FUNCTION], functions, err);
    way = function < 0 ? -1 : word("way", field[WAY], ways, err);
    form = way < 0 ? -1 : word("form", field[FORM], forms, err);
    if (form < 0 ||
        mu_parse_size("bytes", field[BYTES], (uint64_t)1 << 40, &bytes, err) < 0 ||
        mu_parse_double("us", field[US], 1e-3, 1e9, &us, err) < 0 ||
        mu_parse_double("nccl_us", field[NCCL_US], 1e-3, 1e9, &nccl_us, err) < 0)
        return -1;
    *row = (struct mu_trial){ .kind = (enum mu_coll_kind)function,
                              .mapped = way,
                              .bytes = bytes,
                              .graph = form,
                              .us = (float)us,
                              .nccl_us = (float)nccl_us };
    return 0;
}

static int parse_line(struct mu_times *t, char *line, struct mu_err *err)
{
    if (!*line || *line == '#')
        return 0;
    if (t->n == MU_TIMES_MOST)
        return mu_err_set(err, E2BIG, "more than %d rows", MU_TIMES_MOST);
    return parse_row(line, &t->row[t->n], err) < 0 ? -1 : (t->n++, 0);
}

/* What follows the machine's lines; *line counts those before. NULL: another's. */
static const char *rows_of(const char *text, const char *machine, int *line)
{
    const size_t first = strlen(FIRST_LINE), len = strlen(machine);

    if (strncmp(text, FIRST_LINE, first) != 0 ||
        strncmp(text + first, machine, len) != 0)
        return NULL;
    *line = 1;
    for (const char *at = machine; *at; at++)
        *line += *at == '\n';
    return text + first + len;
}

int mu_times_parse(struct mu_times *t, const char *text, const char *machine,
                   const char *path, struct mu_err *err)
{
    int number = 0, rc = 0;
    const char *rows = rows_of(text, machine, &number);
    char *copy, *rest, *line;

    t->n = 0;
    if (!rows)
        return mu_err_set(err, EXDEV, "%s: these times are of another machine", path);
    copy = rest = strdup(rows);
    if (!copy)
        return mu_err_set(err, ENOMEM, "%s: out of memory", path);
    while (rc == 0 && (line = mu_parse_next(&rest, '\n'))) {
        number++;
        rc = parse_line(t, line, err);
    }
    free(copy);
    return rc == 0 ? 0 : mu_err_context(err, "%s line %d", path, number);
}

/* ---- What follows ---------------------------------------------------------------- */

static bool is_of(const struct mu_trial *r, enum mu_coll_kind kind, bool mapped)
{
    return r->kind == kind && r->mapped == mapped;
}

/* The next size above `bytes` that was measured, 0: none. */
static size_t next(const struct mu_times *t, enum mu_coll_kind kind, bool mapped,
                   size_t bytes)
{
    size_t found = 0;

    for (int i = 0; i < t->n; i++)
        if (is_of(&t->row[i], kind, mapped) && t->row[i].bytes > bytes &&
            (found == 0 || t->row[i].bytes < found))
            found = t->row[i].bytes;
    return found;
}

/* Muster is as fast as NCCL in each form that was measured, at least one. */
static bool is_as_fast(const struct mu_times *t, enum mu_coll_kind kind, bool mapped,
                       size_t bytes)
{
    bool measured = false;

    for (int i = 0; i < t->n; i++) {
        const struct mu_trial *r = &t->row[i];

        if (!is_of(r, kind, mapped) || r->bytes != bytes)
            continue;
        if (r->us == 0 || r->us > r->nccl_us * (float)NOISE)
            return false;
        measured = true;
    }
    return measured;
}

static double time_of(const struct mu_times *t, enum mu_coll_kind kind, bool mapped,
                      size_t bytes)
{
    double sum = 0;

    for (int i = 0; i < t->n; i++)
        if (is_of(&t->row[i], kind, mapped) && t->row[i].bytes == bytes)
            sum += (double)t->row[i].us;
    return sum;
}

static bool mapped_is_faster(const struct mu_times *t, enum mu_coll_kind kind,
                             size_t bytes)
{
    return is_as_fast(t, kind, true, bytes) &&
           time_of(t, kind, true, bytes) * NOISE < time_of(t, kind, false, bytes);
}

static struct mu_limit limit_of(const struct mu_times *t, enum mu_coll_kind kind)
{
    struct mu_limit l = { 0 };
    bool one_shot = true;
    size_t at = 0;

    while ((at = next(t, kind, false, at)) > 0 && is_as_fast(t, kind, false, at)) {
        one_shot = one_shot && !mapped_is_faster(t, kind, at);
        l.others = at;
        if (one_shot)
            l.one_shot = at;
    }
    at = l.one_shot;
    l.from = is_as_fast(t, kind, true, at) ? at + 1 : next(t, kind, true, at);
    while ((at = next(t, kind, true, at)) > 0 && is_as_fast(t, kind, true, at))
        l.to = at;
    if (l.to == 0)
        l.from = 0;
    return l;
}

void mu_times_limits(const struct mu_times *t, struct mu_limits *out)
{
    for (int kind = 0; kind < MU_LIMITS; kind++)
        out->of[kind] = limit_of(t, (enum mu_coll_kind)kind);
}
