/* SPDX-License-Identifier: BSD-3-Clause */
/* pack.c - tensors into a bucket and back, copies, zeros, sums; all enqueued on a
 * stream
 */
#include "runtime/backend/nccl/nccl.h"

static int move(const struct mu_piece *pieces, int n, bool to_bucket, void *bucket,
                enum muster_dtype outside, enum muster_dtype inside, double scale,
                void *stream, struct mu_err *err)
{
    struct mu_pack_piece batch[MU_PIECES];

    while (n > 0) {
        int k = n < MU_PIECES ? n : MU_PIECES;
        cudaError_t rc;

        for (int i = 0; i < k; i++)
            batch[i] = (struct mu_pack_piece){ pieces[i].at, pieces[i].offset,
                                               pieces[i].count };
        rc =
            mu_pack_launch(batch, k, to_bucket, bucket, outside, inside, scale, stream);
        if (rc == cudaErrorInvalidValue)
            return mu_err_set(err, MUSTER_EUSAGE,
                              "a bucket of dtype %d cannot hold gradients of dtype %d",
                              inside, outside);
        if (rc != cudaSuccess)
            return mu_cuda_err(err, rc, to_bucket ? "packing" : "unpacking");
        pieces += k;
        n -= k;
    }
    return 0;
}

int mu_pack_pieces(struct mu_backend *b, const struct mu_piece *pieces, int n,
                   enum muster_dtype from, void *bucket, enum muster_dtype to,
                   double scale, void *stream, struct mu_err *err)
{
    return move(pieces, n, true, bucket, from, to, scale, stream, err);
}

int mu_unpack_pieces(struct mu_backend *b, const struct mu_piece *pieces, int n,
                     enum muster_dtype to, const void *bucket, enum muster_dtype from,
                     double scale, void *stream, struct mu_err *err)
{
    return move(pieces, n, false, (void *)bucket, to, from, scale, stream, err);
}

int mu_copy_bytes(struct mu_backend *b, void *dst, const void *src, size_t bytes,
                  void *stream, struct mu_err *err)
{
    cudaError_t rc = cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, stream);

    return rc == cudaSuccess ? 0 : mu_cuda_err(err, rc, "copying");
}

int mu_zero_bytes(struct mu_backend *b, void *dst, size_t bytes, void *stream,
                  struct mu_err *err)
{
    cudaError_t rc = cudaMemsetAsync(dst, 0, bytes, stream);

    return rc == cudaSuccess ? 0 : mu_cuda_err(err, rc, "zeroing");
}

int mu_add_squares(struct mu_backend *b, const void *data, size_t count,
                   enum muster_dtype dtype, double *sums, void *stream,
                   struct mu_err *err)
{
    cudaError_t rc = mu_squares(data, count, dtype, sums, stream);

    return rc == cudaSuccess ? 0 : mu_cuda_err(err, rc, "the gradient norm");
}

int mu_find_nonfinite_pieces(struct mu_backend *b, const struct mu_piece *pieces, int n,
                             enum muster_dtype dtype, uint32_t *found, void *stream,
                             struct mu_err *err)
{
    struct mu_nonfinite_piece batch[MU_NONFINITE_PIECES];

    for (int from = 0; from < n; from += MU_NONFINITE_PIECES) {
        int k = n - from < MU_NONFINITE_PIECES ? n - from : MU_NONFINITE_PIECES;
        cudaError_t rc;

        for (int i = 0; i < k; i++)
            batch[i] = (struct mu_nonfinite_piece){ pieces[from + i].at,
                                                    pieces[from + i].count,
                                                    (uint32_t)(n - from - i) };
        rc = mu_find_nonfinite(batch, k, dtype, found, stream);
        if (rc != cudaSuccess)
            return mu_cuda_err(err, rc, "the search for NaN and Inf");
    }
    return 0;
}

int mu_int8_tensors(struct mu_backend *b, enum mu_int8_stage stage,
                    const struct mu_int8_tensor *tensors, int n, int ranks,
                    void *stream, struct mu_err *err)
{
    for (int from = 0; from < n; from += MU_INT8_TENSORS) {
        int k = n - from < MU_INT8_TENSORS ? n - from : MU_INT8_TENSORS;
        cudaError_t rc = mu_int8_launch(stage, tensors + from, k, ranks, stream);

        if (rc != cudaSuccess)
            return mu_cuda_err(err, rc, "8-bit gradients");
    }
    return 0;
}

int mu_lowrank_tensors(struct mu_backend *b, enum mu_lowrank_stage stage,
                       const struct mu_lowrank_tensor *tensors, int n, void *stream,
                       struct mu_err *err)
{
    for (int from = 0; from < n; from += MU_LOWRANK_TENSORS) {
        int k = n - from < MU_LOWRANK_TENSORS ? n - from : MU_LOWRANK_TENSORS;
        cudaError_t rc = mu_lowrank_launch(stage, tensors + from, k, stream);

        if (rc != cudaSuccess)
            return mu_cuda_err(err, rc, "PowerSGD");
    }
    return 0;
}

bool mu_is_host(const struct mu_backend *b, const void *p)
{
    struct cudaPointerAttributes what;

    if (cudaPointerGetAttributes(&what, p) != cudaSuccess) {
        (void)cudaGetLastError();
        return true;
    }
    return what.type == cudaMemoryTypeUnregistered || what.type == cudaMemoryTypeHost;
}

int mu_copy_any(struct mu_backend *b, void *dst, const void *src, size_t bytes,
                struct mu_err *err)
{
    const struct mu_nccl_backend *nccl = mu_nccl_of(b);
    int callers;
    cudaError_t rc = mu_device_enter(nccl, &callers);

    if (rc == cudaSuccess)
        rc = cudaDeviceSynchronize();
    if (rc == cudaSuccess)
        rc = cudaMemcpy(dst, src, bytes, cudaMemcpyDefault);
    /* A copy from pageable memory may return before the data has arrived. */
    if (rc == cudaSuccess)
        rc = cudaDeviceSynchronize();
    mu_device_leave(nccl, callers);
    return rc == cudaSuccess ? 0 : mu_cuda_err(err, rc, "copying between host and GPU");
}

void *mu_alloc_private(struct mu_backend *b, size_t bytes, void *stream,
                       struct mu_err *err)
{
    const struct mu_nccl_backend *nccl = mu_nccl_of(b);
    void *p = NULL;
    int callers;
    cudaError_t rc = mu_device_enter(nccl, &callers);

    if (rc == cudaSuccess)
        rc = cudaMallocAsync(&p, bytes > 0 ? bytes : 1, stream);
    mu_device_leave(nccl, callers);
    if (rc != cudaSuccess)
        mu_cuda_err(err, rc, "GPU memory for a copy of host memory");
    return p;
}

/* cudaFree would wait for all kernels, and so for ranks that wait for this one. */
void mu_free_private(struct mu_backend *b, void *p, void *stream)
{
    const struct mu_nccl_backend *nccl = mu_nccl_of(b);
    int callers;

    if (mu_device_enter(nccl, &callers) == cudaSuccess)
        cudaFreeAsync(p, stream);
    mu_device_leave(nccl, callers);
}
