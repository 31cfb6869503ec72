/* SPDX-License-Identifier: BSD-3-Clause */
/* check_powersgd.c - PowerSGD on GPUs: kernels compared with the CPU, and whole steps
 *
 *   check_powersgd [RANKS [short]]
 *
  * short: small matrices only, for compute-sanitizer. It tests all of libmuster except
 * PMIx: ranks are forked, the backend is NCCL.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/core/compress.h"
#include "runtime/core/convert.h"
#include "runtime/core/dtype.h"
#include "tests/gpu/powersgd.h"
#include "tests/unit/lowrank_host.h"

/* ---- Kernels ----------------------------------------------------------------------
 */

static const struct mu_lowrank shapes[] = {
    { 768, 3072, 4 }, { 3072, 768, 4 }, { 20011, 257, 4 }, { 67, 129, 3 },
    { 512, 4608, 8 }, { 90, 260, 11 },  { 300, 300, 19 },  { 64, 64, 1 },
};
#define SHAPES (sizeof shapes / sizeof shapes[0])

/* Host memory of a tensor and its copy in device memory. */
struct tensor {
    struct mu_lowrank_tensor host, device;
    size_t count, np, nq;
    char *arena;
};

float *floats(size_t n)
{
    float *p = calloc(n + 1, sizeof *p);

    if (!p) {
        fprintf(stderr, "# out of memory\n");
        exit(1);
    }
    return p;
}

static void tensor_open(struct rank *r, struct tensor *t, struct mu_lowrank shape,
                        enum muster_dtype kind)
{
    size_t parts = mu_lowrank_parts(&shape, kind);
    struct mu_err err = { 0 };
    float *at;

    t->count = shape.rows * shape.cols;
    t->np = shape.rows * (size_t)shape.rank;
    t->nq = shape.cols * (size_t)shape.rank;
    t->arena = r->ops->alloc(
        r->b, 4 * (2 * t->count + t->np + 2 * t->nq + parts) + sizeof(uint32_t), &err);
    if (!t->arena) {
        fprintf(stderr, "# %s\n", err.text);
        exit(1);
    }
    at = (float *)t->arena;
    t->device =
        (struct mu_lowrank_tensor){ .shape = shape, .seed = 3, .kind = kind, .p = at };
    t->device.q = at += t->np;
    t->device.own = at += t->nq;
    t->device.g = at += t->nq;
    t->device.g16 = (uint16_t *)at;
    t->device.rest = at += t->count;
    t->device.parts = at += t->count;
    t->device.spoilt = (uint32_t *)(at + parts);
    t->host = (struct mu_lowrank_tensor){ .shape = shape,
                                          .seed = 3,
                                          .kind = kind,
                                          .g = floats(t->count),
                                          .g16 = (uint16_t *)floats(t->count),
                                          .parts = floats(parts),
                                          .rest = floats(t->count),
                                          .p = floats(t->np),
                                          .q = floats(t->nq),
                                          .own = floats(t->nq),
                                          .spoilt = (uint32_t *)floats(1) };
}

static void tensor_close(struct rank *r, struct tensor *t)
{
    r->ops->free(r->b, t->arena);
    free(t->host.spoilt);
    lowrank_host_free(&t->host);
}

static void begin(struct rank *r, struct tensor *t)
{
    mu_lowrank_start(&t->host.shape, t->host.seed, t->host.q);
    memset(t->host.rest, 0, t->count * 4);
    mu_gpu_put(t->device.q, t->host.q, t->nq * 4);
    mu_gpu_put(t->device.rest, t->host.rest, t->count * 4);
}

/* Write the gradient of step `step` to host and device memory. */
static void fill(struct tensor *t, int step, int rank)
{
    uint64_t x = (uint64_t)(step * 64 + rank + 1);

    for (size_t e = 0; e < t->count; e++) {
        t->host.g[e] = random_value(&x);
        t->host.g16[e] = t->host.kind == MUSTER_F16 ? mu_to_f16(t->host.g[e])
                                                    : mu_to_bf16(t->host.g[e]);
    }
    if (t->host.kind == MUSTER_F32)
        mu_gpu_put(t->device.g, t->host.g, t->count * 4);
    else
        mu_gpu_put(t->device.g16, t->host.g16, t->count * 2);
}

static void stage(struct rank *r, struct tensor *t, enum mu_lowrank_stage which)
{
    struct mu_err err = { 0 };

    if (r->ops->lowrank(r->b, which, &t->device, 1, r->stream, &err) < 0) {
        fprintf(stderr, "# rank %d: %s\n", r->world->rank, err.text);
        exit(1);
    }
}

