/* SPDX-License-Identifier: BSD-3-Clause */
/* bench_beside.c - how much an all-reduce slows down a matrix product beside it */
#include "runtime/tools/bench.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/api/impl.h" /* for the backend, which is measured directly */
#include "runtime/backend/nccl/bench/compute.h"
#include "runtime/backend/nccl/bench/gpu.h"
#include "runtime/core/dtype.h"

#define PRODUCTS 24
#define SIDE 4096 /* rows and columns of the product */
#define ROUNDS 7
#define COLLS_MAX 256
/* The GPU waits until all is enqueued: 120 calls of NCCL take the host up to 10 ms. */
#define HOLD_US 12e3

struct beside {
    struct bench *b;
    struct mu_compute *compute;
    void *side, *mark[3];
    char *arena;
    size_t bytes;
};

/* Enqueue n all-reduces of the size on the side stream, all of them in flight. */
static void colls(struct beside *s, int n)
{
    struct muster *m = s->b->m;
    enum muster_dtype dtype = s->b->options->dtype;
    struct mu_request *request[COLLS_MAX];
    struct mu_coll c = { .kind = MU_COLL_ALLREDUCE,
                         .dtype = dtype,
                         .op = MUSTER_SUM,
                         .send = s->arena,
                         .recv = s->arena,
                         .count = s->bytes / mu_dtype_size(dtype),
                         .scale = 1,
                         .stream = s->side,
                         .hidden = true,
                         .same_place = true,
                         .what = "beside" };
    struct mu_err err = { 0 };

    for (int i = 0; i < n; i++)
        if (m->comm.ops->start(m->comm.backend, &c, &request[i], &err) < 0)
            bench_die(&err);
    for (int i = 0; i < n; i++)
        if (m->comm.ops->join(m->comm.backend, request[i], s->side, &err) < 0)
            bench_die(&err);
}

/* Median us of the products (and of the all-reduces in *comm) when n go beside. */
static double products(struct beside *s, int nproducts, int n, double *comm)
{
    double us[ROUNDS], their[ROUNDS];

    for (int i = -1; i < ROUNDS; i++) {
        mu_gpu_sync(s->b->stream);
        if (muster_barrier(s->b->m) != MUSTER_OK)
            exit(muster_report(s->b->m));
        mu_gpu_spin(HOLD_US, s->b->stream);
        mu_gpu_mark(s->mark[0], s->b->stream);
        mu_gpu_after(s->side, s->mark[0]);
        colls(s, n);
        for (int k = 0; k < nproducts; k++)
            mu_compute_gemm(s->compute, SIDE, SIDE, SIDE, 1);
        mu_gpu_mark(s->mark[1], s->b->stream);
        mu_gpu_mark(s->mark[2], s->side);
        if (i >= 0) {
            us[i] = mu_gpu_span(s->mark[0], s->mark[1]);
            their[i] = mu_gpu_span(s->mark[0], s->mark[2]);
        }
        mu_gpu_sync(s->side);
    }
    *comm = bench_median(their, ROUNDS);
    return bench_median(us, ROUNDS);
}

int bench_beside(struct bench *b)
{
    const struct bench_options *o = b->options;
    struct beside s = { .b = b };

    s.side = mu_gpu_stream();
    for (int i = 0; i < 3; i++)
        s.mark[i] = mu_gpu_event();
    s.compute = mu_compute_create((size_t)SIDE * SIDE, b->stream);
    s.arena = muster_alloc(b->m, o->max);
    if (!s.arena)
        return muster_report(b->m);
    bench_print(
        b, o->tsv ? "path\tbytes\tcoll_us\tproduct_alone_us\tproduct_us\tslower_%%\t"
                    "coll_beside_us\n"
                  : "# path         bytes  coll us  product alone us  beside us  "
                    "slower %%  coll beside us\n");
    for (size_t bytes = o->min < (1 << 20) ? 1 << 20 : o->min; bytes <= o->max;
         bytes *= 5)
        for (int p = -1; p < MU_ALGOS; p++) {
            const char *path = p < 0 ? "auto" : mu_algo_names[p];
            double idle, alone, beside, comm;
            int n;

            if (p >= 0 &&
                (strcmp(o->path, "all") != 0 || strcmp(path, "one-shot") == 0 ||
                 p == MU_ALGO_OWN || (strcmp(path, "relay") == 0 && bytes > (8 << 20))))
                continue;
            bench_force(b, path);
            s.bytes = bytes;
            products(&s, 0, 8, &idle);
            alone = products(&s, PRODUCTS, 0, &comm);
            /* As many as last about as long as the products; equal on all ranks. */
            n = (int)(bytes >= (16 << 20) ? 24 : bytes >= (4 << 20) ? 60 : 120);
            beside = products(&s, PRODUCTS, n, &comm);
            bench_print(b,
                        o->tsv ? "%s\t%zu\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\n"
                               : "%-9s %10zu %8.1f %17.1f %10.1f %9.1f %15.1f\n",
                        path, bytes, idle / 8, alone / PRODUCTS, beside / PRODUCTS,
                        100 * (beside / alone - 1), comm / n);
        }
    bench_force(b, "auto");
    muster_free(b->m, s.arena);
    mu_compute_destroy(s.compute);
    return 0;
}
