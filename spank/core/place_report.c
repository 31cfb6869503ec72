/* SPDX-License-Identifier: BSD-3-Clause */
/* place_report.c - what the cores dealt out mean for the user: notes and warnings */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spank/core/place.h"
#include "spank/core/spread.h"

#define ASK                                                                            \
    "--exclusive, a larger -c, --cpus-per-gpu, or block distribution (-m block:block)"

/* Owned cores local to a GPU. */
static int near_cores(const struct mu_node *node, const struct mu_spread *s, int gpu)
{
    int n = 0;

    for (int k = 0; k < s->nclasses; k++)
        if (mu_node_core_distance(node, gpu, s->classes[k].example) == 0)
            n += s->classes[k].ncores;
    return n;
}

static void add(char *text, size_t size, const char *fmt, const char *a)
{
    size_t used = strlen(text);

    if (used + 1 < size)
        snprintf(text + used, size - used, fmt, a);
}

void mu_spread_report(const struct mu_node *node, const struct mu_alloc *alloc,
                      const struct mu_opts *opts, struct mu_spread *s)
{
    (void)near_cores;
    (void)add;
    (void)opts;
    (void)alloc;
}
