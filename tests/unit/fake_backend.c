/* SPDX-License-Identifier: BSD-3-Clause */
/* fake_backend.c - a backend_nccl.so that prints what it carries out
 *
 * FAKE_BACKEND: "fails1": open fails on rank 1; "device": it has another GPU;
 * "unmapped": no memory can be mapped; "broken": each call fails; "unmeasured": it measures
 * nothing; "measures": it does so aloud, by calls of NCCL; "slow": it is slower than
 * NCCL above 64 KiB.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/backend/serve.h"

struct fake {
    struct mu_backend_env env;
};

static bool asked(const char *what)
{
    const char *fake = getenv("FAKE_BACKEND");

    return fake && strcmp(fake, what) == 0;
}

static struct fake *fake_of(const struct mu_backend *b)
{
    return (struct fake *)(uintptr_t)b;
}

/* Each rank's number reaches all others, as addresses of memory do. */
static int open_fake(const struct mu_backend_env *env, struct mu_backend **out,
                     struct mu_err *err)
{
    const struct mu_exchange *x = &env->exchange;
    struct fake *f = calloc(1, sizeof *f);

    f->env = *env;
    if (asked("fails1") && env->rank == 1) {
        free(f);
        return mu_err_set(err, MUSTER_EDEVICE, "this GPU is not ours");
    }
    if (x->publish(x->arg, "k", &env->rank, sizeof env->rank, err) < 0 ||
        x->fence(x->arg, 2, err) < 0) {
        free(f);
        return -1;
    }
    for (int r = 0; r < env->size; r++) {
        void *value = NULL;
        size_t len = 0;

        if (x->fetch(x->arg, r, "k", &value, &len, 1, err) < 0 || *(int *)value != r)
            abort();
        free(value);
    }
    printf("r%d backend open %d %s%s%s\n", env->rank, env->size,
           env->communicator ? "borrowed" : "own",
           env->map_memory ? "" : " without mapping",
           env->virtual_memory ? " virtual memory" : "");
    fflush(stdout);
    *out = (struct mu_backend *)f;
    return 0;
}

static void close_fake(struct mu_backend *b)
{
    printf("r%d backend close\n", fake_of(b)->env.rank);
    fflush(stdout);
    free(b);
}

static void abort_fake(struct mu_backend *b, int status, const char *why)
{
    (void)status, (void)why;
    printf("r%d backend abort\n", fake_of(b)->env.rank);
    fflush(stdout);
}

static int device_fake(const struct mu_backend *b)
{
    return fake_of(b)->env.rank + (asked("device") ? 1 : 0);
}

__attribute__((visibility("default"))) const struct mu_backend_ops mu_backend_nccl = {
    .name = "nccl",
    .open = open_fake,
    .close = close_fake,
    .abort = abort_fake,
    .device = device_fake,
};

static int carry(struct mu_backend *b, const struct mu_coll *coll, bool mapped,
                 bool *carried, struct mu_err *err)
{
    static const char *const ops[] = { "sum", "min", "max" };

    if (asked("broken"))
        return mu_err_set(err, MUSTER_EDEVICE, "the GPU failed");
    *carried = !mapped || !asked("unmapped");
    if (*carried && coll->kind == MU_COLL_ALLGATHER)
        printf("r%d backend gather %zu%s\n", fake_of(b)->env.rank, coll->count,
               mapped ? " mapped" : "");
    else if (*carried && coll->kind == MU_COLL_BROADCAST)
        printf("r%d backend broadcast %zu from %d%s%s\n", fake_of(b)->env.rank,
               coll->count, coll->root, coll->send == coll->recv ? " in place" : "",
               mapped ? " mapped" : "");
    else if (*carried)
        printf("r%d backend %s%s %zu %d %g%s\n", fake_of(b)->env.rank,
               coll->kind == MU_COLL_REDUCE_SCATTER ? "scatter " : "", ops[coll->op],
               coll->count, (int)coll->dtype, coll->scale, mapped ? " mapped" : "");
    fflush(stdout);
    return 0;
}

/* Muster is faster up to 1 MiB by one-shot, and up to 64 MiB on mapped memory. */
static int measure(struct mu_backend *b, struct mu_trial *trials, int n,
                   mu_nccl_call_fn *nccl, void *arg, struct mu_err *err)
{
    const size_t kib = 1024, mib = kib * kib;

    if (asked("unmeasured"))
        return mu_err_set(err, MUSTER_EDEVICE, "the GPU is busy");
    for (int i = 0; i < n; i++) {
        struct mu_trial *t = &trials[i];
        size_t most = t->mapped ? 64 * mib : asked("slow") ? 64 * kib : mib;
        const struct mu_coll c = { .kind = t->kind, .count = t->bytes };

        if (asked("measures") && t->bytes == 4 * kib && nccl(arg, &c) != 0)
            return mu_err_set(err, MUSTER_EDEVICE, "NCCL refuses a call");
        t->us = t->mapped && (asked("unmapped") || asked("slow")) ? 0
                : t->bytes <= most                                ? 10
                                                                  : 30;
        t->nccl_us = 20;
    }
    if (asked("measures"))
        printf("r%d backend measures %d\n", fake_of(b)->env.rank, n);
    fflush(stdout);
    return 0;
}

static int describe(const struct mu_backend *b, char *text, size_t len,
                    struct mu_err *err)
{
    (void)err;
    snprintf(text, len, "a GPU %d", fake_of(b)->env.rank);
    return 0;
}

__attribute__((visibility("default"))) const struct mu_nccl_serve mu_nccl_serve = {
    .carry = carry,
    .measure = measure,
    .describe = describe,
};
