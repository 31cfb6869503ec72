/* SPDX-License-Identifier: BSD-3-Clause */
/* plain.h - a communicator of NCCL as programs without libmuster have it
 *
 * Like gpu.h it ends the program when CUDA or NCCL fails.
 */
#ifndef MU_NCCL_BENCH_PLAIN_H
#define MU_NCCL_BENCH_PLAIN_H

#include <stddef.h>

#define MU_PLAIN_ID 128 /* bytes of an id */

struct mu_plain;

int mu_plain_release(void); /* 22803 is 2.28.3 */

/* On one rank; the others need the same id. */
void mu_plain_id(void *id);
/* [collective] On this device from now on. */
struct mu_plain *mu_plain_open(int device, int rank, int size, const void *id);
void mu_plain_close(struct mu_plain *p);

/* Enqueue a collective of fp32, by its number in enum mu_tune_func. bytes: of the
 * larger of the two buffers, a multiple of 4 times the ranks. An all-reduce works in
 * place, on recv.
 */
void mu_plain_call(struct mu_plain *p, int func, const void *send, void *recv,
                   size_t bytes, void *stream);

#endif
