/* SPDX-License-Identifier: BSD-3-Clause */
/* check_powersgd.c - PowerSGD on GPUs: its kernels against the CPU, and all of a step
 *
 *   check_powersgd [RANKS]
 *
 * All of libmuster but PMIx: ranks are forked, the backend is NCCL.
 */
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/api/impl.h"
#include "runtime/core/compress.h"
#include "tests/gpu/common.h"

/* ---- Kernels ----------------------------------------------------------------------
 */

static const struct mu_lowrank shapes[] = {
    { 768, 3072, 4 }, { 3072, 768, 4 }, { 20011, 257, 4 }, { 67, 129, 3 },
    { 512, 4608, 8 }, { 90, 260, 11 },  { 300, 300, 19 },  { 64, 64, 1 },
};
#define SHAPES (sizeof shapes / sizeof shapes[0])

/* Host memory of a tensor, and where the same lies in device memory. */
struct tensor {
    struct mu_lowrank_tensor host, device;
    size_t count, np, nq;
    char *arena;
};

static float random_value(uint64_t *x)
{
    *x = *x * 6364136223846793005u + 1442695040888963407u;
    return (float)((int32_t)(*x >> 32) * 0x1p-31);
}

static float *floats(size_t n)
{
    float *p = calloc(n + 1, sizeof *p);

    if (!p) {
        fprintf(stderr, "# out of memory\n");
        exit(1);
    }
    return p;
}

static void tensor_open(struct rank *r, struct tensor *t, struct mu_lowrank shape)
{
    size_t parts = mu_lowrank_parts(&shape);
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
    t->device = (struct mu_lowrank_tensor){ .shape = shape, .seed = 3, .p = at };
    t->device.q = at += t->np;
    t->device.own = at += t->nq;
    t->device.g = at += t->nq;
    t->device.rest = at += t->count;
    t->device.parts = at += t->count;
    t->device.spoilt = (uint32_t *)(at + parts);
    t->host = (struct mu_lowrank_tensor){ .shape = shape,
                                          .seed = 3,
                                          .g = floats(t->count),
                                          .rest = floats(t->count),
                                          .p = floats(t->np),
                                          .q = floats(t->nq),
                                          .own = floats(t->nq),
                                          .spoilt = (uint32_t *)floats(1) };
}

static void tensor_close(struct rank *r, struct tensor *t)
{
    r->ops->free(r->b, t->arena);
    free(t->host.g);
    free(t->host.rest);
    free(t->host.p);
    free(t->host.q);
    free(t->host.own);
    free(t->host.spoilt);
}

static void begin(struct rank *r, struct tensor *t)
{
    mu_lowrank_start(&t->host.shape, t->host.seed, t->host.q);
    memset(t->host.rest, 0, t->count * 4);
    mu_gpu_put(t->device.q, t->host.q, t->nq * 4);
    mu_gpu_put(t->device.rest, t->host.rest, t->count * 4);
}

/* The gradient of step `step`: both of host and device. */
static void fill(struct tensor *t, int step, int rank)
{
    uint64_t x = (uint64_t)(step * 64 + rank + 1);

    for (size_t e = 0; e < t->count; e++)
        t->host.g[e] = random_value(&x);
    mu_gpu_put(t->device.g, t->host.g, t->count * 4);
}

static void stage(struct rank *r, struct tensor *t, enum mu_lowrank_stage which)
{
    struct mu_err err = { 0 };

    if (r->ops->lowrank(r->b, which, &t->device, 1, r->stream, &err) < 0) {
        fprintf(stderr, "# rank %d: %s\n", r->world->rank, err.text);
        exit(1);
    }
}

/* Relative to the whole, of what is in device memory. */
static double off(const float *device, const float *want, size_t n)
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

static uint64_t hash_of(struct rank *r, const struct tensor *t)
{
    return mu_gpu_hash(t->device.g, t->count * 4, r->stream) * 3 +
           mu_gpu_hash(t->device.rest, t->count * 4, r->stream) * 5 +
           mu_gpu_hash(t->device.q, t->nq * 4, r->stream);
}

