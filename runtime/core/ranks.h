/* SPDX-License-Identifier: BSD-3-Clause */
/* ranks.h - lists of ranks for messages */
#ifndef MU_RANKS_H
#define MU_RANKS_H

#include <stdbool.h>
#include <stddef.h>

/* "rank 3", "ranks 0-2, 5": the ranks r with in[r] true. A long list ends with "...".
 */
void mu_ranks_text(const bool *in, int size, char *text, size_t len);
/* "rank 3 (node b)", "ranks 0-2 (node a)"; ranks on several nodes as above. host_of: by
 * rank.
 */
void mu_ranks_text_at(const bool *in, int size, const char *const *host_of, char *text,
                      size_t len);

#endif
