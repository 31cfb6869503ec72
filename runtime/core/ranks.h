/* SPDX-License-Identifier: BSD-3-Clause */
/* ranks.h - lists of ranks for messages */
#ifndef MU_RANKS_H
#define MU_RANKS_H

#include <stdbool.h>
#include <stddef.h>

/* "rank 3", "ranks 0-2, 5": the ranks r with in[r] true. A long list ends with "...".
 */
void mu_ranks_text(const bool *in, int size, char *text, size_t len);

#endif