/* Three steps of a world of one, twice. */
static void kernels(struct rank *r, struct mu_lowrank shape)
{
    struct tensor t;
    uint64_t first = 0;
    double worst = 0;
    bool again = true;

    tensor_open(r, &t, shape);
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
                worst = fmax(worst, off(t.device.g, t.host.g, t.count));
                worst = fmax(worst, off(t.device.rest, t.host.rest, t.count));
            }
        }
        if (go == 0)
            first = hash_of(r, &t);
        again = hash_of(r, &t) == first;
    }
    check(r, worst < 5e-4, "%zu x %zu, rank %d: mean and rest as on the CPU (off %.1e)",
          shape.rows, shape.cols, shape.rank, worst);
    check(r, again && same_everywhere(r, first),
          "%zu x %zu, rank %d: the same bits again, and on all ranks", shape.rows,
          shape.cols, shape.rank);
    tensor_close(r, &t);
}

/* What NaN leaves: of P as it comes in, of Q as it comes from another rank. */
static void spoilt(struct rank *r)
{
    const struct mu_lowrank shape = { 300, 500, 4 };
    const float bad = NAN, kept = 0.5f;
    float *got = floats(150000), start[2000];
    struct tensor t;

    tensor_open(r, &t, shape);
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

/* Microseconds of a stage, and what of it the memory of M takes at least. */
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
    static const int passes[] = { 3, 1, 3 }; /* over M, read or written */
    static const char *const names[] = { "P = M Q", "P orthonormal, Q = M^T P",
                                         "mean and rest" };
    struct tensor t;
    double us[20];

    tensor_open(r, &t, shape);
    begin(r, &t);
    fill(&t, 0, 0);
    for (int s = MU_LOWRANK_LEFT; s <= MU_LOWRANK_FINISH; s++) {
        struct timed a = { r, &t, (enum mu_lowrank_stage)s };

        mu_gpu_time(timed_stage, &a, 10, 20, false, us, r->stream);
        say(r, "# %zu x %zu, rank %d: %s: %.1f us, %.0f GB/s\n", shape.rows, shape.cols,
            shape.rank, names[s], us[10],
            passes[s] * 4 * (double)t.count / us[10] * 1e-3);
    }
    tensor_close(r, &t);
}

/* ---- Whole steps ------------------------------------------------------------------
 */

enum { N = 4 };
static const size_t counts[N] = { 512 * 640, 1000, 3001 * 128, 96 * 96 };
static const size_t rows[N] = { 512, 0, 3001, 96 };

static int ok(struct muster *m, int status)
{
    if (status != MUSTER_OK) {
        fprintf(stderr, "# rank %d: %s\n", muster_rank(m), muster_error(m));
        exit(1);
    }
    return status;
}

static struct muster_ddp *make(struct muster *m, const struct muster_hook *hook)
{
    static const char *const names[N] = { "w0", "b1", "w2", "w3" };
    const struct muster_ddp_options o = { .hook = hook,
                                          .first_bucket = 1 << 20,
                                          .bucket_cap = 2 << 20 };
    struct muster_param p[N];
    struct muster_ddp *ddp;

    for (int i = 0; i < N; i++)
        p[i] = (struct muster_param){ .name = names[i], .count = counts[i] };
    ok(m, muster_ddp_create(m, p, N, &o, &ddp));
    return ddp;
}

static void gradient(float *g, int i, int rank, int step)
{
    uint64_t x = (uint64_t)((step * 16 + i) * 64 + rank + 1);

    for (size_t k = 0; k < counts[i]; k++)
        g[k] = random_value(&x);
}

