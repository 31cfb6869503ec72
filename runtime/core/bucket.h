/* SPDX-License-Identifier: BSD-3-Clause */
/* bucket.h - cut a list of gradients into buckets */
#ifndef MU_BUCKET_H
#define MU_BUCKET_H

#include <stdbool.h>
#include <stddef.h>

#include "runtime/base/err.h"
#include "runtime/core/curve.h"
#include "runtime/muster.h"

/* Bytes. Offsets of gradients in a bucket and lengths of buckets are multiples of it,
 * for vector loads of 16 bytes and whole cache lines with any dtype.
 */
#define MU_BUCKET_ALIGN 128
#define MU_BUCKET_FIRST ((size_t)1 << 20)
#define MU_BUCKET_CAP ((size_t)25 << 20)

struct mu_bucket_item {
    size_t count; /* elements, 0 is allowed */
    enum muster_dtype dtype;
};

struct mu_bucket_place {
    int bucket;
    size_t offset; /* bytes from the start of the bucket */
};

struct mu_bucket_info {
    enum muster_dtype dtype;
    size_t bytes; /* padding included */
    int nparams;
    int last_at; /* index of its last gradient in the order of arrival */
};

struct mu_bucket_plan {
    int nparams, nbuckets;
    struct mu_bucket_place *place; /* by parameter */
    struct mu_bucket_info *bucket; /* in the order in which they start */
};

/* How to cut. Without a curve a bucket is filled up to its cap: first_bytes for the
 * first one of a dtype, cap_bytes for the others. With a curve, mu_bucket_cut decides
 * for each dtype, with cap_bytes and the times at which its gradients arrive among all.
 * A bucket exceeds its cap only where one gradient does.
 */
struct mu_bucket_rule {
    size_t first_bytes, cap_bytes;
    /* At least 1. Bucket lengths are multiples of granule * MU_BUCKET_ALIGN, so that
     * this many ranks get equal parts.
     */
    int granule;
    /* Parameters in the order in which their gradients arrive; NULL: last to first. */
    const int *order;
    const struct mu_curve *curve; /* NULL or without points: not measured */
    /* Time of the backward pass for each byte of gradient. 0: cap_bytes take twice as
     * long there as in their all-reduce.
     */
    double us_per_byte;
    const bool *alone; /* by parameter: in a bucket of its own; NULL: none */
};

/* Buckets are filled in the order of arrival, one dtype each, and numbered in the order
 * in which they become complete. Without gradients there are no buckets.
 * mu_bucket_plan_clear frees what *out holds.
 */
int mu_bucket_plan_make(const struct mu_bucket_item *items, int n,
                        const struct mu_bucket_rule *rule, struct mu_bucket_plan *out,
                        struct mu_err *err);
void mu_bucket_plan_clear(struct mu_bucket_plan *plan);

/* Does order hold each of 0 .. n-1 exactly once? */
bool mu_bucket_is_order(const int *order, int n);
/* For buckets that are not cut anew: the order in which they become complete when
 * gradients arrive in the order `arrival`. started gets plan->nbuckets numbers.
 */
void mu_bucket_starts(const struct mu_bucket_plan *plan, const int *arrival,
                      int *started);

#endif
