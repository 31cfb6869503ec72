/* SPDX-License-Identifier: BSD-3-Clause */
/* gpu.h - device functions for benchmarks and GPU tests, without CUDA's types
 *
 * Streams are cudaStream_t as void *. If CUDA fails, every function prints a sentence
 * on standard error and ends the program: for tools and tests only.
 */
#ifndef MU_NCCL_BENCH_GPU_H
#define MU_NCCL_BENCH_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/muster.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Devices that CUDA shows this process; 0 without a driver. */
int mu_gpu_count(void);
/* "NVIDIA H200", of the current device. */
const char *mu_gpu_name(void);
void mu_gpu_check(int cuda_error, const char *what);

void *mu_gpu_stream(void);
void mu_gpu_sync(void *stream);
void *mu_gpu_alloc(size_t bytes);
void mu_gpu_free(void *p);
void mu_gpu_put(void *device, const void *host, size_t bytes);
void mu_gpu_get(void *host, const void *device, size_t bytes);
size_t mu_gpu_free_bytes(void);

/* Element i becomes a value in about -1 .. 1 that depends on (seed, rank, i) only. */
void mu_gpu_fill(void *buffer, size_t count, enum muster_dtype dtype, uint32_t seed,
                 int rank, void *stream);
/* Compare with the sum (op) over `ranks` ranks of what mu_gpu_fill wrote, times scale,
 * computed in double precision. A result may differ by the rounding of one sum in its
 * precision. Element 0 of the buffer is index `at` of the fill. Returns the number of
 * wrong elements; *first is the first one's index.
 */
uint64_t mu_gpu_wrong(const void *buffer, size_t count, enum muster_dtype dtype,
                      uint32_t seed, int ranks, enum muster_op op, double scale,
                      size_t at, size_t *first, void *stream);
/* Compare with one rank's fill (broadcast, gather); at: index of element 0. */
uint64_t mu_gpu_differs(const void *buffer, size_t count, enum muster_dtype dtype,
                        uint32_t seed, int rank, size_t at, void *stream);
/* A hash of the bits: equal buffers give equal values on all ranks. */
uint64_t mu_gpu_hash(const void *buffer, size_t bytes, void *stream);

/* dst[i] = 1.0001 * src[i] in bf16; dst[i] = value. */
void mu_gpu_pass(void *dst, const void *src, size_t count, void *stream);
void mu_gpu_set(void *dst, size_t count, enum muster_dtype dtype, double value,
                void *stream);

/* Keep the stream busy for about `us`, with one thread. */
void mu_gpu_spin(double us, void *stream);

/* Microseconds of each of n batches of `batch` calls of fn, divided by batch. graph:
 * capture the batch once and replay it.
 */
void mu_gpu_time(void (*fn)(void *arg), void *arg, int batch, int n, bool graph,
                 double *us, void *stream);

/* A captured call sequence. */
void *mu_gpu_capture(void (*fn)(void *arg), void *arg, int calls, void *stream);
void mu_gpu_replay(void *graph, void *stream);
void mu_gpu_capture_free(void *graph);

/* A point of a stream; mu_gpu_span measures the time between two. */
void *mu_gpu_event(void);
void mu_gpu_mark(void *event, void *stream);
double mu_gpu_span(void *from, void *to); /* us; waits for `to` */

/* Work enqueued on stream from now on waits for the event. */
void mu_gpu_after(void *stream, void *event);

/* Copy between this device's memory and memory mapped from a peer, by a copy engine. */
void mu_gpu_copy(void *dst, const void *src, size_t bytes, void *stream);

#ifdef __cplusplus
}
#endif
#endif