/* One step; the hash of the means' bits. */
static uint64_t one_step(struct rank *r, struct muster *m, struct muster_ddp *ddp,
                         int step)
{
    uint64_t hash = 0;

    for (int i = N - 1; i >= 0; i--) {
        float *g = floats(counts[i]);

        gradient(g, i, muster_rank(m), step);
        mu_gpu_put(muster_ddp_grad(ddp, i), g, counts[i] * 4);
        free(g);
        ok(m, muster_ddp_grad_ready(ddp, i, r->stream));
    }
    ok(m, muster_ddp_sync(ddp, r->stream));
    mu_gpu_sync(r->stream);
    for (int i = 0; i < N; i++)
        hash =
            hash * 31 + mu_gpu_hash(muster_ddp_grad(ddp, i), counts[i] * 4, r->stream);
    return hash;
}

/* What the CPU makes of all ranks' gradients of matrix i, step by step; every rank for
 * itself.
 */
static void host_tensor(struct mu_lowrank_tensor *x, int i)
{
    *x = (struct mu_lowrank_tensor){ .shape = { rows[i], counts[i] / rows[i], 4 },
                                     .seed = (uint64_t)i };
    x->g = floats(counts[i]);
    x->rest = floats(counts[i]);
    x->p = floats(x->shape.rows * 4);
    x->q = floats(x->shape.cols * 4);
    x->own = floats(x->shape.cols * 4);
    x->spoilt = (uint32_t *)floats(1);
    mu_lowrank_start(&x->shape, x->seed, x->q);
}

static void average(struct mu_lowrank_tensor *x, int size, bool q)
{
    size_t n = (q ? x->shape.cols : x->shape.rows) * 4;

    for (size_t e = 0; e < n; e++) {
        double sum = 0;

        for (int k = 0; k < size; k++)
            sum += q ? x[k].q[e] : x[k].p[e];
        for (int k = 0; k < size; k++)
            *(q ? &x[k].q[e] : &x[k].p[e]) = (float)(sum / size);
    }
}

static void twin_step(struct mu_lowrank_tensor *x, int i, int size, int step)
{
    for (int k = 0; k < size; k++)
        gradient(x[k].g, i, k, step);
    mu_lowrank_run(MU_LOWRANK_LEFT, x, size);
    average(x, size, false);
    mu_lowrank_run(MU_LOWRANK_RIGHT, x, size);
    average(x, size, true);
    mu_lowrank_run(MU_LOWRANK_FINISH, x, size);
}

static void steps(struct rank *r, struct muster *m)
{
    const struct muster_hook hook = { .compress = MUSTER_COMPRESS_POWERSGD,
                                      .rows = rows };
    struct muster_ddp *ddp = make(m, &hook);
    struct mu_lowrank_tensor cpu[MU_FORKED_MAX];
    const int size = muster_size(m);
    bool same = true;
    double worst = 0;

    for (int k = 0; k < size; k++)
        host_tensor(&cpu[k], 0);
    for (int step = 0; step < 4; step++) {
        same &= same_everywhere(r, one_step(r, m, ddp, step));
        twin_step(cpu, 0, size, step);
        worst = fmax(worst, off(muster_ddp_grad(ddp, 0), cpu[0].g, counts[0]));
    }
    check(r, same, "steps: the same bits on all ranks");
    check(r, worst < 2e-3, "steps: the means of a world of CPUs (off %.1e)", worst);
    muster_ddp_destroy(ddp);
}

/* The same gradients again and again: what one step does not send comes in later ones.
 */
static void feedback(struct rank *r, struct muster *m)
{
    const struct muster_hook hook = { .compress = MUSTER_COMPRESS_POWERSGD,
                                      .rank = 8,
                                      .rows = rows };
    enum { STEPS = 60, I = 3 };
    float *g = floats(counts[I]), *mean = floats(counts[I]);
    double *came = calloc(counts[I], sizeof *came), first = 0, last = 0;
    struct muster_ddp *ddp = make(m, &hook);

    for (int k = 0; k < muster_size(m); k++) {
        gradient(g, I, k, 0);
        for (size_t e = 0; e < counts[I]; e++)
            mean[e] += g[e] / (float)muster_size(m);
    }
    for (int step = 1; step <= STEPS; step++) {
        double sum = 0, all = 0;

        one_step(r, m, ddp, 0);
        mu_gpu_get(g, muster_ddp_grad(ddp, I), counts[I] * 4);
        for (size_t e = 0; e < counts[I]; e++) {
            came[e] += g[e];
            sum += pow(came[e] / step - mean[e], 2);
            all += pow(mean[e], 2);
        }
        last = sqrt(sum / all);
        first = step == 1 ? last : first;
    }
    check(r, last < 0.35 && last < first / 2.5,
          "%d steps: what was not sent comes later (off %.3f, then %.3f)", STEPS, first,
          last);
    free(g);
    free(mean);
    free(came);
    muster_ddp_destroy(ddp);
}