/* Difference from data in device memory, relative to the norm of `want`. */
double off(const float *device, const float *want, size_t n)
{
    float *got = floats(n);
    double sum = 0, all = 1e-30;

    mu_gpu_get(got, device, n * 4);
    for (size_t i = 0; i < n; i++) {
        sum += pow((double)got[i] - (double)want[i], 2);
        all += pow((double)want[i], 2);
    }
    free(got);
    return isfinite(sum) ? sqrt(sum / all) : INFINITY;
}

/* The same for the mean of t; the host has worked on 16-bit gradients too. */
static double off_mean(const struct tensor *t)
{
    uint16_t *got;
    double sum = 0, all = 1e-30;

    if (t->host.kind == MUSTER_F32)
        return off(t->device.g, t->host.g, t->count);
    got = (uint16_t *)floats(t->count);
    mu_gpu_get(got, t->device.g16, t->count * 2);
    for (size_t e = 0; e < t->count; e++) {
        bool half = t->host.kind == MUSTER_F16;
        uint16_t want = t->host.g16[e];
        double x = half ? mu_from_f16(want) : mu_from_bf16(want);

        sum += pow((double)(half ? mu_from_f16(got[e]) : mu_from_bf16(got[e])) - x, 2);
        all += x * x;
    }
    free(got);
    return isfinite(sum) ? sqrt(sum / all) : INFINITY;
}

static uint64_t hash_of(struct rank *r, const struct tensor *t)
{
    return mu_gpu_hash(t->device.g, t->count * mu_dtype_size(t->host.kind), r->stream) *
               3 +
           mu_gpu_hash(t->device.rest, t->count * 4, r->stream) * 5 +
           mu_gpu_hash(t->device.q, t->nq * 4, r->stream);
}

/* Three steps of a world of one rank, twice. */
static void kernels(struct rank *r, struct mu_lowrank shape, enum muster_dtype kind)
{
    struct tensor t;
    uint64_t first = 0;
    double worst = 0;
    bool again = true;

    tensor_open(r, &t, shape, kind);
    for (int go = 0; go < 2; go++) {
        begin(r, &t);
        for (int step = 0; step < 3; step++) {
            fill(&t, step, 0);
            mu_gpu_sync(r->stream);
            for (int s = MU_LOWRANK_LEFT; s <= MU_LOWRANK_FINISH; s++)
                stage(r, &t, (enum mu_lowrank_stage)s);
            mu_gpu_sync(r->stream);
            for (int s = MU_LOWRANK_LEFT; s <= MU_LOWRANK_FINISH && go == 0; s++)
                mu_lowrank_run((enum mu_lowrank_stage)s, &t.host, 1);
            if (go == 0) {
                worst = fmax(worst, off_mean(&t));
                worst = fmax(worst, off(t.device.rest, t.host.rest, t.count));
            }
        }
        if (go == 0)
            first = hash_of(r, &t);
        again = hash_of(r, &t) == first;
    }
    check(r, worst < 5e-4,
          "%s, %zu x %zu, rank %d: mean and rest as on the CPU (off %.1e)",
          mu_dtype_name(kind), shape.rows, shape.cols, shape.rank, worst);
    check(r, again && same_everywhere(r, first),
          "%s, %zu x %zu, rank %d: the same bits again, and on all ranks",
          mu_dtype_name(kind), shape.rows, shape.cols, shape.rank);
    tensor_close(r, &t);
}

/* More tensors than one launch takes, of many sizes. */
static void many(struct rank *r)
{
    enum { MANY = 70 };
    static struct tensor t[MANY];
    static struct mu_lowrank_tensor list[MANY];
    struct mu_err err = { 0 };
    double worst = 0;

    for (int i = 0; i < MANY; i++) {
        size_t at = (size_t)i;

        tensor_open(r, &t[i], (struct mu_lowrank){ 16 + 3 * at, 700 - 9 * at, 4 },
                    MUSTER_F32);
        begin(r, &t[i]);
        fill(&t[i], i, 0);
        list[i] = t[i].device;
    }
    for (int s = MU_LOWRANK_LEFT; s <= MU_LOWRANK_FINISH; s++)
        if (r->ops->lowrank(r->b, (enum mu_lowrank_stage)s, list, MANY, r->stream,
                            &err) < 0) {
            fprintf(stderr, "# rank %d: %s\n", r->world->rank, err.text);
            exit(1);
        }
    mu_gpu_sync(r->stream);
    for (int i = 0; i < MANY; i++) {
        for (int s = MU_LOWRANK_LEFT; s <= MU_LOWRANK_FINISH; s++)
            mu_lowrank_run((enum mu_lowrank_stage)s, &t[i].host, 1);
        worst = fmax(worst, off(t[i].device.g, t[i].host.g, t[i].count));
        worst = fmax(worst, off(t[i].device.rest, t[i].host.rest, t[i].count));
    }
    /* Free the last one first: arenas are a list. */
    for (int i = MANY - 1; i >= 0; i--)
        tensor_close(r, &t[i]);
    check(r, worst < 5e-4, "%d matrices at once as on the CPU (off %.1e)", MANY, worst);
}

