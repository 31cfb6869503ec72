/* SPDX-License-Identifier: BSD-3-Clause */
/* powersgd_steps.c - PowerSGD of muster_ddp on GPUs, and its residuals in checkpoints
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/core/compress.h"
#include "tests/gpu/powersgd.h"
#include "tests/unit/folder.h"

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

/* One step; returns a hash of the bits of the means. */
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

/* The CPU's results for matrix i with the gradients of all ranks, step by step; every
 * rank computes them itself.
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
    struct mu_lowrank_tensor cpu[MU_FORK_MAX];
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

/* Equal gradients in every step: later steps send what one step did not send. */
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

/* A checkpoint keeps the residuals on the GPU: another ddp object continues from it. */
static void resume(struct rank *r, struct muster *m, const struct muster_hook *hook,
                   const char *name)
{
    enum { STEPS = 6, STOP = 3, ITEMS = 2 * N };
    const struct muster_checkpoint_options o = { .sharded = 1, .keep = 1 };
    struct muster_item items[ITEMS];
    uint64_t undisturbed[STEPS], step = 0;
    int before = m->comm.ddps, found = 0, n;
    struct muster_checkpoint *c;
    bool same = true, told = false;
    char folder[64];

    snprintf(folder, sizeof folder, "/tmp/check-powersgd.%d.%s", (int)getppid(), name);
    ok(m, muster_checkpoint_open(m, folder, &o, &c));
    /* 0: no restart; 1: restart without the residuals; 2: restart with them */
    for (int go = 0; go < 3; go++) {
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
        m->comm.ddps = before; /* as in a new process */
    }
    ok(m, muster_checkpoint_close(c));
    check(r, n > 0 && found && step == STOP && told && same,
          "%s: a run taken up from a checkpoint goes on bit for bit", name);
    folder_remove(folder); /* each rank removes what it finds */
}

void whole_steps(struct rank *r, struct muster *m)
{
    const struct muster_hook power = { .compress = MUSTER_COMPRESS_POWERSGD,
                                       .rows = rows };
    const struct muster_hook int8 = { .compress = MUSTER_COMPRESS_INT8 };

    steps(r, m);
    feedback(r, m);
    resume(r, m, &power, "PowerSGD");
    resume(r, m, &int8, "int8");
}