/* By all ranks, each what it finds. */
static void remove_folder(const char *folder)
{
    DIR *dir = opendir(folder);
    struct dirent *entry;
    char path[512];

    while (dir && (entry = readdir(dir))) {
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        unlink(path);
    }
    if (dir)
        closedir(dir);
    rmdir(folder);
}

/* What is left on the GPU goes through a checkpoint: another ddp goes on from it. */
static void resume(struct rank *r, struct muster *m, const struct muster_hook *hook,
                   const char *name)
{
    enum { STEPS = 6, STOP = 3, ITEMS = 2 * N };
    const struct muster_checkpoint_options o = { .sharded = 1, .keep = 1 };
    struct muster_item items[ITEMS];
    uint64_t undisturbed[STEPS], step = 0;
    int before = m->ddps, found = 0, n;
    struct muster_checkpoint *c;
    bool same = true, told = false;
    char folder[64];

    snprintf(folder, sizeof folder, "/tmp/check-powersgd.%d.%s", (int)getppid(), name);
    ok(m, muster_checkpoint_open(m, folder, &o, &c));
    for (int go = 0; go < 3; go++) { /* undisturbed, without what was left, with it */
        struct muster_ddp *ddp = make(m, hook);

        n = muster_ddp_state(ddp, items, ITEMS);
        if (go == 2)
            ok(m, muster_checkpoint_load(c, items, n, &step, &found));
        for (int s = go == 0 ? 0 : STOP; s < STEPS; s++) {
            uint64_t hash;

            if (go == 0 && s == STOP)
                ok(m, muster_checkpoint_save(c, STOP, items, n));
            hash = one_step(r, m, ddp, s);
            undisturbed[s] = go == 0 ? hash : undisturbed[s];
            told |= go == 1 && hash != undisturbed[s];
            same &= go != 2 || hash == undisturbed[s];
        }
        muster_ddp_destroy(ddp);
        m->ddps = before; /* as in a new process */
    }
    ok(m, muster_checkpoint_close(c));
    check(r, n > 0 && found && step == STOP && told && same,
          "%s: a run taken up from a checkpoint goes on bit for bit", name);
    remove_folder(folder);
}

static void resumes(struct rank *r, struct muster *m)
{
    const struct muster_hook power = { .compress = MUSTER_COMPRESS_POWERSGD,
                                       .rows = rows };
    const struct muster_hook int8 = { .compress = MUSTER_COMPRESS_INT8 };

    resume(r, m, &power, "PowerSGD");
    resume(r, m, &int8, "int8");
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
    r.b = m->backend;
    r.ops = m->ops;
    r.stream = mu_gpu_stream();
    for (size_t i = 0; i < SHAPES; i++)
        kernels(&r, shapes[i]);
    spoilt(&r);
    steps(&r, m);
    feedback(&r, m);
    resumes(&r, m);
    times(&r, (struct mu_lowrank){ 768, 3072, 4 });
    times(&r, (struct mu_lowrank){ 4096, 4096, 4 });
    times(&r, (struct mu_lowrank){ 50257, 768, 4 });
    say(&r, "1..%d\n", r.number);
    if (muster_finalize(m) != MUSTER_OK)
        return 1;
    return r.failures ? 1 : 0;
}

int main(int argc, char **argv)
{
    return mu_forked_run(ranks_wanted(argc, argv), true, 20, body, NULL);
}
