/* SPDX-License-Identifier: BSD-3-Clause */
/* test_state.c - what compression left goes into checkpoints, and the run goes on as if
 * it had not stopped
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "runtime/ddp/ddp.h"
#include "tests/unit/folder.h"
#include "tests/unit/forked.h"

/* Gradients of full rank, others in each step. 3 is where the run stops. */
enum { ROWS = 20, COLS = 40, N = 3, STEPS = 7, STOP = 3, ITEMS = 8 };
static const size_t count[N] = { ROWS * COLS, 13, ROWS *COLS };
static const size_t rows[N] = { ROWS, 0, ROWS };

struct run {
    const char *name;
    struct muster_hook hook;
    int nitems, shard, frozen;
    int elsewhere; /* 1: and saved by a copy, 2: and lazily */
    char folder[64];
};

#define INT8                                                                           \
    {                                                                                  \
        .compress = MUSTER_COMPRESS_INT8                                               \
    }
#define POWERSGD                                                                       \
    {                                                                                  \
        .compress = MUSTER_COMPRESS_POWERSGD, .rank = 2, .rows = rows                  \
    }
static struct run runs[] = {
    { "int8", INT8, 3, 0, 0, 0, "" },
    { "int8 and ZeRO-1", INT8, 3, 1, 0, 0, "" },
    { "int8 and a frozen one", INT8, 2, 0, 1, 0, "" },
    { "int8 elsewhere", INT8, 3, 0, 0, 1, "" },
    { "powersgd:2 elsewhere", POWERSGD, 4, 0, 0, 2, "" },
    { "powersgd:2", POWERSGD, 4, 0, 0, 0, "" },
    { "bf16", { .compress = MUSTER_COMPRESS_BF16 }, 0, 0, 0, 0, "" },
};

/* The host backend, but what it gives out counts as memory of a GPU. */
static struct {
    char *from, *to;
} given[64];
static int ngiven;
static uint64_t to_host, from_host;

static void *gpu_alloc(struct mu_backend *b, size_t bytes, struct mu_err *err)
{
    char *p = mu_backend_host.alloc(b, bytes, err);

    given[ngiven].from = p;
    given[ngiven++].to = p + bytes;
    return p;
}

static void *gpu_lend(struct mu_backend *b, size_t bytes, void *stream,
                      struct mu_err *err)
{
    return gpu_alloc(b, bytes, err);
}

/* The backend frees it when it closes. */
static void gpu_take_back(struct mu_backend *b, void *p, void *stream)
{
}

static bool gpu_is_host(const struct mu_backend *b, const void *p)
{
    for (int i = 0; i < ngiven; i++)
        if ((const char *)p >= given[i].from && (const char *)p < given[i].to)
            return false;
    return true;
}

static int gpu_bring(struct mu_backend *b, void *dst, const void *src, size_t bytes,
                     struct mu_err *err)
{
    *(gpu_is_host(b, dst) ? &to_host : &from_host) += bytes;
    memcpy(dst, src, bytes);
    return 0;
}

/* What collectives take of the host's goes through its own, as on a GPU. */
static void keep_on_a_gpu(struct muster *m)
{
    struct mu_backend_ops *ops = forked_elsewhere(m);

    ops->alloc = gpu_alloc;
    ops->alloc_private = gpu_lend;
    ops->free_private = gpu_take_back;
    ops->is_host = gpu_is_host;
    ops->copy_any = gpu_bring;
}

static struct muster_ddp *make(struct muster *m, const struct run *run, bool plain)
{
    static const char *const names[N] = { "w0", "b1", "w2" };
    static float data[ROWS * COLS];
    const struct muster_ddp_options o = { .shard = run->shard,
                                          .hook = plain ? NULL : &run->hook };
    struct muster_param p[N];
    struct muster_ddp *ddp;

    for (int i = 0; i < N; i++)
        p[i] = (struct muster_param){ .name = names[i],
                                      .count = count[i],
                                      .data = data,
                                      .frozen = run->frozen && i == 0 };
    RANK_OK(muster_ddp_create(m, p, N, &o, &ddp));
    return ddp;
}

