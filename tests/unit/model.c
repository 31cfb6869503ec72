/* SPDX-License-Identifier: BSD-3-Clause */
/* model.c - a model of one large and one small parameter on forked ranks */
#include "tests/unit/model.h"

#include <stddef.h>

struct muster_ddp *model(struct muster *m)
{
    static const struct muster_param params[2] = {
        { .name = "a", .count = LARGE, .dtype = MUSTER_F32 },
        { .name = "b", .count = 9, .dtype = MUSTER_F32 }
    };
    struct muster_ddp *ddp;

    RANK_OK(muster_ddp_create(m, params, 2, NULL, &ddp));
    return ddp;
}

float *first(const struct muster_ddp *ddp)
{
    return muster_ddp_grad(ddp, 0);
}

void backward(struct muster *m, struct muster_ddp *ddp, float value)
{
    static const size_t count[2] = { LARGE, 9 };

    for (int i = 1; i >= 0; i--) {
        float *grad = muster_ddp_grad(ddp, i);

        for (size_t k = 0; k < count[i]; k++)
            grad[k] = value;
        RANK_OK(muster_ddp_grad_ready(ddp, i, NULL));
    }
}
