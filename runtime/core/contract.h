/* SPDX-License-Identifier: BSD-3-Clause */
/* contract.h - what all ranks must agree on, and which ranks differ */
#ifndef MU_CONTRACT_H
#define MU_CONTRACT_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/base/err.h"

#define MU_CONTRACT_TEXT 192

/* A list of lines ("library 0.1.0", "parameter 3 'fc1.weight': f32 x 1024"). Ranks
 * compare the hash of all lines. Where it differs they compare the hash of each line,
 * then the text of the first line that differs.
 */
struct mu_contract {
    int n, room;
    uint64_t *hash;                 /* of each line */
    char (*line)[MU_CONTRACT_TEXT]; /* may be cut; the hash covers the whole line */
};

/* 64 bits over bytes, continued from `seed` (0 at the start). Not cryptographic. */
uint64_t mu_hash(uint64_t seed, const void *bytes, size_t len);

int mu_contract_add(struct mu_contract *c, struct mu_err *err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void mu_contract_clear(struct mu_contract *c);
/* The hash of all lines and their number. */
uint64_t mu_contract_total(const struct mu_contract *c);

/* hash[r] has n[r] line hashes of rank r. Returns the first index at which they are not
 * all equal, or -1. A shorter list differs at its end.
 */
int mu_contract_first_difference(const uint64_t *const *hash, const int *n, int size);

/* line[r] is rank r's line at that index, "" where its list is shorter; host_of[r] its
 * node. Writes e.g.
 *   parameter 3 'fc1.weight': f32 x 1024 on ranks 0-2 (node a), but parameter 3
 *   'fc1.weight': f16 x 1024 on rank 3 (node b)
 */
void mu_contract_sides(const char *const *line, int size, const char *const *host_of,
                       char *text, size_t len);

#endif
