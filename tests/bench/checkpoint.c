/* SPDX-License-Identifier: BSD-3-Clause */
/* checkpoint.c - how long a step is held up by a checkpoint that is written behind it
 *
 *   checkpoint FOLDER [MiB [STEPS]]
 *
 * One rank. A step reads the weights a few times (forward and backward), then changes
 * them (update). Timed without checkpoints, and with one in every fourth step in each
 * mode: how long the step that saves is held up in libmuster's calls, how much longer
 * it takes, and what the write costs the steps behind it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/muster.h"

#define PASSES 8
#define EVERY 4

static struct muster *m;
static float *weights;
static size_t count;
static volatile float sink;

static void check(int status)
{
    if (status == MUSTER_OK)
        return;
    fprintf(stderr, "checkpoint: %s\n", muster_error(m));
    exit(status);
}

static void compute(void)
{
    for (int pass = 0; pass < PASSES; pass++) {
        float sum[16] = { 0 };

        for (size_t i = 0; i < count; i += 16)
            for (size_t k = 0; k < 16; k++)
                sum[k] += weights[i + k];
        sink = sum[0] + sum[15];
    }
}

static void update(void)
{
    for (size_t i = 0; i < count; i++)
        weights[i] *= 0.999f;
}

static int by_size(const void *a, const void *b)
{
    return (*(const double *)a > *(const double *)b) -
           (*(const double *)a < *(const double *)b);
}

static double median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof *v, by_size);
    return v[n / 2];
}

struct times {
    double saving, after, held; /* s: steps that save, the next ones, in calls */
};

/* c NULL: without. */
static struct times run(struct muster_checkpoint *c, int steps)
{
    const struct muster_item item = { .name = "weights",
                                      .data = weights,
                                      .bytes = count * sizeof *weights };
    double saving[100], after[100], held[100];
    int ns = 0, na = 0;

    for (int step = 0; step < steps * EVERY; step++) {
        double begin = mu_clock_s(), in_calls = 0, at;

        if (c && step % EVERY == 0) {
            check(muster_checkpoint_save(c, (uint64_t)step, &item, 1));
            in_calls = mu_clock_s() - begin;
        }
        compute();
        if (c && step % EVERY == 0) {
            at = mu_clock_s();
            muster_checkpoint_copied(c);
            in_calls += mu_clock_s() - at;
        }
        update();
        if (step < EVERY) /* memory is touched for the first time */
            continue;
        if (step % EVERY == 0) {
            held[ns] = in_calls;
            saving[ns++] = mu_clock_s() - begin;
        } else if (step % EVERY == 1) {
            after[na++] = mu_clock_s() - begin;
        }
    }
    if (c)
        check(muster_checkpoint_wait(c));
    return (struct times){ median(saving, ns), median(after, na), median(held, ns) };
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        enum muster_checkpoint_mode mode;
    } modes[] = { { "wait", MUSTER_CHECKPOINT_WAIT },
                  { "copy", MUSTER_CHECKPOINT_COPY },
                  { "lazy", MUSTER_CHECKPOINT_LAZY } };
    size_t mib = argc > 2 ? strtoul(argv[2], NULL, 10) : 1024;
    int steps = argc > 3 ? atoi(argv[3]) : 6;
    struct times none, with;

    if (argc < 2 || mib == 0 || steps < 2 || steps > 100) {
        fprintf(stderr, "usage: checkpoint FOLDER [MiB [STEPS]]\n");
        return 2;
    }
    count = mib << 18;
    weights = aligned_alloc(64, count * sizeof *weights);
    if (!weights)
        return 1;
    for (size_t i = 0; i < count; i++)
        weights[i] = (float)(i % 1000);
    check(muster_init(&m, NULL));
    none = run(NULL, steps);
    printf("%zu MiB, a step of %.0f ms (medians of %d)\n", mib, none.saving * 1e3,
           steps - 1);
    for (int i = 0; i < 3; i++) {
        const struct muster_checkpoint_options o = { .keep = 1, .mode = modes[i].mode };
        struct muster_checkpoint *c;

        check(muster_checkpoint_open(m, argv[1], &o, &c));
        with = run(c, steps);
        check(muster_checkpoint_close(c));
        printf("%s: held up %.1f ms, %.1f %% of a step; the step that saves %+.1f %%, "
               "the next %+.1f %%\n",
               modes[i].name, with.held * 1e3, 100 * with.held / none.saving,
               100 * (with.saving / none.saving - 1),
               100 * (with.after / none.after - 1));
        fflush(stdout);
    }
    check(muster_finalize(m));
    return 0;
}
