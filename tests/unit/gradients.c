/* SPDX-License-Identifier: BSD-3-Clause */
/* gradients.c - a small ddp object on forked ranks */
#include "tests/unit/gradients.h"

#include <stdio.h>

void everywhere(int (*body)(struct muster *m, int rank, void *arg), void *arg)
{
    forked_well("alone", (struct forked_world){ .size = 1, SMALL_BUCKETS }, body, arg);
    forked_well("a node", (struct forked_world){ .size = 3, SMALL_BUCKETS }, body, arg);
    forked_well("nodes", (struct forked_world){ .size = 4, .nodes = 2, SMALL_BUCKETS },
                body, arg);
}

struct muster_ddp *make(struct muster *m, const struct muster_ddp_options *o,
                        float own[N][COUNT])
{
    static char names[N][8];
    struct muster_param p[N];
    struct muster_ddp *ddp;

    for (int i = 0; i < N; i++) {
        snprintf(names[i], sizeof names[i], "w%d", i);
        p[i] = (struct muster_param){ .name = names[i],
                                      .count = COUNT,
                                      .dtype = MUSTER_F32,
                                      .grad = i % 2 ? own[i] : NULL };
    }
    RANK_OK(muster_ddp_create(m, p, N, o, &ddp));
    return ddp;
}

float *grad(struct muster_ddp *ddp, int i)
{
    return muster_ddp_grad(ddp, i);
}

int finish(struct muster *m, struct muster_ddp *ddp)
{
    muster_ddp_destroy(ddp);
    return muster_finalize(m);
}

void all_ready(struct muster *m, struct muster_ddp *ddp)
{
    for (int i = N - 1; i >= 0; i--)
        RANK_OK(muster_ddp_grad_ready(ddp, i, NULL));
}
