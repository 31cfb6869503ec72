/* SPDX-License-Identifier: BSD-3-Clause */
/* compute.h - the work of a training step for the replay: matrix products and passes
 *
 * bf16 matrix products by cuBLAS with fp32 accumulation, element-wise passes over
 * bf16, and writes of gradients; tests/gpu/ddp_twin.py does the same with PyTorch. Like
 * gpu.h, it ends the program when CUDA fails.
 */
#ifndef MU_NCCL_BENCH_COMPUTE_H
#define MU_NCCL_BENCH_COMPUTE_H

#include <stddef.h>

#include "runtime/muster.h"

struct mu_compute;

/* Buffers for products and passes with at most that many elements per operand. */
struct mu_compute *mu_compute_create(size_t elements, void *stream);
void mu_compute_destroy(struct mu_compute *c);
/* batch products of m x k by k x n */
void mu_compute_gemm(struct mu_compute *c, int m, int n, int k, int batch);
void mu_compute_pass(struct mu_compute *c, size_t elements);
/* grad[i] = a new value: one write per element */
void mu_compute_write(struct mu_compute *c, void *grad, size_t count,
                      enum muster_dtype dtype);

#endif
