/* SPDX-License-Identifier: BSD-3-Clause */
/* tune_search.c - which ways of NCCL are measured, how often, and what goes into the
 * table
 */
#include "runtime/core/tune_search.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define KIB ((uint64_t)1 << 10)

/* Channels that are tried for rings and trees, and the sizes for which they may pay. A
 * channel below a few KiB only waits.
 */
static const struct {
    int channels;
    uint64_t least, most;
} grid[] = { { 0, 0, UINT64_MAX },          { 1, 0, 256 * KIB },
             { 2, 0, 1024 * KIB },          { 4, 8 * KIB, 4096 * KIB },
             { 8, 32 * KIB, 16384 * KIB },  { 12, 256 * KIB, UINT64_MAX },
             { 16, 256 * KIB, UINT64_MAX }, { 24, 1024 * KIB, UINT64_MAX },
             { 32, 1024 * KIB, UINT64_MAX } };
enum { GRID = sizeof grid / sizeof grid[0] };

/* NVLS and the in-network algorithms choose their own channels and have one protocol;
 * PAT is one of gathers and scatters.
 */
static bool is_way(int func, int algo, int proto, int channels)
{
    bool gathers = func == MU_TUNE_ALLGATHER || func == MU_TUNE_REDUCE_SCATTER;

    switch (algo) {
    case MU_TUNE_RING:
        return true;
    case MU_TUNE_TREE:
        return func == MU_TUNE_ALLREDUCE;
    case MU_TUNE_PAT:
        return gathers && proto == MU_TUNE_SIMPLE && channels == 0;
    default:
        return (func == MU_TUNE_ALLREDUCE || (gathers && algo == MU_TUNE_NVLS)) &&
               proto == MU_TUNE_SIMPLE && channels == 0;
    }
}

bool mu_tune_next_way(int *at, struct mu_tune_row *row)
{
    for (; *at < MU_TUNE_ALGOS * MU_TUNE_PROTOS * GRID; ++*at) {
        int algo = *at / (MU_TUNE_PROTOS * GRID), proto = *at / GRID % MU_TUNE_PROTOS,
            g = *at % GRID;

        if (row->bytes < grid[g].least || row->bytes > grid[g].most ||
            !is_way(row->func, algo, proto, grid[g].channels))
            continue;
        row->algo = algo;
        row->proto = proto;
        row->channels = grid[g].channels;
        ++*at;
        return true;
    }
    return false;
}

/* Measure one way and append its rows. */
static int add(const struct mu_tune_search *s, const struct mu_tune_row *way,
               bool screen, struct mu_tune *out, struct mu_err *err)
{
    struct mu_tune_row rows[MU_TUNE_FORMS];
    int n = 0, rc;

    for (int f = 0; f < MU_TUNE_FORMS; f++)
        if (s->forms[f]) {
            rows[n] = *way;
            rows[n++].form = (enum mu_tune_form)f;
        }
    rc = s->measure(s->arg, rows, n, screen, err);
    if (rc != 0)
        return rc < 0 ? -1 : 0;
    if (out->n + n > MU_TUNE_ROWS)
        return mu_err_set(err, E2BIG,
                          "the table has more than %d rows; measure fewer sizes",
                          MU_TUNE_ROWS);
    for (int i = 0; i < n; i++)
        out->rows[out->n++] = rows[i];
    return 0;
}

/* The first row of each way among `first` to `last`, which has rows of all forms. */
static bool begins_way(const struct mu_tune *t, int first, int at)
{
    return at == first || !mu_tune_same_way(&t->rows[at], &t->rows[at - 1]);
}

static int search_size(const struct mu_tune_search *s, uint64_t bytes,
                       struct mu_tune *out, struct mu_err *err)
{
    struct mu_tune_row row = {
        .ranks = s->ranks, .nodes = s->nodes, .func = s->func, .bytes = bytes
    };
    const struct mu_tune_row *best;
    int first = out->n, at = 0, last;