/* One step; the bits of all means of this rank in a hash. */
static uint64_t step_hash(struct muster *m, struct muster_ddp *ddp, int step)
{
    uint64_t hash = 0;
    struct muster_shard part;

    for (int i = N - 1; i >= 0; i--) {
        float *g = muster_ddp_grad(ddp, i);

        for (size_t k = 0; g && k < count[i]; k++)
            g[k] = sinf((float)(k * k) + (float)(muster_rank(m) * 10 + step));
        if (g)
            RANK_OK(muster_ddp_grad_ready(ddp, i, NULL));
    }
    RANK_OK(muster_ddp_sync(ddp, NULL));
    for (int i = 0; i < N; i++)
        if (muster_ddp_grad(ddp, i) && !ddp->shard)
            hash = mu_hash(hash, muster_ddp_grad(ddp, i), count[i] * sizeof(float));
    for (int b = 0; ddp->shard && b < muster_ddp_buckets(ddp); b++) {
        RANK_OK(muster_ddp_shard(ddp, b, &part));
        hash = mu_hash(hash, part.grad, part.count * sizeof(float));
    }
    return hash;
}

static struct muster_checkpoint *open_folder(struct muster *m, const struct run *run)
{
    static const enum muster_checkpoint_mode modes[] = { MUSTER_CHECKPOINT_WAIT,
                                                         MUSTER_CHECKPOINT_COPY,
                                                         MUSTER_CHECKPOINT_LAZY };
    const struct muster_checkpoint_options o = { .sharded = 1,
                                                 .mode = modes[run->elsewhere] };
    struct muster_checkpoint *c;

    RANK_OK(muster_checkpoint_open(m, run->folder, &o, &c));
    return c;
}

/* All steps in one go, and the same with a stop: another ddp takes up what the first
 * left.
 */
static int resume_body(struct muster *m, int rank, void *arg)
{
    const struct run *run = arg;
    struct muster_ddp *ddp, *again;
    struct muster_checkpoint *c;
    struct muster_item items[ITEMS + 1];
    char mine[16] = "";
    const struct muster_item beside = { .name = "mine", .data = mine, .bytes = 16 };
    uint64_t undisturbed[STEPS], step, own = 0, all = 0;
    bool told = false;
    int found, n;

    if (run->elsewhere)
        keep_on_a_gpu(m);
    ddp = make(m, run, false);
    c = open_folder(m, run);
    n = muster_ddp_state(ddp, items, ITEMS);
    RANK_CHECK(n == run->nitems && muster_ddp_state(ddp, items, 0) == n);
    items[n] = beside;
    for (int s = 0; s < STEPS; s++) {
        if (s == STOP)
            RANK_OK(muster_checkpoint_save(c, STOP, items, n + 1));
        muster_checkpoint_copied(c);
        memset(mine, s < STOP ? 'a' + s : 'x', sizeof mine - 1);
        undisturbed[s] = step_hash(m, ddp, s);
    }
    muster_ddp_destroy(ddp);
    m->comm.ddps = 0; /* as in a new process */

    again = make(m, run, false);
    for (int s = STOP; s < STEPS; s++) /* without what was left it is another mean */
        told |= step_hash(m, again, s) != undisturbed[s];
    RANK_CHECK(told == (run->nitems > 0));
    muster_ddp_destroy(again);
    m->comm.ddps = 0;

    again = make(m, run, false);
    RANK_CHECK(muster_ddp_state(again, items, ITEMS) == n);
    items[n] = beside;
    RANK_OK(muster_checkpoint_load(c, items, n + 1, &step, &found));
    RANK_CHECK(found && step == STOP && strspn(mine, "c") == sizeof mine - 1);
    for (int s = STOP; s < STEPS; s++)
        RANK_CHECK(step_hash(m, again, s) == undisturbed[s]);
    for (int i = 0; i < n; i++) {
        own += items[i].total ? items[i].bytes : 0; /* saved whole, others in parts */
        all += items[i].bytes;
    }
    RANK_CHECK(!run->elsewhere || (to_host >= own && to_host <= all));
    RANK_CHECK(!run->elsewhere || from_host == all);
    muster_ddp_destroy(again);
    RANK_OK(muster_checkpoint_close(c));
    return muster_finalize(m);
}

