/* SPDX-License-Identifier: BSD-3-Clause */
/* bench_replay.h - the computation of a model's training step, on a GPU
 *
 * It runs the matrix products and passes of the model, forward and then backward, and
 * writes each gradient where its layer ends. The forward pass and the backward pass of
 * each layer are captured graphs.
 */
#ifndef MU_BENCH_REPLAY_H
#define MU_BENCH_REPLAY_H

#include "runtime/tools/bench_model.h"

struct bench_replay;

/* Gradient i is written to grad[i]. model and grad are borrowed until close. Ends the
 * program when it fails.
 */
struct bench_replay *bench_replay_open(const struct bench_model *model,
                                       void *const *grad, void *stream);
void bench_replay_forward(struct bench_replay *r);
void bench_replay_backward(struct bench_replay *r, int layer);
/* The stream must be idle. */
void bench_replay_close(struct bench_replay *r);

#endif
