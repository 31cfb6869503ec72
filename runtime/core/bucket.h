/* SPDX-License-Identifier: BSD-3-Clause */
/* bucket.h - cut a list of gradients into buckets; no CUDA, no NCCL */
#ifndef MU_BUCKET_H
#define MU_BUCKET_H

#include <stdbool.h>
#include <stddef.h>

#include "runtime/base/err.h"
#include "runtime/core/curve.h"
#include "runtime/muster.h"

/* Every gradient starts at a multiple of this inside its bucket, every bucket is a
 * multiple of it long: 16-byte vector loads and whole cache lines for any dtype.
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
    int last_at; /* place in the order of arrival of its last gradient */
};

struct mu_bucket_plan {
    int nparams, nbuckets;
    struct mu_bucket_place *place; /* by parameter */
    struct mu_bucket_info *bucket; /* in the order in which they start */
};

/* How to cut. Without a curve a bucket is closed before it would exceed its cap:
 * first_bytes for the first one of a dtype, cap_bytes for the others. With one, buckets
 * are cut by bucket_cut.h, none above cap_bytes, each dtype by itself but at the times
 * at which its gradients arrive among all. Only a gradient that is larger by itself
 * makes a bucket that exceeds its cap.
 */
struct mu_bucket_rule {
    size_t first_bytes, cap_bytes;
    /* At least 1. Bucket lengths are also multiples of granule * MU_BUCKET_ALIGN, so
     * that they divide evenly among that many ranks.
     */
    int granule;
    /* The parameters as their gradients arrive; NULL: last to first. */
    const int *order;
    const struct mu_curve *curve; /* NULL or without points: not measured */
    /* Of the backward pass, for each byte of gradient; 0: it takes twice as long as
     * all-reduces of cap_bytes.
     */
    double us_per_byte;
};

/* Buckets are filled in the order of arrival, one dtype each, and numbered in the order
 * in which they are complete. No gradients: no buckets. mu_bucket_plan_clear frees what
 * *out holds.
 */
int mu_bucket_plan_make(const struct mu_bucket_item *items, int n,
                        const struct mu_bucket_rule *rule, struct mu_bucket_plan *out,
                        struct mu_err *err);
void mu_bucket_plan_clear(struct mu_bucket_plan *plan);

/* Is each of 0 .. n-1 there once? */
bool mu_bucket_is_order(const int *order, int n);
/* The buckets in the order in which they are complete when gradients arrive in
 * `arrival`: *started, plan->nbuckets numbers. For buckets that must stay as they are.
 */
void mu_bucket_starts(const struct mu_bucket_plan *plan, const int *arrival,
                      int *started);

#endif