/* Another world, or no compression: what is left is left out, the rest is read. */
static int elsewhere_body(struct muster *m, int rank, void *arg)
{
    const struct run *run = arg;
    char mine[16];
    const struct muster_item beside = { .name = "mine", .data = mine, .bytes = 16 };
    struct muster_item items[ITEMS + 1] = { { 0 } };
    struct muster_ddp *ddp[2] = { make(m, run, false), make(m, run, true) };
    struct muster_checkpoint *c = open_folder(m, run);
    uint64_t step = 0;
    int found = 0, n;

    for (int plain = 0; plain < 2; plain++) {
        n = muster_ddp_state(ddp[plain], items, ITEMS);
        RANK_CHECK(n == (plain ? 0 : run->nitems));
        items[n] = beside;
        RANK_OK(muster_checkpoint_load(c, items, n + 1, &step, &found));
        RANK_CHECK(found && step == STOP);
        for (int i = 0; i < n && items[i].total; i++)
            for (size_t k = 0; k < items[i].bytes / sizeof(float); k++)
                RANK_CHECK(((float *)items[i].data)[k] == 0);
        step_hash(m, ddp[plain], 0);
    }
    muster_ddp_destroy(ddp[1]);
    muster_ddp_destroy(ddp[0]);
    RANK_OK(muster_checkpoint_close(c));
    return muster_finalize(m);
}

/* One file cannot hold what each rank has of its own. */
static int one_file_body(struct muster *m, int rank, void *arg)
{
    const struct run *run = arg;
    struct muster_item items[ITEMS];
    struct muster_ddp *ddp = make(m, run, false);
    struct muster_checkpoint *c;
    int n = muster_ddp_state(ddp, items, ITEMS);

    RANK_OK(muster_checkpoint_open(m, run->folder, NULL, &c));
    RANK_CHECK(muster_checkpoint_save(c, 9, items, n) == MUSTER_EUSAGE);
    RANK_CHECK(strstr(muster_error(m), "set the option sharded"));
    items[0].name = "muster.other";
    RANK_CHECK(muster_checkpoint_save(c, 9, items, n) == MUSTER_EUSAGE);
    muster_ddp_destroy(ddp);
    muster_checkpoint_close(c);
    return muster_finalize(m);
}

static char *in_world(int size, int (*body)(struct muster *m, int rank, void *arg),
                      struct run *run)
{
    struct forked_world w = {
        .size = size, .nodes = 2, .first_bucket = 256, .bucket_cap = 512
    };
    struct forked_result r;
    char *text;

    forked_run(&w, body, run, 60, &r);
    for (int k = 0; k < size; k++)
        if (r.status[k] != 0)
            fail_msg("%s: rank %d ended with %d\n%s", run->name, k, r.status[k],
                     r.text);
    text = strdup(r.text);
    forked_clear(&r);
    return text;
}

static void what_compression_left_is_taken_up_bit_for_bit(void **state)
{
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        snprintf(runs[i].folder, sizeof runs[i].folder, "/tmp/mu-state.XXXXXX");
        assert_non_null(mkdtemp(runs[i].folder));
        free(in_world(3, resume_body, &runs[i]));
        if (i == 0) {
            char *text = in_world(2, elsewhere_body, &runs[i]);

            assert_non_null(strstr(
                text, "checkpoint of step 3 has no compression state of 2 ranks"));
            free(text);
            free(in_world(2, one_file_body, &runs[i]));
        }
        assert_int_equal(folder_remove(runs[i].folder), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_compression_left_is_taken_up_bit_for_bit),
    };

    return cmocka_run_group_tests_name("state", tests, NULL, NULL);
}
