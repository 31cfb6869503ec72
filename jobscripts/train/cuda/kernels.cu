/* SPDX-License-Identifier: BSD-3-Clause */
/* kernels.cu - one thread per output element, except for the sums */
#include "jobscripts/train/cuda/kernels.h"

#define THREADS 256
#define PIXEL_MEAN 0.2860
#define PIXEL_SDEV 0.3530

/* LAUNCH(kernel, count, arguments): enough blocks for count threads, in T = float or
 * double.
 */
#define BLOCKS(count) (unsigned)(((count) + THREADS - 1) / THREADS)
#define LAUNCH(kernel, count, ...)                                                     \
    do {                                                                               \
        if (wide) {                                                                    \
            typedef double T;                                                          \
            kernel<T><<<BLOCKS(count), THREADS>>>(__VA_ARGS__);                        \
        } else {                                                                       \
            typedef float T;                                                           \
            kernel<T><<<BLOCKS(count), THREADS>>>(__VA_ARGS__);                        \
        }                                                                              \
    } while (0)

static __device__ size_t here(void)
{
    return (size_t)blockIdx.x * blockDim.x + threadIdx.x;
}

template <typename T>
static __global__ void gather(const uint8_t *images, const uint8_t *labels,
                              const uint64_t *index, int n, int pixels, T *to,
                              uint8_t *to_labels)
{
    size_t i = here();

    if (i >= (size_t)n * pixels)
        return;
    uint64_t sample = index[i / pixels];
    to[i] =
        ((T)images[sample * pixels + i % pixels] / 255 - (T)PIXEL_MEAN) / (T)PIXEL_SDEV;
    if (i % pixels == 0)
        to_labels[i / pixels] = labels[sample];
}

void train_gather(int wide, const uint8_t *images, const uint8_t *labels,
                  const uint64_t *index, int n, int pixels, void *to,
                  uint8_t *to_labels)
{
    LAUNCH(gather, (size_t)n * pixels, images, labels, index, n, pixels, (T *)to,
           to_labels);
}

template <typename T>
static __global__ void bias_relu(T *y, const T *bias, size_t count, int channels,
                                 int area, int relu)
{
    size_t i = here();

    if (i >= count)
        return;
    T v = y[i] + bias[i / area % channels];
    y[i] = relu && v < 0 ? 0 : v;
}

void train_bias_relu(int wide, void *y, const void *bias, int n, int channels, int area,
                     int relu)
{
    size_t count = (size_t)n * channels * area;

    LAUNCH(bias_relu, count, (T *)y, (const T *)bias, count, channels, area, relu);
}

template <typename T>
static __global__ void relu_backward(T *dy, const T *y, size_t count)
{
    size_t i = here();

    if (i < count && y[i] <= 0)
        dy[i] = 0;
}

void train_relu_backward(int wide, void *dy, const void *y, size_t count)
{
    LAUNCH(relu_backward, count, (T *)dy, (const T *)y, count);
}

/* Sum of `value` over the block's threads, in thread 0; always in the same order. Were
 * it static, the name of its shared memory would have a hash of the build folder.
 */
template <typename T> __device__ inline T block_sum(T value)
{
    __shared__ T part[THREADS];

    part[threadIdx.x] = value;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if ((int)threadIdx.x < half)
            part[threadIdx.x] += part[threadIdx.x + half];
    }
    return part[0];
}

/* One block per channel. */
template <typename T>
static __global__ void bias_backward(const T *dy, int n, int channels, int area,
                                     int add, T *db)
{
    int c = blockIdx.x;
    T sum = 0;

    for (int i = threadIdx.x; i < n * area; i += THREADS)
        sum += dy[((size_t)(i / area) * channels + c) * area + i % area];
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        db[c] = (add ? db[c] : 0) + sum;
}

void train_bias_backward(int wide, const void *dy, int n, int channels, int area,
                         int add, void *db)
{
    LAUNCH(bias_backward, (size_t)channels * THREADS, (const T *)dy, n, channels, area,
           add, (T *)db);
}

static __device__ float exponential(float x)
{
    return expf(x);
}

static __device__ double exponential(double x)
{
    return exp(x);
}

/* One thread per sample: classes are few. */
template <typename T>
static __global__ void loss_of(const T *scores, const uint8_t *labels, int n,
                               int classes, T scale, T *delta, double *by_sample)
{
    int k = (int)here(), best = 0;
    T total = 0;

    if (k >= n)
        return;
    const T *score = scores + (size_t)k * classes;
    for (int c = 1; c < classes; c++)
        if (score[c] > score[best])
            best = c;
    for (int c = 0; c < classes; c++)
        total += exponential(score[c] - score[best]);
    by_sample[2 * k] = log((double)total) + (double)(score[best] - score[labels[k]]);
    by_sample[2 * k + 1] = best == labels[k];
    for (int c = 0; delta && c < classes; c++)
        delta[(size_t)k * classes + c] =
            scale * (exponential(score[c] - score[best]) / total - (c == labels[k]));
}

