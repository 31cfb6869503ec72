/* SPDX-License-Identifier: BSD-3-Clause */
/* bench_compare.c - ways to exchange the gradients of a step, one against another
 *
 * Tutorials on multi-GPU training recommend DDP instead of DataParallel, buckets,
 * overlap and compression, each with a figure. Here all of them exchange the gradients
 * of one model, in turns, and the table has their figures beside the measured ones.
 */
#include "runtime/tools/bench_compare.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/parse.h"
#include "runtime/core/dtype.h"

#define TURNS 3
#define WARM 2
#define STEPS_MAX 1000
#define MATRIX_MIN 4096 /* elements: smaller tensors are vectors to PowerSGD */
#define ALIGN 128
#define COMPUTING                                                                      \
    4 /* exchanges: so a step is one fifth communication, as at the limit
                     * above which the sources see scaling suffer */

/* ---- Ways ------------------------------------------------------------------------ */

enum {
    ROOT,
    PLAIN,
    TENSORS,
    LATE,
    DDP,
    CAST,
    INT8,
    POWERSGD,
    WAYS,
};

static const struct way {
    const char *name;
    bool root;      /* no ddp: rank 0 has the sum, and sends it back */
    bool late;      /* gradients become ready when the backward pass is over */
    bool by_tensor; /* each has a collective of its own */
    enum muster_compress compress;
    double tolerance; /* of a mean, relative */
} ways[WAYS] = {
    [ROOT] = { "through rank 0", true, true, false, 0, 0 },
    [PLAIN] = { "by tensor, after backward", false, true, true, 0, 0 },
    [TENSORS] = { "by tensor", false, false, true, 0, 0 },
    [LATE] = { "after backward", false, true, false, 0, 0 },
    [DDP] = { "DDP, f32", false, false, false, 0, 0 },
    [CAST] = { "DDP, bf16", false, false, false, MUSTER_COMPRESS_BF16, 0 },
    [INT8] = { "DDP, INT8", false, false, false, MUSTER_COMPRESS_INT8, 0.02 },
    [POWERSGD] = { "DDP, PowerSGD", false, false, false, MUSTER_COMPRESS_POWERSGD,
                   0.02 },
};

static const struct {
    const char *name;
    int before, after;
    const char *sources; /* what they report for it */
} comparisons[] = {
    { "DataParallel to DDP", ROOT, DDP, "3 to 5 times, 8 GPUs" },
    { "buckets", TENSORS, DDP, "-" },
    { "overlap", LATE, DDP, "-" },
    { "buckets and overlap", PLAIN, DDP, "1.1 to 1.2 times" },
    { "bf16", DDP, CAST, "50 % of the bytes" },
    { "INT8", DDP, INT8, "25 % of the bytes" },
    { "PowerSGD", DDP, POWERSGD, "-" },
    { "case study", PLAIN, CAST, "1.75 times" },
};

/* What one way took, over all turns. */
struct result {
    double us[STEPS_MAX];
    int n;
    double wire; /* bytes of a step that go into collectives, -1 unknown */
    bool wrong;
};

struct compare {
    struct bench *b;
    const struct bench_engine *engine;
    struct muster *own; /* a group for calls beside the ddp object */
    struct bench_model model;
    size_t *rows; /* by parameter, for PowerSGD */
    void **grad;
    double us; /* of the computation in a step, where the engine lets choose it */
    struct result result[WAYS];
};

/* A model's file has no shapes: the rows that make a tensor most nearly square. */
static size_t square_rows(size_t count)
{
    size_t rows = count < MATRIX_MIN ? 0 : (size_t)sqrt((double)count);

    while (rows > 1 && count % rows != 0)
        rows--;
    return rows;
}

/* Every rank's value is replaced by the greatest. */
static void slowest(const struct compare *c, double *us, int n)
{
    const struct bench_memory *memory = c->b->memory;
    size_t bytes = (size_t)n * sizeof *us;
    void *here = memory->alloc(bytes);

    if (!here)
        exit(MUSTER_EMEMORY);
    memory->copy(here, us, bytes, true);
    if (muster_allreduce(c->own, here, (size_t)n, MUSTER_F64, MUSTER_MAX,
                         c->b->stream) != MUSTER_OK)
        exit(muster_report(c->own));
    if (memory->settle)
        memory->settle(c->b->stream, 60);
    memory->copy(us, here, bytes, false);
    memory->free(here);
}

/* ---- A step ---------------------------------------------------------------------- */

/* A way while it takes a turn. */
struct turn {
    struct compare *c;
    const struct way *way;
    struct muster_ddp *ddp; /* NULL: through rank 0 */
    char *arena;
    size_t count; /* elements in the arena */
    void *work;   /* the engine's */
};

