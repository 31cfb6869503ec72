/* SPDX-License-Identifier: BSD-3-Clause */
/* pack.cu - gather many tensors into a bucket and back in one launch, with cast and
 * scale
 */
#include "runtime/backend/nccl/kernels/device.cuh"

#define THREADS 512
#define PER_BLOCK (THREADS * 16) /* elements */

template <int MAX> struct pack_args {
    struct mu_list<struct mu_pack_piece, MAX> list;
    char *bucket;
    double scale;
};

template <typename D, typename S> __device__ inline D convert(S x, double scale)
{
    typename mu_acc<S>::type v = mu_acc<S>::up(x);
    if (scale != 1.0)
        v = mu_scaled(v, scale);
    return mu_acc<D>::down((typename mu_acc<D>::type)v);
}

template <typename D, typename S>
__device__ inline void move(D *dst, const S *src, size_t count, double scale)
{
    const int E = 16 / sizeof(S);

    if (sizeof(D) == sizeof(S) && ((uintptr_t)dst | (uintptr_t)src) % 16 == 0) {
        size_t vectors = count / E;
        for (size_t i = threadIdx.x; i < vectors; i += THREADS) {
            mu_vec<S> in;
            mu_vec<D> out;
            in.v = ((const uint4 *)src)[i];
#pragma unroll
            for (int j = 0; j < E; j++)
                out.e[j] = convert<D, S>(in.e[j], scale);
            ((uint4 *)dst)[i] = out.v;
        }
        for (size_t i = vectors * E + threadIdx.x; i < count; i += THREADS)
            dst[i] = convert<D, S>(src[i], scale);
        return;
    }
#pragma unroll 8
    for (size_t i = threadIdx.x; i < count; i += THREADS)
        dst[i] = convert<D, S>(src[i], scale);
}

template <typename O, typename I, bool TO_BUCKET, int MAX>
__global__ void __launch_bounds__(THREADS)
    pack(const __grid_constant__ struct pack_args<MAX> a)
{
    uint32_t block;
    const struct mu_pack_piece &p = a.list.of(&block);
    size_t from = (size_t)block * PER_BLOCK;
    size_t count = p.count - from < PER_BLOCK ? p.count - from : PER_BLOCK;
    O *outside = (O *)p.at + from;
    I *inside = (I *)(a.bucket + p.offset) + from;

    if (TO_BUCKET)
        move<I, O>(inside, outside, count, a.scale);
    else
        move<O, I>(outside, inside, count, a.scale);
}

template <typename T> __global__ void scale_all(T *buffer, size_t count, double scale)
{
    size_t stride = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < count;
         i += stride)
        buffer[i] = convert<T, T>(buffer[i], scale);
}

__global__ void mark(volatile uint32_t *word)
{
    *word = *word + 1;
}

__global__ void hold(unsigned long long ns)
{
    unsigned long long from, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(from));
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - from < ns);
}

/* ---- Launch --------------------------------------------------------------------- */

template <int MAX>
static cudaError_t launch(const void *fn, const struct mu_pack_piece *pieces, int n,
                          void *bucket, double scale, cudaStream_t stream)
{
    struct pack_args<MAX> args;

    args.list.clear();
    args.bucket = (char *)bucket;
    args.scale = scale;
    for (int i = 0; i < n; i++)
        if (!args.list.add(pieces[i], (pieces[i].count + PER_BLOCK - 1) / PER_BLOCK))
            return cudaErrorInvalidValue;
    return mu_launch(fn, &args, THREADS, stream);
}

template <int MAX, bool TO> struct table {
    template <typename O, typename I> static const void *of()
    {
        return (const void *)pack<O, I, TO, MAX>;
    }
    static const void *get(enum muster_dtype outside, enum muster_dtype inside)
    {
        switch (outside * 16 + inside) {
        case MUSTER_F32 * 16 + MUSTER_F32:
            return of<float, float>();
        case MUSTER_F64 * 16 + MUSTER_F64:
            return of<double, double>();
        case MUSTER_F16 * 16 + MUSTER_F16:
            return of<__half, __half>();
        case MUSTER_BF16 * 16 + MUSTER_BF16:
            return of<__nv_bfloat16, __nv_bfloat16>();
        case MUSTER_I32 * 16 + MUSTER_I32:
            return of<int32_t, int32_t>();
        case MUSTER_I64 * 16 + MUSTER_I64:
            return of<int64_t, int64_t>();
        case MUSTER_F32 * 16 + MUSTER_F16:
            return of<float, __half>();
        case MUSTER_F16 * 16 + MUSTER_F32:
            return of<__half, float>();
        case MUSTER_F32 * 16 + MUSTER_BF16:
            return of<float, __nv_bfloat16>();
        case MUSTER_BF16 * 16 + MUSTER_F32:
            return of<__nv_bfloat16, float>();
        case MUSTER_F64 * 16 + MUSTER_F32:
            return of<double, float>();
        case MUSTER_F32 * 16 + MUSTER_F64:
            return of<float, double>();
        default:
            return NULL;
        }
    }
};