/* NaN in P (from this rank's gradient) and in Q (from another rank). */
static void spoilt(struct rank *r)
{
    const struct mu_lowrank shape = { 300, 500, 4 };
    const float bad = NAN, kept = 0.5f;
    float *got = floats(150000), start[2000];
    struct tensor t;

    tensor_open(r, &t, shape, MUSTER_F32);
    mu_lowrank_start(&shape, 3, start);
    for (int late = 0; late < 2; late++) {
        bool right = true;

        begin(r, &t);
        fill(&t, 0, 0);
        mu_gpu_put(t.device.rest + 77, &kept, 4);
        if (!late)
            mu_gpu_put(t.device.g + 1234, &bad, 4);
        for (int s = MU_LOWRANK_LEFT; s <= MU_LOWRANK_FINISH; s++) {
            mu_gpu_sync(r->stream);
            if (late && s == MU_LOWRANK_FINISH)
                mu_gpu_put(t.device.q + 1999, &bad, 4);
            stage(r, &t, (enum mu_lowrank_stage)s);
        }
        mu_gpu_sync(r->stream);
        mu_gpu_get(got, t.device.g, t.count * 4);
        for (size_t e = 0; e < t.count; e++)
            right &= isnan(got[e]) != 0;
        mu_gpu_get(got, t.device.rest, t.count * 4);
        right &= got[77] == (late ? 0 : kept) && got[1234] == 0;
        mu_gpu_get(got, t.device.q, t.nq * 4);
        right &= memcmp(got, start, sizeof start) == 0;
        check(r, right, "NaN in %s: the step is NaN, and the next begins anew",
              late ? "Q" : "the gradient");
    }
    tensor_close(r, &t);
    free(got);
}

/* Microseconds of a stage, and the least time for the memory of M. */
struct timed {
    struct rank *r;
    struct tensor *t;
    enum mu_lowrank_stage stage;
};

static void timed_stage(void *arg)
{
    struct timed *a = arg;

    stage(a->r, a->t, a->stage);
}

static void times(struct rank *r, struct mu_lowrank shape)
{
    static const int passes[] = { 3, 1, 3 }; /* reads and writes of M */
    static const char *const names[] = { "P = M Q", "P orthonormal, Q = M^T P",
                                         "mean and rest" };
    struct tensor t;
    double us[20];

    tensor_open(r, &t, shape, MUSTER_F32);
    begin(r, &t);
    fill(&t, 0, 0);
    for (int s = MU_LOWRANK_LEFT; s <= MU_LOWRANK_FINISH; s++) {
        struct timed a = { r, &t, (enum mu_lowrank_stage)s };

        mu_gpu_time(timed_stage, &a, 10, 20, false, us, r->stream);
        print0(r, "# %zu x %zu, rank %d: %s: %.1f us, %.0f GB/s\n", shape.rows,
               shape.cols, shape.rank, names[s], us[10],
               passes[s] * 4 * (double)t.count / us[10] * 1e-3);
    }
    tensor_close(r, &t);
}

static int body(struct mu_world *world, void *arg)
{
    struct mu_config config = { .backend = MU_BACKEND_NCCL,
                                .init_timeout = 60,
                                .timeout = 60,
                                .log = MU_LOG_INFO };
    struct rank r = { .world = world };
    struct muster *m;

    if (mu_init_world(&m, &config, world) != MUSTER_OK) {
        fprintf(stderr, "# %s\n", muster_error(NULL));
        return 1;
    }
    r.b = m->comm.backend;
    r.ops = m->comm.ops;
    r.stream = mu_gpu_stream();
    for (size_t i = arg ? 3 : 0; i < SHAPES; i += arg ? 2 : 1)
        kernels(&r, shapes[i], MUSTER_F32);
    kernels(&r, shapes[5], MUSTER_BF16);
    kernels(&r, shapes[3], MUSTER_F16);
    many(&r);
    spoilt(&r);
    if (!arg) {
        kernels(&r, shapes[0], MUSTER_BF16);
        whole_steps(&r, m);
        times(&r, (struct mu_lowrank){ 768, 3072, 4 });
        times(&r, (struct mu_lowrank){ 4096, 4096, 4 });
        times(&r, (struct mu_lowrank){ 50257, 768, 4 });
    }
    print0(&r, "1..%d\n", r.number);
    if (muster_finalize(m) != MUSTER_OK)
        return 1;
    return r.failures ? 1 : 0;
}

int main(int argc, char **argv)
{
    return mu_forked_run(ranks_wanted(argc, argv, 1), true, 20, body,
                         argc > 2 && strcmp(argv[2], "short") == 0 ? argv : NULL);
}
