/* SPDX-License-Identifier: BSD-3-Clause */
/* memory.h - backend functions on host memory; all are done on return */
#ifndef MU_HOST_MEMORY_H
#define MU_HOST_MEMORY_H

#include "runtime/backend/backend.h"

int mu_memory_device(const struct mu_backend *b);
int mu_memory_drain(struct mu_backend *b, void *stream, struct mu_err *err);
int mu_memory_copy(struct mu_backend *b, void *dst, const void *src, size_t bytes,
                   void *stream, struct mu_err *err);
int mu_memory_zero(struct mu_backend *b, void *dst, size_t bytes, void *stream,
                   struct mu_err *err);
int mu_memory_squares(struct mu_backend *b, const void *data, size_t count,
                      enum muster_dtype dtype, double *sums, void *stream,
                      struct mu_err *err);
int mu_memory_int8(struct mu_backend *b, enum mu_int8_stage stage,
                   const struct mu_int8_tensor *tensors, int n, int ranks, void *stream,
                   struct mu_err *err);
int mu_memory_lowrank(struct mu_backend *b, enum mu_lowrank_stage stage,
                      const struct mu_lowrank_tensor *tensors, int n, void *stream,
                      struct mu_err *err);
/* An exchange: copy the part that this rank keeps, unless it is in place. */
void mu_memory_own_part(const struct mu_coll *coll, int rank);
/* A message to this rank itself. */
void mu_memory_own_message(const struct mu_coll *coll);

#endif
