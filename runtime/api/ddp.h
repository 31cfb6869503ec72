/* SPDX-License-Identifier: BSD-3-Clause */
/* ddp.h - the gradients of one model: parameters, buckets, the state of a step
 *
 *   ddp.c         create, destroy, ask, broadcast
 *   ddp_step.c    grad_ready ... sync: which bucket may start, who lacks a gradient
 *   ddp_bucket.c  one bucket: fill it, start its all-reduce, take the result out
 */
#ifndef MU_DDP_H
#define MU_DDP_H

#include "runtime/api/impl.h"
#include "runtime/core/bucket.h"
#include "runtime/core/ready.h"

struct mu_ddp_param {
    char *name;
    size_t count;
    enum muster_dtype dtype;
    void *data; /* borrowed, may be NULL */
    void *own;  /* the caller's gradient buffer, NULL: the gradient is a view */
    void *grad; /* where the gradient lives */
};

struct mu_ddp_bucket {
    char *mem;                  /* its part of the arena */
    int *param;                 /* its parameters, by offset */
    struct mu_piece *piece;     /* room for one per parameter */
    struct mu_started *started; /* room for one more than parameters */
    int nstarted;
    void *stream; /* of its gradients in this step */
    bool has_stream;
    char what[64]; /* "bucket 7 of step 1204" */
};

struct muster_ddp {
    struct muster *m;
    int nparams;
    struct mu_ddp_param *param;
    struct mu_bucket_plan plan;
    struct mu_ready ready;
    struct mu_ddp_bucket *bucket;
    char *arena;
    uint64_t step; /* syncs done */
    uint64_t id;   /* of this ddp among those of m */
    uint64_t plan_hash;
    bool accumulating;
    bool *used;     /* by parameter: has a gradient in this or an earlier micro-batch */
    bool *declined; /* by parameter: the caller said that there is none */
    bool *absent;   /* by parameter: no rank has a gradient in this step */
};

/* Start bucket b: the gradients of `used` parameters and zeros for the others; those
 * that are `absent` everywhere are left out of the collective, which all ranks do
 * alike.
 */
int mu_ddp_bucket_start(struct muster_ddp *ddp, int b, struct mu_err *err);
/* Wait for it (GPU: make stream wait) and put gradients into the callers' own buffers.
 */
int mu_ddp_bucket_finish(struct muster_ddp *ddp, int b, void *stream,
                         struct mu_err *err);

#endif
