/* SPDX-License-Identifier: BSD-3-Clause */
/* limits.h - speed of plain kernels that move bytes to a peer: the limit of the
 * algorithms
 */
#ifndef TESTS_GPU_LIMITS_H
#define TESTS_GPU_LIMITS_H

#include <cuda_runtime_api.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* dst[0..bytes) = src with `blocks` blocks of 1024 threads and 16-byte accesses; one of
 * the two may be mapped from a peer. bytes: a multiple of 16.
 */
cudaError_t limits_copy(void *dst, const void *src, size_t bytes, int blocks,
                        cudaStream_t stream);
/* The same by the bulk copy engine of each SM (sm_90), through shared memory. bytes: a
 * multiple of 16 KiB.
 */
cudaError_t limits_bulk(void *dst, const void *src, size_t bytes, int blocks,
                        cudaStream_t stream);
cudaError_t limits_load(void);

#ifdef __cplusplus
}
#endif
#endif
