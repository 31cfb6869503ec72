/* SPDX-License-Identifier: BSD-3-Clause */
/* check_order.c - gradients of two models become ready in another order on one rank
 *
 *   check_order [RANKS]
 *
 * It tests all of libmuster except PMIx: ranks are forked, the backend is NCCL. With
 * each algorithm, the same order on all ranks gives the means of both models, in either
 * order of sync. If rank 1 has another order, or an extra all-reduce before its bucket,
 * muster_ddp_sync fails on every rank: also on a rank that has started nothing else.
 * Sizes are equal, so that only the owners of the collectives differ.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "runtime/api/impl.h"
#include "runtime/backend/nccl/bench/gpu.h"
#include "runtime/tools/forked.h"

#define MOST ((size_t)1 << 20)
#define GOOD_STEPS 20
#define LIMIT 5.0 /* seconds from the first wrong call to the error */

enum what {
    SAME_ORDER,
    CROSSED,
    BESIDE_PLAIN,
    PEER_CROSSED,
    PEER_BESIDE_PLAIN,
    OTHER_MEMORY,
    HOST_MEMORY,
    WHATS
};

static const struct path {
    const char *name;
    size_t count;
} paths[] = {
    { "nccl", 4096 },    { "one-shot", 4096 }, { "relay", 1 << 17 },
    { "pull", 1 << 20 }, { "copy", 1 << 20 },
};

struct plan {
    const char *path;
    size_t count;
    enum what what;
};

static const char *const names[] = {
    [SAME_ORDER] = "two models in one order have their means",
    [CROSSED] = "two models in another order on rank 1 are refused in sync",
    [BESIDE_PLAIN] = "an all-reduce before rank 1's bucket is refused in sync",
    [PEER_CROSSED] = "a rank that starts one model gets the error of rank 1",
    [PEER_BESIDE_PLAIN] = "a rank without an all-reduce gets the error of rank 1",
    [HOST_MEMORY] = "host memory on rank 1 alone is refused in sync",
    [OTHER_MEMORY] = "memory of muster_alloc on rank 1 alone is refused in sync",
};

struct self {
    struct muster *m;
    struct muster_ddp *ddp[2];
    const struct plan *plan;
    void *stream, *own; /* of muster_alloc */
    void *other;        /* of cudaMalloc */
};

static float host[MOST];

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int complain(const struct self *s, const char *what)
{
    fprintf(stderr, "# rank %d: %s: %s\n", muster_rank(s->m), what, muster_error(s->m));
    return 1;
}

/* It ends after all earlier work of the stream. */
static void fill(struct self *s, int d)
{
    for (size_t i = 0; i < s->plan->count; i++)
        host[i] = (float)((d + 1) * 100 + muster_rank(s->m));
    mu_gpu_copy(muster_ddp_grad(s->ddp[d], 0), host, s->plan->count * sizeof *host,
                s->stream);
}

static int ready(struct self *s, int d)
{
    fill(s, d);
    return muster_ddp_grad_ready(s->ddp[d], 0, s->stream);
}

static bool is_mean(struct self *s, int d)
{
    float mean = (float)((d + 1) * 100) + (float)(muster_size(s->m) - 1) / 2;

    mu_gpu_copy(host, muster_ddp_grad(s->ddp[d], 0), s->plan->count * sizeof *host,
                s->stream);
    mu_gpu_sync(s->stream);
    for (size_t i = 0; i < s->plan->count; i++)
        if (host[i] != mean)
            return false;
    return true;
}

/* Model `first` is ready first, and model `synced` synced first. */
static int step(struct self *s, int first, int synced)
{
    int rc = ready(s, first);

    rc = rc == MUSTER_OK ? ready(s, 1 - first) : rc;
    rc = rc == MUSTER_OK ? muster_ddp_sync(s->ddp[synced], s->stream) : rc;
    return rc == MUSTER_OK ? muster_ddp_sync(s->ddp[1 - synced], s->stream) : rc;
}

static int plain(struct self *s)
{
    return muster_allreduce(s->m, s->own, s->plan->count, MUSTER_F32, MUSTER_SUM,
                            s->stream);
}

static int beside_plain(struct self *s, bool odd)
{
    int rc = odd ? plain(s) : ready(s, 0);

    if (rc == MUSTER_OK)
        rc = odd ? ready(s, 0) : plain(s);
    return rc == MUSTER_OK ? muster_ddp_sync(s->ddp[0], s->stream) : rc;
}

/* Only rank 1 starts more than the bucket of model 0. */
static int peer_alone(struct self *s, bool odd)
{
    int rc = MUSTER_OK;

    if (odd)
        rc = s->plan->what == PEER_CROSSED ? ready(s, 1) : plain(s);
    rc = rc == MUSTER_OK ? ready(s, 0) : rc;
    return rc == MUSTER_OK ? muster_ddp_sync(s->ddp[0], s->stream) : rc;
}

