/* SPDX-License-Identifier: BSD-3-Clause */
/* gpu.cu - device functions for benchmarks and GPU tests, without CUDA's types */
#include "runtime/backend/nccl/bench/gpu.h"

#include <stdio.h>
#include <stdlib.h>

#include "runtime/backend/nccl/kernels/device.cuh"

extern "C" {
#include "runtime/core/dtype.h"
}

#define GRID 528
#define THREADS 256

void mu_gpu_check(int rc, const char *what)
{
    if (rc == cudaSuccess)
        return;
    fprintf(stderr, "muster: %s: %s\n", what, cudaGetErrorString((cudaError_t)rc));
    exit(MUSTER_EDEVICE);
}

#define CHECK(call) mu_gpu_check(call, #call)

static cudaStream_t s(void *stream)
{
    return (cudaStream_t)stream;
}

int mu_gpu_count(void)
{
    int n = 0;

    return cudaGetDeviceCount(&n) == cudaSuccess ? n : 0;
}

const char *mu_gpu_name(void)
{
    static struct cudaDeviceProp prop;
    int device = 0;

    CHECK(cudaGetDevice(&device));
    CHECK(cudaGetDeviceProperties(&prop, device));
    return prop.name;
}

void *mu_gpu_stream(void)
{
    cudaStream_t stream;

    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}

void mu_gpu_sync(void *stream)
{
    CHECK(cudaStreamSynchronize(s(stream)));
}

void *mu_gpu_alloc(size_t bytes)
{
    void *p;

    CHECK(cudaMalloc(&p, bytes ? bytes : 1));
    return p;
}

void mu_gpu_free(void *p)
{
    CHECK(cudaFree(p));
}

void mu_gpu_put(void *device, const void *host, size_t bytes)
{
    CHECK(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice));
    /* A small copy from pageable memory may return before the data arrives, and other
     * streams do not wait for it.
     */
    CHECK(cudaStreamSynchronize(0));
}

void mu_gpu_get(void *host, const void *device, size_t bytes)
{
    CHECK(cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost));
}

size_t mu_gpu_free_bytes(void)
{
    size_t left = 0, total;

    CHECK(cudaMemGetInfo(&left, &total));
    return left;
}

/* ---- Random data and its check --------------------------------------------------- */

__device__ inline double made(uint32_t seed, int rank, size_t i)
{
    uint64_t x = (uint64_t)i * 0x9E3779B97F4A7C15ull + ((uint64_t)seed << 32) +
                 (uint64_t)rank * 0xBF58476D1CE4E5B9ull;
    x ^= x >> 30;
    x *= 0xBF58476D1CE4E5B9ull;
    x ^= x >> 27;
    x *= 0x94D049BB133111EBull;
    x ^= x >> 31;
    return (double)(int32_t)(x >> 32) / 2147483648.0;
}

template <typename T> __device__ inline T made_as(uint32_t seed, int rank, size_t i)
{
    return (T)made(seed, rank, i);
}
template <>
__device__ inline int32_t made_as<int32_t>(uint32_t seed, int rank, size_t i)
{
    return (int32_t)(made(seed, rank, i) * 1e8);
}
template <>
__device__ inline int64_t made_as<int64_t>(uint32_t seed, int rank, size_t i)
{
    return (int64_t)(made(seed, rank, i) * 1e15);
}

template <typename T> struct epsilon {
    static const int bits = 60; /* sums of integers are exact */
};
template <> struct epsilon<float> {
    static const int bits = 23;
};
template <> struct epsilon<double> {
    static const int bits = 50;
};
template <> struct epsilon<__half> {
    static const int bits = 10;
};
template <> struct epsilon<__nv_bfloat16> {
    static const int bits = 7;
};

template <typename T>
__global__ void fill_kernel(T *buffer, size_t count, uint32_t seed, int rank)
{
    size_t stride = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < count;
         i += stride)
        buffer[i] = made_as<T>(seed, rank, i);
}

struct verdict {
    unsigned long long wrong, first;
};

template <typename T>
__global__ void wrong_kernel(const T *buffer, size_t count, uint32_t seed, int ranks,
                             int op, double scale, size_t at, struct verdict *v)
{
    size_t stride = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < count;
         i += stride) {
        double ref = (double)made_as<T>(seed, 0, at + i), size = fabs(ref);
        for (int r = 1; r < ranks; r++) {
            double x = (double)made_as<T>(seed, r, at + i);
            size += fabs(x);
            ref = op == MUSTER_SUM   ? ref + x
                  : op == MUSTER_MIN ? fmin(ref, x)
                                     : fmax(ref, x);
        }
        double got = (double)buffer[i];
        double allowed =
            (ranks + 1) * size * fabs(scale) * ldexp(1.0, -epsilon<T>::bits);
        if (sizeof(T) == 2)
            allowed += 1e-7;
        if (!(fabs(got - ref * scale) <= allowed)) {
            atomicAdd(&v->wrong, 1ull);
            atomicMin(&v->first, (unsigned long long)i);
        }
    }
}