static void open_ddp(struct turn *t)
{
    struct compare *c = t->c;
    struct muster_hook hook = { .compress = t->way->compress, .rows = c->rows };
    struct muster_ddp_options options = {
        .first_bucket = t->way->by_tensor ? 1 : (size_t)1 << 20,
        .bucket_cap = t->way->by_tensor ? 1 : (size_t)25 << 20,
        .hook = hook.compress ? &hook : NULL,
    };

    bench_must(c->b->m, muster_ddp_create(c->b->m, c->model.param, c->model.nparams,
                                          &options, &t->ddp));
    for (int i = 0; i < c->model.nparams; i++)
        c->grad[i] = muster_ddp_grad(t->ddp, i);
}

static void open_arena(struct turn *t)
{
    struct compare *c = t->c;
    size_t element = sizeof(float), at = 0;

    for (int i = 0; i < c->model.nparams; i++)
        at += (c->model.param[i].count * element + ALIGN - 1) / ALIGN * ALIGN;
    t->arena = muster_alloc(c->own, at);
    if (!t->arena)
        exit(muster_report(c->own));
    t->count = at / element;
    at = 0;
    for (int i = 0; i < c->model.nparams; i++) {
        c->grad[i] = t->arena + at;
        at += (c->model.param[i].count * element + ALIGN - 1) / ALIGN * ALIGN;
    }
}

static void ready(const struct turn *t, int layer)
{
    const struct bench_layer *l = &t->c->model.layer[layer];

    for (int i = l->param + l->nparams - 1; i >= l->param; i--)
        bench_must(t->c->b->m, muster_ddp_grad_ready(t->ddp, i, t->c->b->stream));
}

/* DataParallel adds up gradients on the first GPU, and copies weights from there. */
static void through_root(const struct turn *t)
{
    struct muster *own = t->c->own;
    void *stream = t->c->b->stream;

    if (muster_reduce(own, t->arena, t->arena, t->count, MUSTER_F32, MUSTER_SUM, 0,
                      stream) != MUSTER_OK ||
        muster_broadcast(own, t->arena, t->count, MUSTER_F32, 0, stream) != MUSTER_OK)
        exit(muster_report(own));
}

static double step(const struct turn *t)
{
    const struct bench_engine *engine = t->c->engine;
    int n = t->c->model.nlayers;

    engine->forward(t->work);
    for (int l = n - 1; l >= 0; l--) {
        engine->backward(t->work, l);
        if (!t->way->late)
            ready(t, l);
    }
    for (int l = n - 1; l >= 0 && t->way->late && !t->way->root; l--)
        ready(t, l);
    if (t->way->root)
        through_root(t);
    else
        bench_must(t->c->b->m, muster_ddp_sync(t->ddp, t->c->b->stream));
    return engine->end(t->work);
}

/* The last element of each gradient: 0.5 on each rank. */
static bool right(const struct turn *t)
{
    const struct compare *c = t->c;
    double want = t->way->root ? 0.5 * muster_size(c->b->m) : 0.5;

    for (int i = 0; i < c->model.nparams && c->b->options->check; i++) {
        size_t count = c->model.param[i].count;
        float is;

        if (count == 0)
            continue;
        c->b->memory->copy(&is, (char *)c->grad[i] + (count - 1) * sizeof is, sizeof is,
                           false);
        if (!(fabs(is - want) <= t->way->tolerance * want))
            return false;
    }
    return true;
}

/* Some steps of one way: us of each. */
static void take_turn(struct compare *c, int way, int steps, struct result *out)
{
    struct turn t = { .c = c, .way = &ways[way] };
    double *us = &out->us[out->n];
    uint64_t before = 0;
    double wrong;

    if (t.way->root)
        open_arena(&t);
    else
        open_ddp(&t);
    t.work = c->engine->open(c->b, &c->model, c->grad, c->us);
    for (int i = -WARM; i < steps; i++) {
        if (i == 0 && t.ddp)
            before = muster_ddp_wire_bytes(t.ddp);
        us[i < 0 ? 0 : i] = step(&t);
    }
    out->wire = t.ddp ? (double)(muster_ddp_wire_bytes(t.ddp) - before) / steps : -1;
    wrong = !right(&t);
    out->n += steps;
    c->engine->close(t.work);
    muster_ddp_destroy(t.ddp);
    muster_free(c->own, t.arena);
    slowest(c, us, steps);
    slowest(c, &wrong, 1);
    out->wrong = out->wrong || wrong > 0;
}

/* ---- The table ------------------------------------------------------------------- */

