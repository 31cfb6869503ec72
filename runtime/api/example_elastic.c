/* SPDX-License-Identifier: BSD-3-Clause */
/* example_elastic.c - gradient descent that goes on when ranks die and when others join
 *
 * MUSTER_ELASTIC, MUSTER_GROW and MUSTER_JOIN are in muster(3), "Taking more ranks".
 * Usage: example_elastic GOAL. Each rank pulls the weights towards its own number, and
 * they end at the mean number. So a goal of 1.9 takes five ranks: four of them go on
 * until a fifth one joins.
 */
#include <muster.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { N = 4 };

struct training {
    double weight[N];
    int32_t step;
    struct muster_ddp *ddp;
};

/* At the beginning, and when ranks have joined: rank 0 has what they lack. */
static int set_up(struct muster *m, struct training *t)
{
    const struct muster_param param = {
        .name = "weight", .count = N, .dtype = MUSTER_F64, .data = t->weight
    };
    int status;

    muster_ddp_destroy(t->ddp);
    t->ddp = NULL;
    status = muster_ddp_create(m, &param, 1, NULL, &t->ddp);
    if (status == MUSTER_OK)
        status = muster_ddp_broadcast(t->ddp, 0);
    if (status == MUSTER_OK)
        status = muster_broadcast(m, &t->step, 1, MUSTER_I32, 0, NULL);
    return status;
}

static int one_step(struct muster *m, struct training *t)
{
    double *grad = muster_ddp_grad(t->ddp, 0);
    int status;

    usleep(20000); /* a step takes time */
    for (int i = 0; i < N; i++)
        grad[i] = t->weight[i] - muster_rank(m) - i / 7.0;
    status = muster_ddp_grad_ready(t->ddp, 0, NULL);
    return status == MUSTER_OK ? muster_ddp_sync(t->ddp, NULL) : status;
}

static int train(struct muster *m, struct training *t, double goal)
{
    int fresh = 1, joined, size = 0;

    while (t->weight[0] < goal) {
        int status = fresh ? set_up(m, t) : MUSTER_OK;

        if (status == MUSTER_OK)
            status = one_step(m, t);
        if (status == MUSTER_ESHRUNK)
            continue; /* set up again; else the step again */
        if (status != MUSTER_OK)
            return status;
        for (int i = 0; i < N; i++)
            t->weight[i] -= 0.1 * ((double *)muster_ddp_grad(t->ddp, 0))[i];
        t->step++;
        if (muster_rank(m) == 0 && muster_size(m) != size)
            fprintf(stderr, "step %d: %d ranks\n", t->step, muster_size(m));
        size = muster_size(m);
        if (t->weight[0] >= goal)
            break; /* a process that joins now would be alone */
        status = muster_grow(m, &joined);
        if (status != MUSTER_OK && status != MUSTER_ESHRUNK)
            return status;
        fresh = joined > 0;
    }
    return MUSTER_OK;
}

int main(int argc, char **argv)
{
    const struct muster_options options = { .backend = "host" };
    struct training t = { .step = 0 };
    struct muster *m;

    if (muster_init(&m, &options) != MUSTER_OK)
        return muster_report(NULL);
    if (train(m, &t, argc > 1 ? atof(argv[1]) : 0.4) != MUSTER_OK)
        return muster_report(m);
    printf("rank %d of %d: step %d, weights", muster_rank(m), muster_size(m), t.step);
    for (int i = 0; i < N; i++)
        printf(" %a", t.weight[i]);
    printf("\n");
    muster_ddp_destroy(t.ddp);
    return muster_finalize(m);
}
