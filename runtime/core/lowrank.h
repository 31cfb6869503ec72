/* SPDX-License-Identifier: BSD-3-Clause */
/* lowrank.h - a matrix as the product of two thin ones; row-major floats */
#ifndef MU_LOWRANK_H
#define MU_LOWRANK_H

#include <stdbool.h>
#include <stddef.h>

/* Does M (n x m) pay as P (n x r) and Q (m x r)? By a factor of 2 at least. */
bool mu_lowrank_pays(size_t n, size_t m, size_t r);
/* P = M Q */
void mu_lowrank_p(const float *mat, size_t n, size_t m, const float *q, size_t r,
                  float *p);
/* Q = M^T P */
void mu_lowrank_q(const float *mat, size_t n, size_t m, const float *p, size_t r,
                  float *q);
/* out = P Q^T, and rest = mat - out */
void mu_lowrank_product(const float *p, const float *q, size_t n, size_t m, size_t r,
                        float *out, const float *mat, float *rest);
/* Make the columns of P orthonormal (Gram-Schmidt, twice); a column that depends on
 * those before it becomes zero.
 */
void mu_lowrank_orthonormal(float *p, size_t n, size_t r);
/* The same numbers, about normal, from the same seed. */
void mu_lowrank_random(float *q, size_t n, unsigned long long seed);

#endif
