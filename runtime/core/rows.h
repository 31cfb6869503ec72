/* SPDX-License-Identifier: BSD-3-Clause */
/* rows.h - some rows of a gradient, instead of all: collect them, add them up; pure
 * arithmetic
 *
 * A gradient of `rows` rows with `width` elements each. A rank lists the rows that are
 * not zero, packs them into a message, and adds up the messages of all ranks.
 */
#ifndef MU_ROWS_H
#define MU_ROWS_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/base/err.h"
#include "runtime/muster.h"

/* The rows of one rank, each once. */
struct mu_rows {
    enum muster_dtype dtype; /* of the gradient */
    size_t rows, width;
    size_t n, room; /* rows in the list; allocated */
    int64_t *row;   /* their numbers, in the order of their first arrival */
    void *sum;      /* of their values, as mu_rows_sums says */
    size_t *slot;   /* by number: its place in the list + 1; 0: none */
};

/* n rows as one rank sends them; mu_rows_bytes long, 8-byte aligned. */
struct mu_rows_message {
    const char *bytes;
    size_t n;
};

/* Nothing is allocated before the first row. */
void mu_rows_init(struct mu_rows *list, enum muster_dtype dtype, size_t rows,
                  size_t width);
void mu_rows_clear(struct mu_rows *list);
/* Type in which one rank's sums are kept: f64 for f64, else f32. */
enum muster_dtype mu_rows_sums(enum muster_dtype dtype);
/* The first of n numbers that is no row; n when all are. */
size_t mu_rows_outside(const struct mu_rows *list, const int64_t *index, size_t n);
/* Add n rows of the gradient's type. A number may be there several times: its values
 * are added in that order. The numbers are rows.
 */
int mu_rows_add(struct mu_rows *list, const int64_t *index, size_t n,
                const void *values, struct mu_err *err);
/* Multiply all sums. */
int mu_rows_scale(struct mu_rows *list, double factor, struct mu_err *err);
/* The list becomes empty and keeps its memory. */
void mu_rows_reset(struct mu_rows *list);

/* Length of a message of n rows, a multiple of 8. */
size_t mu_rows_bytes(const struct mu_rows *list, size_t n);
/* Where the values are in a message of n rows; before them are its numbers. */
size_t mu_rows_values_at(size_t n);
/* Write the message of the list, by rising numbers, its values times factor. */
int mu_rows_pack(const struct mu_rows *list, double factor, char *message,
                 struct mu_err *err);
/* dense += scale * the sum of the messages, row by row. Sums are taken in double, in
 * the order of the messages, and each element is rounded once.
 */
int mu_rows_merge(const struct mu_rows *list, const struct mu_rows_message *from,
                  int nfrom, double scale, void *dense, struct mu_err *err);

#endif