template <typename T>
__global__ void differs_kernel(const T *buffer, size_t count, uint32_t seed, int rank,
                               size_t at, struct verdict *v)
{
    size_t stride = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < count;
         i += stride)
        if ((double)buffer[i] != (double)made_as<T>(seed, rank, at + i))
            atomicAdd(&v->wrong, 1ull);
}

__global__ void hash_kernel(const unsigned char *p, size_t bytes,
                            unsigned long long *out)
{
    size_t stride = (size_t)gridDim.x * blockDim.x;
    unsigned long long sum = 0;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < bytes;
         i += stride)
        sum += (i * 0x9E3779B97F4A7C15ull + 1) * (p[i] + 1ull);
    atomicAdd(out, sum);
}

__global__ void spin_kernel(unsigned long long ns)
{
    unsigned long long from, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(from));
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - from < ns);
}

#define EACH_TYPE(dtype, CALL)                                                         \
    switch (dtype) {                                                                   \
    case MUSTER_F32:                                                                   \
        CALL(float);                                                                   \
        break;                                                                         \
    case MUSTER_F64:                                                                   \
        CALL(double);                                                                  \
        break;                                                                         \
    case MUSTER_F16:                                                                   \
        CALL(__half);                                                                  \
        break;                                                                         \
    case MUSTER_BF16:                                                                  \
        CALL(__nv_bfloat16);                                                           \
        break;                                                                         \
    case MUSTER_I32:                                                                   \
        CALL(int32_t);                                                                 \
        break;                                                                         \
    case MUSTER_I64:                                                                   \
        CALL(int64_t);                                                                 \
        break;                                                                         \
    }

void mu_gpu_fill(void *buffer, size_t count, enum muster_dtype dtype, uint32_t seed,
                 int rank, void *stream)
{
#define FILL(T)                                                                        \
    fill_kernel<T><<<GRID, THREADS, 0, s(stream)>>>((T *)buffer, count, seed, rank)
    EACH_TYPE(dtype, FILL)
    CHECK(cudaGetLastError());
}

static struct verdict *verdict_new(void *stream)
{
    static const struct verdict none = { 0, ~0ull };
    static struct verdict *v;

    if (!v)
        v = (struct verdict *)mu_gpu_alloc(sizeof(*v));
    CHECK(cudaMemcpyAsync(v, &none, sizeof(none), cudaMemcpyHostToDevice, s(stream)));
    return v;
}

static struct verdict verdict_get(const struct verdict *v, void *stream)
{
    struct verdict here;

    CHECK(cudaGetLastError());
    CHECK(cudaMemcpyAsync(&here, v, sizeof(here), cudaMemcpyDeviceToHost, s(stream)));
    mu_gpu_sync(stream);
    return here;
}

uint64_t mu_gpu_wrong(const void *buffer, size_t count, enum muster_dtype dtype,
                      uint32_t seed, int ranks, enum muster_op op, double scale,
                      size_t at, size_t *first, void *stream)
{
    struct verdict *v = verdict_new(stream);

#define WRONG(T)                                                                       \
    wrong_kernel<T><<<GRID, THREADS, 0, s(stream)>>>((const T *)buffer, count, seed,   \
                                                     ranks, op, scale, at, v)
    EACH_TYPE(dtype, WRONG)
    struct verdict got = verdict_get(v, stream);
    if (first)
        *first = got.first;
    return got.wrong;
}

uint64_t mu_gpu_differs(const void *buffer, size_t count, enum muster_dtype dtype,
                        uint32_t seed, int rank, size_t at, void *stream)
{
    struct verdict *v = verdict_new(stream);

#define DIFFERS(T)                                                                     \
    differs_kernel<T>                                                                  \
        <<<GRID, THREADS, 0, s(stream)>>>((const T *)buffer, count, seed, rank, at, v)
    EACH_TYPE(dtype, DIFFERS)
    return verdict_get(v, stream).wrong;
}

uint64_t mu_gpu_hash(const void *buffer, size_t bytes, void *stream)
{
    struct verdict *v = verdict_new(stream);

    hash_kernel<<<GRID, THREADS, 0, s(stream)>>>((const unsigned char *)buffer, bytes,
                                                 &v->wrong);
    return verdict_get(v, stream).wrong;
}