static __global__ void sum_samples(const double *by_sample, int n, double *sums)
{
    double sum = 0;

    for (int k = threadIdx.x; k < n; k += THREADS)
        sum += by_sample[2 * k + blockIdx.x];
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        sums[blockIdx.x] = sum;
}

void train_loss(int wide, const void *scores, const uint8_t *labels, int n, int classes,
                double scale, void *delta, double *by_sample, double *sums)
{
    LAUNCH(loss_of, n, (const T *)scores, labels, n, classes, (T)scale, (T *)delta,
           by_sample);
    sum_samples<<<2, THREADS>>>(by_sample, n, sums);
}

template <typename T>
static __global__ void update(T *w, T *v, const T *g, size_t count, T lr, T momentum,
                              T decay)
{
    size_t i = here();

    if (i >= count)
        return;
    v[i] = momentum * v[i] + g[i] + decay * w[i];
    w[i] -= lr * v[i];
}

void train_update(int wide, void *w, void *v, const void *g, size_t count, double lr,
                  double momentum, double decay)
{
    LAUNCH(update, count, (T *)w, (T *)v, (const T *)g, count, (T)lr, (T)momentum,
           (T)decay);
}

/* columns[sample][(c, dy, dx)][y, x] */
template <typename T>
static __global__ void unroll(const T *x, size_t count, int channels, int h, int w,
                              int kernel, T *columns)
{
    size_t i = here();

    if (i >= count)
        return;
    int px = (int)(i % w), py = (int)(i / w % h);
    size_t rest = i / ((size_t)w * h);
    int dx = (int)(rest % kernel) - kernel / 2;
    int dy = (int)(rest / kernel % kernel) - kernel / 2;
    size_t plane = rest / (kernel * kernel); /* sample * channels + channel */

    px += dx;
    py += dy;
    columns[i] =
        px >= 0 && px < w && py >= 0 && py < h ? x[(plane * h + py) * w + px] : 0;
}

void train_unroll(int wide, const void *x, int n, int channels, int h, int w,
                  int kernel, void *columns)
{
    size_t count = (size_t)n * channels * kernel * kernel * h * w;

    LAUNCH(unroll, count, (const T *)x, count, channels, h, w, kernel, (T *)columns);
}

template <typename T>
static __global__ void roll(const T *columns, size_t count, int h, int w, int kernel,
                            T *dx)
{
    size_t i = here();

    if (i >= count)
        return;
    int px = (int)(i % w), py = (int)(i / w % h), half = kernel / 2;
    size_t plane = i / ((size_t)w * h);
    T sum = 0;

    for (int ty = 0; ty < kernel; ty++)
        for (int tx = 0; tx < kernel; tx++) {
            int y = py - (ty - half), x = px - (tx - half);

            if (y >= 0 && y < h && x >= 0 && x < w)
                sum += columns[(((plane * kernel + ty) * kernel + tx) * h + y) * w + x];
        }
    dx[i] = sum;
}

void train_roll(int wide, const void *columns, int n, int channels, int h, int w,
                int kernel, void *dx)
{
    size_t count = (size_t)n * channels * h * w;

    LAUNCH(roll, count, (const T *)columns, count, h, w, kernel, (T *)dx);
}

template <typename T>
static __global__ void pool(const T *x, size_t count, int h, int w, T *y,
                            uint8_t *winner)
{
    size_t i = here();

    if (i >= count)
        return;
    int ow = w / 2, oh = h / 2;
    const T *at =
        x + (i / ((size_t)ow * oh)) * h * w + i / ow % oh * 2 * w + i % ow * 2;
    int best = 0;

    for (int k = 1; k < 4; k++)
        if (at[(k >> 1) * w + (k & 1)] > at[(best >> 1) * w + (best & 1)])
            best = k;
    winner[i] = (uint8_t)best;
    y[i] = at[(best >> 1) * w + (best & 1)];
}

void train_pool(int wide, const void *x, int n, int channels, int h, int w, void *y,
                uint8_t *winner)
{
    size_t count = (size_t)n * channels * (h / 2) * (w / 2);

    LAUNCH(pool, count, (const T *)x, count, h, w, (T *)y, winner);
}

template <typename T>
static __global__ void unpool(const T *dy, const uint8_t *winner, size_t count, int h,
                              int w, T *dx)
{
    size_t i = here();

    if (i >= count)
        return;
    int ow = w / 2, oh = h / 2;
    T *at = dx + (i / ((size_t)ow * oh)) * h * w + i / ow % oh * 2 * w + i % ow * 2;

    for (int k = 0; k < 4; k++)
        at[(k >> 1) * w + (k & 1)] = k == winner[i] ? dy[i] : 0;
}

void train_unpool(int wide, const void *dy, const uint8_t *winner, int n, int channels,
                  int h, int w, void *dx)
{
    size_t count = (size_t)n * channels * (h / 2) * (w / 2);

    LAUNCH(unpool, count, (const T *)dy, winner, count, h, w, (T *)dx);
}
