/* SPDX-License-Identifier: BSD-3-Clause */
/* weights.c - a small training; rank 0 prints a hash of its weights
 *
 * weights [FOLDER]: with FOLDER the ranks of srun meet by an exchange of the program's
 * own, which writes files there.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/muster.h"

enum { N = 257, STEPS = 12 };

/* FNV-1a over every bit. */
static uint64_t hash(const double *weight)
{
    const unsigned char *bytes = (const unsigned char *)weight;
    uint64_t h = 0xcbf29ce484222325u;

    for (size_t i = 0; i < N * sizeof *weight; i++)
        h = (h ^ bytes[i]) * 0x100000001b3u;
    return h;
}

/* The file of a rank in the n-th call appears whole. */
static int allgather(void *arg, const void *mine, void *all, size_t bytes)
{
    struct muster_exchange *x = arg;
    static int calls;
    char path[64], whole[64];
    FILE *f;

    snprintf(path, sizeof path, "tmp.%d.%d", calls, x->rank);
    snprintf(whole, sizeof whole, "%d.%d", calls, x->rank);
    f = fopen(path, "w");
    if (!f || fwrite(mine, 1, bytes, f) != bytes || fclose(f) || rename(path, whole))
        return 1;
    for (int r = 0; r < x->size; r++) {
        snprintf(path, sizeof path, "%d.%d", calls, r);
        while (!(f = fopen(path, "r")))
            usleep(1000);
        if (fread((char *)all + (size_t)r * bytes, 1, bytes, f) != bytes)
            return 1;
        fclose(f);
    }
    calls++;
    return 0;
}

int main(int argc, char **argv)
{
    struct muster_exchange exchange = { .allgather = allgather, .first = 1 };
    struct muster_options options = { .backend = "host" };
    double weight[N] = { 0 };
    const struct muster_param param = {
        .name = "weight", .count = N, .dtype = MUSTER_F64, .data = weight
    };
    struct muster_ddp *ddp;
    struct muster *m;

    if (argc > 1) {
        exchange.arg = &exchange;
        exchange.rank = atoi(getenv("SLURM_PROCID"));
        exchange.size = atoi(getenv("SLURM_NTASKS"));
        options.exchange = &exchange;
        if (chdir(argv[1]) != 0)
            return 1;
    }
    if (muster_init(&m, &options) != MUSTER_OK)
        return muster_report(NULL);
    if (muster_ddp_create(m, &param, 1, NULL, &ddp) != MUSTER_OK)
        return muster_report(m);
    for (int step = 0; step < STEPS; step++) {
        double *grad = muster_ddp_grad(ddp, 0);

        for (int i = 0; i < N; i++)
            grad[i] = weight[i] - 1.0 / (7 + muster_rank(m) * 3 + (i + step) % 5);
        muster_ddp_grad_ready(ddp, 0, NULL);
        if (muster_ddp_sync(ddp, NULL) != MUSTER_OK)
            return muster_report(m);
        for (int i = 0; i < N; i++)
            weight[i] -= 0.3 * grad[i];
    }
    if (muster_rank(m) == 0)
        printf("%d ranks on %d nodes: %016" PRIx64 "\n", muster_size(m),
               muster_nodes(m), hash(weight));
    muster_ddp_destroy(ddp);
    return muster_finalize(m);
}
