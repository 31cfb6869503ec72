/* SPDX-License-Identifier: BSD-3-Clause */
/* rows.c - some rows of a gradient, instead of all: collect them, add them up */
#include "runtime/core/rows.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/core/convert.h"
#include "runtime/core/dtype.h"

void mu_rows_init(struct mu_rows *list, enum muster_dtype dtype, size_t rows,
                  size_t width)
{
    *list = (struct mu_rows){ .dtype = dtype, .rows = rows, .width = width };
}

void mu_rows_clear(struct mu_rows *list)
{
    free(list->row);
    free(list->sum);
    free(list->slot);
    list->row = NULL;
    list->sum = NULL;
    list->slot = NULL;
    list->n = list->room = 0;
}

enum muster_dtype mu_rows_sums(enum muster_dtype dtype)
{
    return dtype == MUSTER_F64 ? MUSTER_F64 : MUSTER_F32;
}

static size_t sum_bytes(const struct mu_rows *list)
{
    return list->width * mu_dtype_size(mu_rows_sums(list->dtype));
}

static size_t row_bytes(const struct mu_rows *list)
{
    return list->width * mu_dtype_size(list->dtype);
}

size_t mu_rows_outside(const struct mu_rows *list, const int64_t *index, size_t n)
{
    size_t k = 0;

    /* Below 0: as unsigned, too large. */
    while (k < n && (uint64_t)index[k] < list->rows)
        k++;
    return k;
}

static int no_memory(const struct mu_rows *list, struct mu_err *err)
{
    return mu_err_set(err, MUSTER_EMEMORY,
                      "out of memory for rows of a gradient of %zu x %zu", list->rows,
                      list->width);
}

/* Have room for n more rows; there are never more than the gradient has. */
static int reserve(struct mu_rows *list, size_t n, struct mu_err *err)
{
    size_t room = list->n + n < list->rows ? list->n + n : list->rows;
    int64_t *row;
    void *sum;

    if (!list->slot)
        list->slot = calloc(list->rows, sizeof *list->slot);
    if (!list->slot)
        return no_memory(list, err);
    if (room <= list->room)
        return 0;
    row = realloc(list->row, room * sizeof *row);
    if (row)
        list->row = row;
    sum = row ? realloc(list->sum, room * sum_bytes(list)) : NULL;
    if (sum)
        list->sum = sum;
    if (!row || !sum)
        return no_memory(list, err);
    list->room = room;
    return 0;
}

/* The sums of a row, zeros where it is new. */
static void *sums_of(struct mu_rows *list, int64_t number)
{
    size_t *slot = &list->slot[number];
    char *sums;

    if (*slot > 0)
        return (char *)list->sum + (*slot - 1) * sum_bytes(list);
    sums = (char *)list->sum + list->n * sum_bytes(list);
    memset(sums, 0, sum_bytes(list));
    list->row[list->n++] = number;
    *slot = list->n;
    return sums;
}

static void add_f32(float *to, const float *from, size_t n)
{
    for (size_t k = 0; k < n; k++)
        to[k] += from[k];
}

static void add_f64(double *to, const double *from, size_t n)
{
    for (size_t k = 0; k < n; k++)
        to[k] += from[k];
}

static void widen(double *to, const float *from, size_t n)
{
    for (size_t k = 0; k < n; k++)
        to[k] += (double)from[k];
}

int mu_rows_add(struct mu_rows *list, const int64_t *index, size_t n,
                const void *values, struct mu_err *err)
{
    const char *from = values;
    float *row;
    int rc = 0;

    if (n == 0 || list->width == 0)
        return 0;
    if (reserve(list, n, err) < 0)
        return -1;
    row = malloc(list->width * sizeof *row);
    if (!row)
        return no_memory(list, err);
    for (size_t k = 0; rc == 0 && k < n; k++, from += row_bytes(list)) {
        void *sums = sums_of(list, index[k]);

        if (list->dtype == MUSTER_F64) {
            add_f64(sums, (const void *)from, list->width);
        } else if (list->dtype == MUSTER_F32) {
            add_f32(sums, (const void *)from, list->width);
        } else {
            rc = mu_convert(row, MUSTER_F32, from, list->dtype, list->width, 1, err);
            add_f32(sums, row, list->width);
        }
    }
    free(row);
    return rc;
}

int mu_rows_scale(struct mu_rows *list, double factor, struct mu_err *err)
{
    enum muster_dtype sums = mu_rows_sums(list->dtype);

    if (list->n == 0 || factor == 1)
        return 0;
    return mu_convert(list->sum, sums, list->sum, sums, list->n * list->width, factor,
                      err);
}

void mu_rows_reset(struct mu_rows *list)
{
    for (size_t k = 0; k < list->n; k++)
        list->slot[list->row[k]] = 0;
    list->n = 0;
}

