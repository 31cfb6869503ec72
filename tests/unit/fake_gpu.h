/* SPDX-License-Identifier: BSD-3-Clause */
/* fake_gpu.h - CUDA, NCCL and Muster's kernels for several ranks in one process
 *
 * Device memory is host memory. A call only enqueues, as on a GPU; fake_run carries the
 * work out. It takes the streams in random order, so work without an event between runs
 * in either order. A collective runs when every rank has one at the head of a stream.
 * Elements are f32.
 */
#ifndef TEST_FAKE_GPU_H
#define TEST_FAKE_GPU_H

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stdbool.h>
#include <stddef.h>

#define FAKE_RANKS 4

/* Calls of one rank; questions (is this stream capturing?) do not count. */
struct fake_calls {
    int events, kernels, copies, nccl;
    int created; /* events */
    int blocks;  /* of the last kernel that adds up segments */
};

/* Forget all work, streams, events and counts; `ranks` GPUs from now on. */
void fake_reset(int ranks);
cudaStream_t fake_stream(int rank);
/* The stream has ended, and the program has been given its handle for another one. */
void fake_stream_again(cudaStream_t stream);
/* The device that is current in this thread; all ranks have one thread here. */
extern int fake_device;
/* The work of a program: write to the gradient, read the result. */
void fake_fill(cudaStream_t stream, float *p, size_t n, float value);
void fake_read(cudaStream_t stream, float *into, const float *from, size_t n);
/* What is enqueued from now on is a captured graph; fake_run launches it. It waits for
 * an event that was recorded outside of it by an external wait alone.
 */
void fake_capture(bool on);
/* Carry out what can run, in the order that `seed` gives. Returns NULL when nothing is
 * left, else what hangs (a later call goes on from there), or which collectives met
 * that differ.
 */
const char *fake_run(unsigned seed);
struct fake_calls fake_calls_of(int rank);
/* The n-th call from now on that enqueues fails, whichever it is; 0: none. */
void fake_fail(int n);

#endif