static void print_table(struct compare *c)
{
    bool tsv = c->b->options->tsv;
    double median[WAYS];

    for (int w = 0; w < WAYS; w++)
        median[w] = bench_median(c->result[w].us, c->result[w].n);
    bench_print(c->b,
                tsv ? "comparison\tbefore\tafter\tbefore_us\tafter_us\ttimes\t"
                      "sent_percent\tsources\tresult\n"
                    : "# comparison          before                     after     "
                      "      before ms  after ms  times  sent %%  sources\n");
    for (size_t i = 0; i < sizeof comparisons / sizeof comparisons[0]; i++) {
        int before = comparisons[i].before, after = comparisons[i].after;
        bool wrong = c->result[before].wrong || c->result[after].wrong;

        bench_print(c->b,
                    tsv ? "%s\t%s\t%s\t%.1f\t%.1f\t%.3f\t%.1f\t%s\t%s\n"
                        : "%-21s %-26s %-14s %10.2f %9.2f %6.2f %7.1f  %s%s\n",
                    comparisons[i].name, ways[before].name, ways[after].name,
                    tsv ? median[before] : median[before] * 1e-3,
                    tsv ? median[after] : median[after] * 1e-3,
                    median[before] / median[after],
                    100 * c->result[after].wire / (double)c->model.grad_bytes,
                    comparisons[i].sources,
                    tsv ? (wrong ? "WRONG" : "ok") : (wrong ? ", WRONG" : ""));
    }
}

static void print_spread(struct compare *c)
{
    for (int w = 0; w < WAYS; w++) {
        struct result *r = &c->result[w];
        double median = bench_median(r->us, r->n);

        bench_print(c->b, "# %s: %.2f ms (%.2f to %.2f)\n", ways[w].name, median * 1e-3,
                    r->us[0] * 1e-3, r->us[r->n - 1] * 1e-3);
    }
}

/* ---- Start and end --------------------------------------------------------------- */

static void read_model(struct compare *c)
{
    struct mu_err err = { 0 };
    const char *name = c->b->options->model;

    if (bench_model_open(name, &c->model, &err) < 0)
        bench_die(&err);
    if (c->model.dtype != MUSTER_F32) {
        mu_err_set(&err, MUSTER_EUSAGE,
                   "compare takes a model of f32 gradients, and those of %s are %s",
                   name, mu_dtype_name(c->model.dtype));
        bench_die(&err);
    }
    c->rows = calloc((size_t)c->model.nparams, sizeof *c->rows);
    c->grad = calloc((size_t)c->model.nparams, sizeof *c->grad);
    if (!c->rows || !c->grad)
        exit(MUSTER_EMEMORY);
    for (int i = 0; i < c->model.nparams; i++)
        c->rows[i] = square_rows(c->model.param[i].count);
}

/* The time of a computation that is COMPUTING times the exchange of DDP. */
static void choose_computation(struct compare *c)
{
    struct result alone = { 0 };

    take_turn(c, DDP, 5, &alone);
    c->us = COMPUTING * bench_median(alone.us, alone.n);
}

int bench_compare(struct bench *b, const struct bench_engine *engine)
{
    struct compare *c = calloc(1, sizeof *c);
    int steps = (b->options->steps + TURNS - 1) / TURNS, rc = 0;

    if (!c)
        return MUSTER_EMEMORY;
    c->b = b;
    c->engine = engine;
    read_model(c);
    if (muster_split(b->m, 0, 0, "compare", &c->own) != MUSTER_OK)
        return muster_report(b->m);
    if (engine->scaled)
        choose_computation(c);
    bench_print(b,
                "# %s: %d tensor%s, %.1f MB of f32 gradients, %d steps of each way in "
                "%d turns",
                b->options->model, c->model.nparams, mu_plural(c->model.nparams),
                (double)c->model.grad_bytes / 1e6, TURNS * steps, TURNS);
    if (engine->scaled) /* a step computes, and exchanges */
        bench_print(b,
                    "; computing takes %.2f ms, %d times an exchange; about %.0f s in "
                    "all",
                    c->us * 1e-3, COMPUTING,
                    c->us * 1e-6 * (1 + 1.0 / COMPUTING) * WAYS * TURNS *
                        (WARM + steps));
    bench_print(b, "\n");
    for (int k = 0; k < TURNS; k++)
        for (int w = 0; w < WAYS; w++)
            take_turn(c, w, steps, &c->result[w]);
    print_table(c);
    print_spread(c);
    for (int w = 0; w < WAYS; w++)
        rc = rc || c->result[w].wrong;
    if (muster_finalize(c->own) != MUSTER_OK)
        rc = rc ? rc : MUSTER_EINTERNAL;
    bench_model_clear(&c->model);
    free(c->rows);
    free(c->grad);
    free(c);
    return rc;
}