#define FEW 64 /* a short list makes a cheaper launch */

static const void *pack_kernel(bool few, bool to_bucket, enum muster_dtype outside,
                               enum muster_dtype inside)
{
    if (few)
        return to_bucket ? table<FEW, true>::get(outside, inside)
                         : table<FEW, false>::get(outside, inside);
    return to_bucket ? table<MU_PIECES, true>::get(outside, inside)
                     : table<MU_PIECES, false>::get(outside, inside);
}

cudaError_t mu_pack_launch(const struct mu_pack_piece *pieces, int n, bool to_bucket,
                           void *bucket, enum muster_dtype outside,
                           enum muster_dtype inside, double scale, cudaStream_t stream)
{
    const void *fn = pack_kernel(n <= FEW, to_bucket, outside, inside);

    if (!fn || n > MU_PIECES)
        return cudaErrorInvalidValue;
    return n <= FEW ? launch<FEW>(fn, pieces, n, bucket, scale, stream)
                    : launch<MU_PIECES>(fn, pieces, n, bucket, scale, stream);
}

static const void *scale_kernel(enum muster_dtype dtype)
{
    return mu_by_type<const void *>(
        dtype, [](auto x) { return (const void *)scale_all<decltype(x)>; });
}

cudaError_t mu_scale(void *buffer, size_t count, enum muster_dtype dtype, double scale,
                     cudaStream_t stream)
{
    size_t blocks = (count + 4095) / 4096;
    void *argv[] = { &buffer, &count, &scale };

    if (count == 0)
        return cudaSuccess;
    return cudaLaunchKernel(scale_kernel(dtype), dim3(blocks < 264 ? blocks : 264),
                            dim3(512), argv, 0, stream);
}

cudaError_t mu_mark(volatile uint32_t *word, cudaStream_t stream)
{
    void *argv[] = { &word };

    return cudaLaunchKernel((const void *)mark, dim3(1), dim3(1), argv, 0, stream);
}

cudaError_t mu_hold(double us, cudaStream_t stream)
{
    unsigned long long ns = (unsigned long long)(us * 1000);
    void *argv[] = { &ns };

    return cudaLaunchKernel((const void *)hold, dim3(1), dim3(1), argv, 0, stream);
}

cudaError_t mu_pack_load(void)
{
    cudaFuncAttributes attr;
    cudaError_t rc = cudaFuncGetAttributes(&attr, (const void *)mark);

    if (rc == cudaSuccess)
        rc = cudaFuncGetAttributes(&attr, (const void *)hold);

    for (int o = MUSTER_F32; o <= MUSTER_I64 && rc == cudaSuccess; o++) {
        rc = cudaFuncGetAttributes(&attr, scale_kernel((enum muster_dtype)o));
        for (int i = MUSTER_F32; i <= MUSTER_I64; i++)
            for (int k = 0; k < 4 && rc == cudaSuccess; k++) {
                const void *fn = pack_kernel(k & 1, k & 2, (enum muster_dtype)o,
                                             (enum muster_dtype)i);
                if (fn)
                    rc = cudaFuncGetAttributes(&attr, fn);
            }
    }
    return rc;
}

cudaError_t mu_kernels_load(void)
{
    cudaError_t rc = mu_one_shot_load();

    if (rc == cudaSuccess)
        rc = mu_pull_load();
    if (rc == cudaSuccess)
        rc = mu_relay_load();
    if (rc == cudaSuccess)
        rc = mu_own_load();
    if (rc == cudaSuccess)
        rc = mu_mail_load();
    if (rc == cudaSuccess)
        rc = mu_pipe_load();
    if (rc == cudaSuccess)
        rc = mu_copy_load();
    if (rc == cudaSuccess)
        rc = mu_pack_load();
    if (rc == cudaSuccess)
        rc = mu_norm_load();
    if (rc == cudaSuccess)
        rc = mu_int8_load();
    if (rc == cudaSuccess)
        rc = mu_powersgd_load();
    return rc;
}