size_t mu_rows_values_at(size_t n)
{
    return n * sizeof(int64_t);
}

size_t mu_rows_bytes(const struct mu_rows *list, size_t n)
{
    return mu_rows_values_at(n) + (n * row_bytes(list) + 7) / 8 * 8;
}

static int by_number(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return x < y ? -1 : x > y;
}

int mu_rows_pack(const struct mu_rows *list, double factor, char *message,
                 struct mu_err *err)
{
    int64_t *number = (int64_t *)message;
    char *to = message + mu_rows_values_at(list->n);

    if (list->n == 0)
        return 0;
    memcpy(number, list->row, list->n * sizeof *number);
    qsort(number, list->n, sizeof *number, by_number);
    for (size_t k = 0; k < list->n; k++, to += row_bytes(list)) {
        const char *sums =
            (const char *)list->sum + (list->slot[number[k]] - 1) * sum_bytes(list);

        if (mu_convert(to, list->dtype, sums, mu_rows_sums(list->dtype), list->width,
                       factor, err) < 0)
            return -1;
    }
    memset(to, 0, mu_rows_bytes(list, list->n) - (size_t)(to - message));
    return 0;
}

/* Adds up the messages, the lowest number first. */
struct merge {
    const struct mu_rows *list;
    const struct mu_rows_message *from;
    int nfrom;
    size_t *next; /* by message: its first row that is left */
    double *sum;
    float *row; /* room to convert into */
};

static int64_t number_of(const struct mu_rows_message *m, size_t k)
{
    int64_t number;

    memcpy(&number, m->bytes + k * sizeof number, sizeof number);
    return number;
}

/* The lowest number that is left; -1: none. */
static int64_t lowest(const struct merge *g)
{
    int64_t low = -1;

    for (int r = 0; r < g->nfrom; r++)
        if (g->next[r] < g->from[r].n) {
            int64_t number = number_of(&g->from[r], g->next[r]);

            low = low < 0 || number < low ? number : low;
        }
    return low;
}

/* sum += one row of the gradient's type. */
static int add_row(struct merge *g, const char *row, struct mu_err *err)
{
    size_t width = g->list->width;

    if (g->list->dtype == MUSTER_F64) {
        add_f64(g->sum, (const void *)row, width);
        return 0;
    }
    if (g->list->dtype == MUSTER_F32) {
        widen(g->sum, (const void *)row, width);
        return 0;
    }
    if (mu_convert(g->row, MUSTER_F32, row, g->list->dtype, width, 1, err) < 0)
        return -1;
    widen(g->sum, g->row, width);
    return 0;
}

static int store_row(struct merge *g, char *row, struct mu_err *err)
{
    size_t width = g->list->width;
    float *out = g->list->dtype == MUSTER_F32 ? (void *)row : g->row;

    if (g->list->dtype == MUSTER_F64) {
        memcpy(row, g->sum, width * sizeof *g->sum);
        return 0;
    }
    for (size_t k = 0; k < width; k++)
        out[k] = (float)g->sum[k];
    return mu_convert(row, g->list->dtype, out, MUSTER_F32, width, 1, err);
}

static int merge_row(struct merge *g, int64_t number, double scale, char *dense,
                     struct mu_err *err)
{
    size_t width = g->list->width;

    memset(g->sum, 0, width * sizeof *g->sum);
    for (int r = 0; r < g->nfrom; r++) {
        const struct mu_rows_message *m = &g->from[r];
        const char *values = m->bytes + mu_rows_values_at(m->n);

        if (g->next[r] == m->n || number_of(m, g->next[r]) != number)
            continue;
        if (add_row(g, values + g->next[r]++ * row_bytes(g->list), err) < 0)
            return -1;
    }
    for (size_t k = 0; k < width; k++)
        g->sum[k] *= scale;
    if (add_row(g, dense, err) < 0)
        return -1;
    return store_row(g, dense, err);
}

int mu_rows_merge(const struct mu_rows *list, const struct mu_rows_message *from,
                  int nfrom, double scale, void *dense, struct mu_err *err)
{
    struct merge g = { list,
                       from,
                       nfrom,
                       calloc((size_t)nfrom + 1, sizeof *g.next),
                       calloc(list->width + 1, sizeof *g.sum),
                       calloc(list->width + 1, sizeof *g.row) };
    int rc = g.next && g.sum && g.row ? 0 : no_memory(list, err);

    for (int64_t number; rc == 0 && (number = lowest(&g)) >= 0;)
        rc = merge_row(&g, number, scale,
                       (char *)dense + (size_t)number * row_bytes(list), err);
    free(g.next);
    free(g.sum);
    free(g.row);
    return rc;
}