    while (mu_tune_next_way(&at, &row))
        if (add(s, &row, true, out, err) < 0)
            return -1;
    if (out->n == first)
        return mu_err_set(err, ENOTSUP, "NCCL used none of the ways of %s here",
                          mu_tune_func_name(s->func));
    last = out->n;
    /* The passes are apart in time, so that one disturbance does not decide. */
    for (int pass = 1; pass < MU_TUNE_PASSES - 1; pass++)
        for (int i = first; i < last; i++)
            if (begins_way(out, first, i) && mu_tune_proven(out, &out->rows[i]) &&
                add(s, &out->rows[i], false, out, err) < 0)
                return -1;
    /* Who wins among many was lucky too: its last pass is apart from the choice. */
    do {
        best = mu_tune_best(out, &row);
        if (best)
            row = *best;
        if (best && add(s, &row, false, out, err) < 0)
            return -1;
    } while (best && !mu_tune_proven(out, &row));
    return 0;
}

int mu_tune_search(const struct mu_tune_search *s, struct mu_tune *out,
                   struct mu_err *err)
{
    struct mu_tune t = { .nccl = s->nccl,
                         .rows = malloc(MU_TUNE_ROWS * sizeof *t.rows) };

    if (!t.rows)
        return mu_err_set(err, ENOMEM, "out of memory");
    for (uint64_t bytes = s->min; bytes <= s->max; bytes *= 2)
        if (search_size(s, bytes, &t, err) < 0) {
            mu_tune_clear(&t);
            return -1;
        }
    *out = t;
    return 0;
}

/* ---- What the table is good for -------------------------------------------------- */

/* "stream 10.0 us instead of 20.0": of the way, or of the default where it is NULL. */
static void summarize_form(FILE *f, const struct mu_tune *t,
                           const struct mu_tune_row *size,
                           const struct mu_tune_row *way, enum mu_tune_form form,
                           const char **separator)
{
    const struct mu_tune_row *r = mu_tune_slowest(t, way ? way : size, form);

    if (!r)
        return;
    fputs(*separator, f);
    *separator = ", ";
    if (form != MU_TUNE_ANY)
        fprintf(f, "%s ", mu_tune_form_name(form));
    if (way)
        fprintf(f, "%.1f us instead of %.1f", r->us, r->default_us);
    else
        fprintf(f, "%.1f us", r->default_us);
}

static void summarize_size(FILE *f, const struct mu_tune *t, int first,
                           const struct mu_tune_span *span)
{
    const struct mu_tune_row *size = &t->rows[first];
    const char *separator = ": ";
    struct mu_tune_row way = *size;

    if (!span) {
        fprintf(f, "# %" PRIu64 " bytes: NCCL's own choice", size->bytes);
    } else {
        way.algo = span->algo;
        way.proto = span->proto;
        way.channels = span->channels;
        fprintf(f, "# %" PRIu64 " bytes: %s %s", size->bytes,
                mu_tune_algo_name(way.algo), mu_tune_proto_name(way.proto));
        if (way.channels > 0)
            fprintf(f, " %d channels", way.channels);
    }
    for (int form = 0; form < MU_TUNE_FORMS; form++)
        summarize_form(f, t, size, span ? &way : NULL, (enum mu_tune_form)form,
                       &separator);
    fputc('\n', f);
}

char *mu_tune_summary(const struct mu_tune *t)
{
    struct mu_tune_span *spans = NULL;
    char *text = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&text, &len);
    int n = f ? mu_tune_spans(t, t->rows[0].ranks, t->rows[0].nodes, &spans) : -1;

    for (int i = 0; n >= 0 && i < t->n; i++)
        if (i == 0 || t->rows[i].bytes != t->rows[i - 1].bytes)
            summarize_size(f, t, i,
                           mu_tune_find(spans, n, t->rows[i].func, t->rows[i].bytes));
    free(spans);
    if (f && fclose(f) == 0 && n >= 0)
        return text;
    free(text);
    return NULL;
}
