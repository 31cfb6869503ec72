/* SPDX-License-Identifier: BSD-3-Clause */
/* bucket.h - cut a list of gradients into buckets; no CUDA, no NCCL */
#ifndef MU_BUCKET_H
#define MU_BUCKET_H

#include <stddef.h>

#include "runtime/base/err.h"
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
    int last_param; /* the smallest index in it: ready last in a backward pass */
};

struct mu_bucket_plan {
    int nparams, nbuckets;
    struct mu_bucket_place *place; /* by parameter */
    struct mu_bucket_info *bucket; /* in the order in which they start */
};

/* Buckets are filled from the last gradient to the first, one dtype each; a bucket is
 * closed before it would exceed its cap (first_bytes for the first one of a dtype,
 * cap_bytes for the others), so only a gradient that is larger by itself makes a bucket
 * that exceeds it. `granule` (at least 1): bucket lengths are also multiples of
 * granule * MU_BUCKET_ALIGN bytes, so that a bucket divides evenly among that many
 * ranks. Buckets are numbered in the order in which a backward pass completes them. No
 * gradients: no buckets. mu_bucket_plan_clear frees what *out holds.
 */
int mu_bucket_plan_make(const struct mu_bucket_item *items, int n, size_t first_bytes,
                        size_t cap_bytes, int granule, struct mu_bucket_plan *out,
                        struct mu_err *err);
void mu_bucket_plan_clear(struct mu_bucket_plan *plan);

#endif
