/* SPDX-License-Identifier: BSD-3-Clause */
/* compress.h - gradients in fewer bytes: 8-bit integers, pairs of low-rank factors
 *
 * Arithmetic only; who sends what is in api/hook*.c. Both keep what a step did not send
 * (`rest`, a float per element) and add it to the next gradient, so that nothing is
 * lost over steps (error feedback; Seide et al., Interspeech 2014).
 */
#ifndef MU_COMPRESS_H
#define MU_COMPRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/muster.h"

/* ---- 8-bit integers ------------------------------------------------------------- */

/* Elements that share a scale: 4 bytes per 256 are 1.6 % on top. */
#define MU_INT8_BLOCK 256
/* Sums of more ranks than this do not fit 8 bits. */
#define MU_INT8_RANKS 127

size_t mu_int8_blocks(size_t count);
/* int32 words that hold `count` integers, four each. */
size_t mu_int8_words(size_t count);

/* The largest magnitude of g + rest in each block; Inf where one is NaN or Inf. The
 * ranks then take the maximum of theirs, and have one scale.
 */
void mu_int8_peaks(const float *g, const float *rest, size_t count, float *peak);

/* g + rest in steps of peak / L, L = 127 / ranks, to nearest: integers of -L .. L. rest
 * becomes what rounding left. A word holds sum over k of integer k * 256^k, so that the
 * sum of the words of all ranks (as int32, it does not overflow) holds the sums of the
 * integers: the ranks add them up without unpacking them. A block whose peak is 0, Inf
 * or too small for a step gives zeros; with Inf, rest stays as it was.
 */
void mu_int8_encode(const float *g, float *rest, size_t count, const float *peak,
                    int ranks, int32_t *word);

/* The mean over ranks from summed words; NaN in a block whose peak is Inf. */
void mu_int8_decode(const int32_t *word, size_t count, const float *peak, int ranks,
                    float *mean);

/* One gradient, for where it is worked on: the host or a GPU. */
struct mu_int8_tensor {
    float *g; /* in: the gradient; out of decode: the mean */
    float *rest;
    size_t count;
    float *peak;
    int32_t *word;
};
enum mu_int8_stage { MU_INT8_PEAKS, MU_INT8_ENCODE, MU_INT8_DECODE };
/* One stage for n tensors in host memory: what the backends there call `int8`. */
void mu_int8_run(enum mu_int8_stage stage, const struct mu_int8_tensor *tensors, int n,
                 int ranks);

/* ---- Pairs of low-rank factors ----------------------------------------------------
 *
 * PowerSGD: Vogels, Karimireddy, Jaggi, NeurIPS 2019.
 */

/* M (rows x cols, row after row) is sent as P (rows x rank) and Q (cols x rank) with
 * M ~ P Q^T; their columns are stored one after the other.
 */
struct mu_lowrank {
    size_t rows, cols;
    int rank;
};

/* Are P and Q, floats, together at most half of M, elements of size bytes? */
bool mu_lowrank_pays(const struct mu_lowrank *l, size_t size);
/* The Q of the first step: equal for equal seeds, columns independent. */
void mu_lowrank_start(const struct mu_lowrank *l, uint64_t seed, float *q);
/* p = M q */
void mu_lowrank_left(const struct mu_lowrank *l, const float *m, const float *q,
                     float *p);
/* q = M^T p */
void mu_lowrank_right(const struct mu_lowrank *l, const float *m, const float *p,
                      float *q);
/* Make the columns of p orthonormal, in place. One that depends on those before it (a
 * gradient of lower rank, or zero) is replaced by a direction that seed decides, or a
 * matrix would never come back from a step without gradient. Equal p and seed give
 * equal bits. False, and p undefined, when p has NaN or Inf.
 */
bool mu_lowrank_orthonormal(const struct mu_lowrank *l, uint64_t seed, float *p);
/* m = P Q^T, or m = m - P Q^T */
void mu_lowrank_expand(const struct mu_lowrank *l, const float *p, const float *q,
                       float *m);
void mu_lowrank_subtract(const struct mu_lowrank *l, const float *p, const float *q,
                         float *m);

/* One gradient, for where it is worked on: the host or a GPU. */
struct mu_lowrank_tensor {
    struct mu_lowrank shape;
    uint64_t seed;          /* of start and orthonormal */
    enum muster_dtype kind; /* of the gradient: f32, or fp16 or bf16 */
    float *g;               /* f32. In: the gradient; out of FINISH: the mean */
    uint16_t *g16;          /* the same of 16 bits: LEFT leaves it as it is */
    float *rest;            /* what was not sent, as large as g */
    float *p, *q;           /* see the stages */
    float *own;             /* as large as q: this rank's */
    float *parts;     /* mu_lowrank_parts floats to work in, between two stages of use
                         to other tensors */
    uint32_t *spoilt; /* NaN or Inf came in this step */
};
/* Between LEFT and RIGHT the ranks take the mean of p, between RIGHT and FINISH of q.
 */
enum mu_lowrank_stage {
    MU_LOWRANK_LEFT,   /* g += rest, p = g q */
    MU_LOWRANK_RIGHT,  /* p orthonormal, own = q = g^T p; zeros where p is not finite */
    MU_LOWRANK_FINISH, /* rest = g - p own^T, g = p q^T. Where p or q is not finite: g =
                          NaN and q as at the start; rest then stays for p, is 0 for q
                        */
};
/* One stage for n tensors in host memory: what the backends there call `lowrank`. */
void mu_lowrank_run(enum mu_lowrank_stage stage,
                    const struct mu_lowrank_tensor *tensors, int n);

size_t mu_lowrank_parts(const struct mu_lowrank *l, enum muster_dtype kind);

#endif
