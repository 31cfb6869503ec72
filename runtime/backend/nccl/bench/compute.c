/* SPDX-License-Identifier: BSD-3-Clause */
/* compute.c - the work of a training step for the replay: matrix products and passes */
#include "runtime/backend/nccl/bench/compute.h"

#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/backend/nccl/bench/gpu.h"
#include "runtime/core/dtype.h"

#define WORKSPACE ((size_t)32 << 20)

struct mu_compute {
    cublasHandle_t blas;
    cudaStream_t stream;
    void *a, *b, *c, *workspace;
    size_t elements;
};

static void blas_check(cublasStatus_t rc, const char *what)
{
    if (rc == CUBLAS_STATUS_SUCCESS)
        return;
    fprintf(stderr, "muster: %s: cuBLAS status %d\n", what, (int)rc);
    exit(MUSTER_EDEVICE);
}

struct mu_compute *mu_compute_create(size_t elements, void *stream)
{
    struct mu_compute *c = calloc(1, sizeof *c);

    if (!c)
        exit(MUSTER_EMEMORY);
    c->elements = elements;
    c->stream = stream;
    c->a = mu_gpu_alloc(elements * 2);
    c->b = mu_gpu_alloc(elements * 2);
    c->c = mu_gpu_alloc(elements * 2);
    c->workspace = mu_gpu_alloc(WORKSPACE);
    mu_gpu_fill(c->a, elements, MUSTER_BF16, 1, 0, stream);
    mu_gpu_fill(c->b, elements, MUSTER_BF16, 2, 0, stream);
    mu_gpu_fill(c->c, elements, MUSTER_BF16, 3, 0, stream);
    blas_check(cublasCreate(&c->blas), "cublasCreate");
    blas_check(cublasSetStream(c->blas, c->stream), "cublasSetStream");
    /* Our own workspace, so that a captured graph needs no allocation. */
    blas_check(cublasSetWorkspace(c->blas, c->workspace, WORKSPACE),
               "cublasSetWorkspace");
    return c;
}

void mu_compute_destroy(struct mu_compute *c)
{
    if (!c)
        return;
    cublasDestroy(c->blas);
    mu_gpu_free(c->a);
    mu_gpu_free(c->b);
    mu_gpu_free(c->c);
    mu_gpu_free(c->workspace);
    free(c);
}

void mu_compute_gemm(struct mu_compute *c, int m, int n, int k, int batch)
{
    const float one = 1.0f, zero = 0.0f;

    /* A row-major product m x n = (m x k) (k x n) is a column-major product of the
     * transposes. PyTorch makes the same calls.
     */
    blas_check(
        batch == 1
            ? cublasGemmEx(c->blas, CUBLAS_OP_N, CUBLAS_OP_N, n, m, k, &one, c->b,
                           CUDA_R_16BF, n, c->a, CUDA_R_16BF, k, &zero, c->c,
                           CUDA_R_16BF, n, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT)
            : cublasGemmStridedBatchedEx(c->blas, CUBLAS_OP_N, CUBLAS_OP_N, n, m, k,
                                         &one, c->b, CUDA_R_16BF, n, (long long)n * k,
                                         c->a, CUDA_R_16BF, k, (long long)m * k, &zero,
                                         c->c, CUDA_R_16BF, n, (long long)m * n, batch,
                                         CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
        "a matrix product of the replay");
}

void mu_compute_pass(struct mu_compute *c, size_t elements)
{
    mu_gpu_pass(c->b, c->a, elements, c->stream);
}

void mu_compute_write(struct mu_compute *c, void *grad, size_t count,
                      enum muster_dtype dtype)
{
    mu_gpu_set(grad, count, dtype, 0.5, c->stream);
}
