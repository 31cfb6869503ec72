/* SPDX-License-Identifier: BSD-3-Clause */
/* kernels.h - what the GPU engine computes besides matrix products
 *
 * Every launch goes to the default stream. `wide` selects double, else float. Pointers
 * are to device memory. Layouts are those of engine_cpu.h. Sums run in a fixed order,
 * so a run gives the same bits each time.
 */
#ifndef TRAIN_CUDA_KERNELS_H
#define TRAIN_CUDA_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Samples index[0..n-1] as numbers of mean 0 and deviation 1, and their labels. */
void train_gather(int wide, const uint8_t *images, const uint8_t *labels,
                  const uint64_t *index, int n, int pixels, void *to,
                  uint8_t *to_labels);
void train_bias_relu(int wide, void *y, const void *bias, int n, int channels, int area,
                     int relu);
void train_relu_backward(int wide, void *dy, const void *y, size_t count);
void train_bias_backward(int wide, const void *dy, int n, int channels, int area,
                         int add, void *db);
/* Loss and hits of each sample; with delta also scale * (probability - target). Then
 * sums[0] is the sum of losses, sums[1] the number of hits.
 */
void train_loss(int wide, const void *scores, const uint8_t *labels, int n, int classes,
                double scale, void *delta, double *by_sample, double *sums);
void train_update(int wide, void *w, void *v, const void *g, size_t count, double lr,
                  double momentum, double decay);
void train_unroll(int wide, const void *x, int n, int channels, int h, int w,
                  int kernel, void *columns);
void train_roll(int wide, const void *columns, int n, int channels, int h, int w,
                int kernel, void *dx);
void train_pool(int wide, const void *x, int n, int channels, int h, int w, void *y,
                uint8_t *winner);
void train_unpool(int wide, const void *dy, const uint8_t *winner, int n, int channels,
                  int h, int w, void *dx);

#ifdef __cplusplus
}
#endif
#endif