/* Rank 1 goes another way than the others: the stream stands still from there on. */
static int in_memory(struct self *s, void *buffer)
{
    int rc;

    fill(s, 0);
    rc = muster_allreduce(s->m, buffer, s->plan->count, MUSTER_F32, MUSTER_SUM,
                          s->stream);
    rc = rc == MUSTER_OK ? muster_ddp_grad_ready(s->ddp[0], 0, s->stream) : rc;
    return rc == MUSTER_OK ? muster_ddp_sync(s->ddp[0], s->stream) : rc;
}

static int wrong_step(struct self *s, bool odd)
{
    switch (s->plan->what) {
    case CROSSED:
        return step(s, odd, 0);
    case BESIDE_PLAIN:
        return beside_plain(s, odd);
    case OTHER_MEMORY:
        return in_memory(s, odd ? s->own : s->other);
    case HOST_MEMORY:
        return in_memory(s, odd ? host : s->other);
    default:
        return peer_alone(s, odd);
    }
}

static int refused(struct self *s)
{
    bool odd = muster_rank(s->m) == 1, good;
    double from = now(), took;
    int rc = wrong_step(s, odd);

    took = now() - from;
    good =
        rc == MUSTER_ECONTRACT && took <= LIMIT && strstr(muster_error(s->m), "rank 1");
    if (odd || !good)
        fprintf(good ? stdout : stderr, "# rank %d: status %d after %.1f ms: %s\n",
                muster_rank(s->m), rc, took * 1e3, muster_error(s->m));
    return good ? 0 : 1;
}

static int train(struct self *s)
{
    const struct muster_param p = { .name = "a",
                                    .count = s->plan->count,
                                    .dtype = MUSTER_F32 };

    s->stream = mu_gpu_stream();
    for (int d = 0; d < 2; d++)
        if (muster_ddp_create(s->m, &p, 1, NULL, &s->ddp[d]) != MUSTER_OK)
            return complain(s, "create");
    s->own = muster_alloc(s->m, s->plan->count * sizeof *host);
    if (!s->own)
        return complain(s, "alloc");
    s->other = mu_gpu_alloc(s->plan->count * sizeof *host);
    for (int i = 0; i < GOOD_STEPS; i++) {
        if (step(s, i % 2, i / 2 % 2) != MUSTER_OK)
            return complain(s, "a step in one order");
        if (!is_mean(s, 0) || !is_mean(s, 1))
            return complain(s, "a mean is wrong");
        if (plain(s) != MUSTER_OK)
            return complain(s, "an all-reduce between two steps");
    }
    if (s->plan->what != SAME_ORDER)
        return refused(s);
    muster_free(s->m, s->own);
    mu_gpu_free(s->other);
    for (int d = 0; d < 2; d++)
        muster_ddp_destroy(s->ddp[d]);
    return muster_finalize(s->m) == MUSTER_OK ? 0 : 1;
}

static int body(struct mu_world *world, void *arg)
{
    struct mu_config config = { .backend = MU_BACKEND_NCCL,
                                .init_timeout = 60,
                                .timeout = 30,
                                .return_failure = true,
                                .log = MU_LOG_WARN };
    struct self s = { .plan = arg };
    int (*force)(struct mu_backend * b, const char *path), rc;

    if (mu_init_world(&s.m, &config, world) != MUSTER_OK) {
        fprintf(stderr, "# %s\n", muster_error(NULL));
        return 1;
    }
    *(void **)&force = dlsym(s.m->comm.module, "mu_nccl_force");
    if (!force || force(s.m->comm.backend, s.plan->path) < 0) {
        fprintf(stderr, "# path %s cannot be forced\n", s.plan->path);
        return 1;
    }
    rc = train(&s);
    fflush(NULL);
    _exit(rc); /* leave a failed world as it is */
}

int main(int argc, char **argv)
{
    int n = argc > 1 ? atoi(argv[1]) : 2, failed = 0, done = 0;

    if (n < 2) {
        printf("1..0 # SKIP one rank has no order that another could differ from\n");
        return 0;
    }
    for (enum what what = SAME_ORDER; what < WHATS; what++)
        for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
            struct plan plan = { paths[i].name, paths[i].count, what };
            int rc;

            /* All other ways take any memory. */
            if (what == OTHER_MEMORY && strcmp(plan.path, "pull") != 0)
                continue;
            rc = mu_forked_run(n, true, 60, body, &plan);

            failed += rc != 0;
            printf("%sok %d - %s: %s\n", rc == 0 ? "" : "not ", ++done, plan.path,
                   names[what]);
            fflush(stdout);
        }
    printf("1..%d\n", done);
    return failed > 0;
}
