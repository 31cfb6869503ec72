/* SPDX-License-Identifier: BSD-3-Clause */
/* example.c - data-parallel gradient descent in 40 lines; srun --mpi=pmix -n4 ./example
 */
#include <muster.h>
#include <stdio.h>

enum { N = 4, STEPS = 200 };

int main(void)
{
    struct muster *m;
    struct muster_ddp *ddp;
    /* This program computes on the CPU. On GPUs muster_ddp_grad is GPU memory. */
    const struct muster_options options = { .backend = "host" };
    double weight[N] = { 0 };
    const struct muster_param param = {
        .name = "weight", .count = N, .dtype = MUSTER_F64, .data = weight
    };

    if (muster_init(&m, &options) != MUSTER_OK)
        return muster_report(NULL);
    if (muster_ddp_create(m, &param, 1, NULL, &ddp) != MUSTER_OK)
        return muster_report(m);
    for (int i = 0; i < N && muster_rank(m) == 0; i++)
        weight[i] = i; /* only rank 0 has the start values */
    if (muster_ddp_broadcast(ddp, 0) != MUSTER_OK)
        return muster_report(m);
    for (int step = 0; step < STEPS; step++) {
        double *grad = muster_ddp_grad(ddp, 0);

        /* Each rank pulls every weight towards its own rank number. */
        for (int i = 0; i < N; i++)
            grad[i] = weight[i] - muster_rank(m);
        muster_ddp_grad_ready(ddp, 0, NULL);
        if (muster_ddp_sync(ddp, NULL) != MUSTER_OK)
            return muster_report(m);
        for (int i = 0; i < N; i++)
            weight[i] -= 0.1 * grad[i];
    }
    if (muster_rank(m) == 0) /* the mean rank: (size - 1) / 2 */
        printf("%d rank%s on %.6f\n", muster_size(m),
               muster_size(m) == 1 ? " agrees" : "s agree", weight[0]);
    muster_ddp_destroy(ddp);
    return muster_finalize(m);
}
