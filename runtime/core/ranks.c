/* SPDX-License-Identifier: BSD-3-Clause */
/* ranks.c - lists of ranks for messages */
#include "runtime/core/ranks.h"

#include <string.h>

#include "runtime/core/text.h"

void mu_ranks_text(const bool *in, int size, char *text, size_t len)
{
    int total = 0;
    size_t n = 0;

    for (int r = 0; r < size; r++)
        total += in[r];
    mu_text_add(text, len, &n, total == 1 ? "rank " : "ranks ");
    for (int r = 0, runs = 0; r < size; r++) {
        int last = r;

        if (!in[r])
            continue;
        while (last + 1 < size && in[last + 1])
            last++;
        if (n + 32 > len) {
            mu_text_add(text, len, &n, ", ...");
            return;
        }
        mu_text_add(text, len, &n, "%s%d", runs++ ? ", " : "", r);
        if (last > r)
            mu_text_add(text, len, &n, last == r + 1 ? ", %d" : "-%d", last);
        r = last;
    }
}

void mu_ranks_text_at(const bool *in, int size, const char *const *host_of, char *text,
                      size_t len)
{
    const char *host = NULL;
    bool one = true;
    size_t n;

    for (int r = 0; r < size; r++) {
        if (!in[r])
            continue;
        one &= !host || strcmp(host, host_of[r]) == 0;
        host = host_of[r];
    }
    mu_ranks_text(in, size, text, len);
    n = strlen(text);
    if (one && host)
        mu_text_add(text, len, &n, " (node %s)", host);
}
