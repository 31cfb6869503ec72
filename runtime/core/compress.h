/* SPDX-License-Identifier: BSD-3-Clause */
/* compress.h - gradients in fewer bytes: 8-bit integers, pairs of low-rank factors
 *
 * Arithmetic only; hook_int8.c and hook_powersgd.c send. Both keep what a step did not
 * send (`rest`, a float per element) and add it to the next gradient (error feedback;
 * Seide et al., Interspeech 2014).
 */
#ifndef MU_COMPRESS_H
#define MU_COMPRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/muster.h"

/* ---- 8-bit integers ------------------------------------------------------------- */

/* Elements that share a scale. Its 4 bytes add 1.6 % to 256 bytes. */
#define MU_INT8_BLOCK 256
/* The most ranks whose sum fits 8 bits. */
#define MU_INT8_RANKS 127

size_t mu_int8_blocks(size_t count);
/* int32 words that hold `count` integers, four each. */
size_t mu_int8_words(size_t count);

/* peak: the largest magnitude of g + rest in each block; Inf where an element is NaN or
 * Inf. An all-reduce of the maximum then gives all ranks one scale.
 */
void mu_int8_peaks(const float *g, const float *rest, size_t count, float *peak);

/* Round g + rest to integers of -L .. L in units of peak / L, where L = 127 / ranks.
 * rest becomes the rounding error.
 *
 * A word holds sum over k of integer k * 256^k. So the sum of the words of all ranks,
 * as int32 and without overflow, holds the sums of the integers, and an all-reduce adds
 * packed words. A block whose peak is 0, Inf or too small gives zeros; with Inf, rest
 * is unchanged.
 */
void mu_int8_encode(const float *g, float *rest, size_t count, const float *peak,
                    int ranks, int32_t *word);

/* The mean over ranks, from summed words. A block whose peak is Inf gives NaN. */
void mu_int8_decode(const int32_t *word, size_t count, const float *peak, int ranks,
                    float *mean);

/* One gradient, in the memory of the host or of a GPU. */
struct mu_int8_tensor {
    float *g; /* in: the gradient; out of decode: the mean */
    float *rest;
    size_t count;
    float *peak;
    int32_t *word;
};
enum mu_int8_stage { MU_INT8_PEAKS, MU_INT8_ENCODE, MU_INT8_DECODE };
/* One stage for n tensors in host memory: the function `int8` of a backend. */
void mu_int8_run(enum mu_int8_stage stage, const struct mu_int8_tensor *tensors, int n,
                 int ranks);

/* ---- Pairs of low-rank factors ----------------------------------------------------
 *
 * PowerSGD: Vogels, Karimireddy, Jaggi, NeurIPS 2019.
 */

/* M (rows x cols, stored by rows) is sent as P (rows x matrix rank) and Q (cols x
 * matrix rank), with M ~ P Q^T. P and Q are stored by columns.
 */
struct mu_lowrank {
    size_t rows, cols;
    int rank; /* matrix rank */
};

/* Do P and Q, in floats, have at most half the bytes of M, in elements of `size`? */
bool mu_lowrank_pays(const struct mu_lowrank *l, size_t size);
/* The Q of the first step. The same seed gives the same Q; columns are independent. */
void mu_lowrank_start(const struct mu_lowrank *l, uint64_t seed, float *q);
/* p = M q */
void mu_lowrank_left(const struct mu_lowrank *l, const float *m, const float *q,
                     float *p);
/* q = M^T p */
void mu_lowrank_right(const struct mu_lowrank *l, const float *m, const float *p,
                      float *q);
/* Make the columns of p orthonormal, in place. A column that depends on those before it
 * (a gradient of lower matrix rank, or 0) is replaced by a direction that seed decides.
 * Without that, a matrix that had no gradient in one step would stay 0. Equal p and
 * seed give equal bits. Returns false, with p undefined, when p has NaN or Inf.
 */
bool mu_lowrank_orthonormal(const struct mu_lowrank *l, uint64_t seed, float *p);
/* m = P Q^T, or m = m - P Q^T */
void mu_lowrank_expand(const struct mu_lowrank *l, const float *p, const float *q,
                       float *m);
void mu_lowrank_subtract(const struct mu_lowrank *l, const float *p, const float *q,
                         float *m);

/* One gradient, in the memory of the host or of a GPU. */
struct mu_lowrank_tensor {
    struct mu_lowrank shape;
    uint64_t seed;          /* of start and orthonormal */
    enum muster_dtype kind; /* of the gradient: f32, or fp16 or bf16 */
    float *g;               /* f32. In: the gradient; out of FINISH: the mean */
    uint16_t *g16;          /* the same of 16 bits: LEFT leaves it as it is */
    float *rest;            /* what was not sent, as large as g */
    float *p, *q;           /* see the stages */
    float *own;             /* as large as q: this rank's */
    float *parts;           /* mu_lowrank_parts floats, free between two stages */
    uint32_t *spoilt;       /* not 0: p or q of this step has NaN or Inf */
};
/* Between LEFT and RIGHT the ranks take the mean of p, between RIGHT and FINISH of q.
 */
enum mu_lowrank_stage {
    MU_LOWRANK_LEFT,  /* g += rest, p = g q */
    MU_LOWRANK_RIGHT, /* p orthonormal, own = q = g^T p; zeros where p is not finite */
    /* rest = g - p own^T, g = p q^T. Where p or q is not finite: g = NaN, q as at the
     * start; rest is unchanged because of p, 0 because of q.
     */
    MU_LOWRANK_FINISH,
};
/* One stage for n tensors in host memory: the function `lowrank` of a backend. */
void mu_lowrank_run(enum mu_lowrank_stage stage,
                    const struct mu_lowrank_tensor *tensors, int n);

size_t mu_lowrank_parts(const struct mu_lowrank *l, enum muster_dtype kind);

#endif