void mu_gpu_spin(double us, void *stream)
{
    spin_kernel<<<1, 1, 0, s(stream)>>>((unsigned long long)(us * 1000));
    CHECK(cudaGetLastError());
}

__global__ void pass_kernel(uint4 *dst, const uint4 *src, size_t vectors)
{
    size_t stride = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < vectors;
         i += stride) {
        mu_vec<__nv_bfloat16> v;
        v.v = src[i];
#pragma unroll
        for (int j = 0; j < 8; j++)
            v.e[j] = __float2bfloat16_rn(__bfloat162float(v.e[j]) * 1.0001f);
        dst[i] = v.v;
    }
}

void mu_gpu_pass(void *dst, const void *src, size_t count, void *stream)
{
    pass_kernel<<<1056, 512, 0, s(stream)>>>((uint4 *)dst, (const uint4 *)src,
                                             count / 8);
    CHECK(cudaGetLastError());
}

template <typename T> __global__ void set_kernel(T *dst, size_t count, double value)
{
    const size_t E = 16 / sizeof(T), vectors = count / E;
    size_t stride = (size_t)gridDim.x * blockDim.x;
    size_t t = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    mu_vec<T> v;
    for (size_t j = 0; j < E; j++)
        v.e[j] = (T)value;
    for (size_t i = t; i < vectors; i += stride)
        ((uint4 *)dst)[i] = v.v;
    if (t < count - vectors * E)
        dst[vectors * E + t] = (T)value;
}

void mu_gpu_set(void *dst, size_t count, enum muster_dtype dtype, double value,
                void *stream)
{
    size_t blocks = count / 4096 + 1;
#define SET(T)                                                                         \
    set_kernel<T><<<(unsigned)(blocks < 1056 ? blocks : 1056), 512, 0, s(stream)>>>(   \
        (T *)dst, count, value)
    EACH_TYPE(dtype, SET)
    CHECK(cudaGetLastError());
}

/* ---- Time ------------------------------------------------------------------------ */

struct captured {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
};

void *mu_gpu_capture(void (*fn)(void *arg), void *arg, int calls, void *stream)
{
    struct captured *c = (struct captured *)calloc(1, sizeof(*c));

    CHECK(cudaStreamBeginCapture(s(stream), cudaStreamCaptureModeGlobal));
    for (int i = 0; i < calls; i++)
        fn(arg);
    CHECK(cudaStreamEndCapture(s(stream), &c->graph));
    CHECK(cudaGraphInstantiate(&c->exec, c->graph, 0));
    CHECK(cudaGraphUpload(c->exec, s(stream)));
    return c;
}

void mu_gpu_replay(void *graph, void *stream)
{
    CHECK(cudaGraphLaunch(((struct captured *)graph)->exec, s(stream)));
}

void mu_gpu_capture_free(void *graph)
{
    struct captured *c = (struct captured *)graph;

    if (!c)
        return;
    CHECK(cudaGraphExecDestroy(c->exec));
    CHECK(cudaGraphDestroy(c->graph));
    free(c);
}

void *mu_gpu_event(void)
{
    cudaEvent_t event;

    CHECK(cudaEventCreate(&event));
    return event;
}

void mu_gpu_mark(void *event, void *stream)
{
    CHECK(cudaEventRecord((cudaEvent_t)event, s(stream)));
}

void mu_gpu_after(void *stream, void *event)
{
    CHECK(cudaStreamWaitEvent(s(stream), (cudaEvent_t)event, 0));
}

double mu_gpu_span(void *from, void *to)
{
    float ms;

    CHECK(cudaEventSynchronize((cudaEvent_t)to));
    CHECK(cudaEventElapsedTime(&ms, (cudaEvent_t)from, (cudaEvent_t)to));
    return ms * 1000.0;
}

void mu_gpu_time(void (*fn)(void *arg), void *arg, int batch, int n, bool graph,
                 double *us, void *stream)
{
    static void *between[2];
    void *captured = graph ? mu_gpu_capture(fn, arg, batch, stream) : NULL;

    if (!between[0]) {
        between[0] = mu_gpu_event();
        between[1] = mu_gpu_event();
    }
    for (int i = -2; i < n; i++) { /* two batches to warm up */
        mu_gpu_mark(between[0], stream);
        if (captured)
            mu_gpu_replay(captured, stream);
        else
            for (int k = 0; k < batch; k++)
                fn(arg);
        mu_gpu_mark(between[1], stream);
        double span = mu_gpu_span(between[0], between[1]);
        if (i >= 0)
            us[i] = span / batch;
    }
    mu_gpu_capture_free(captured);
}

void mu_gpu_copy(void *dst, const void *src, size_t bytes, void *stream)
{
    CHECK(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, s(stream)));
}
