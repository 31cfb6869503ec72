/* SPDX-License-Identifier: BSD-3-Clause */
/* check_groups.c - groups and messages on GPUs
 *
 *   check_groups RANKS [SEEDS [CALLS]]        random programs over groups in GPU memory
 *   check_groups RANKS host [SEEDS [CALLS]]   the same, buffers in host memory
 *   check_groups RANKS time                   us of messages and of an all-to-all
 *
 * It tests all of libmuster except PMIx: ranks are forked, the backend is NCCL.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/api/impl.h"
#include "runtime/backend/nccl/bench/gpu.h"
#include "runtime/base/clock.h"
#include "runtime/tools/forked.h"
#include "tests/unit/random_groups.h"

#define MIB ((size_t)1 << 20)

struct plan {
    int seeds, calls;
    bool times, host;
};

static void host_copy(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
}

static void copy(void *to, const void *from, size_t bytes)
{
    mu_gpu_sync(NULL);
    mu_gpu_copy(to, from, bytes, NULL);
    mu_gpu_sync(NULL);
}

static int programs(struct muster *m, const struct plan *plan)
{
    const struct space gpu = { mu_gpu_alloc, mu_gpu_free, copy, false };
    const struct space host = { malloc, free, host_copy, false };
    double since;

    for (int seed = 1; seed <= plan->seeds; seed++) {
        since = mu_clock_s();
        random_groups(m, (uint64_t)seed, plan->calls, plan->host ? &host : &gpu);
        if (muster_rank(m) == 0)
            printf("ok %d - seed %d: groups, and %d calls on %s memory (%.1f s)\n",
                   seed, seed, plan->calls, plan->host ? "host" : "GPU",
                   mu_clock_s() - since);
        fflush(stdout);
    }
    return 0;
}

/* ---- Times ---- */

struct shot {
    struct muster *m;
    char *in, *out;
    size_t bytes;
    void *stream;
    int rc;
};

/* Between ranks 0 and 1: one way. */
static void message(void *arg)
{
    struct shot *s = arg;

    if (muster_rank(s->m) == 0)
        s->rc |= muster_send(s->m, s->out, s->bytes, MUSTER_BYTE, 1, s->stream);
    else if (muster_rank(s->m) == 1)
        s->rc |= muster_recv(s->m, s->in, s->bytes, MUSTER_BYTE, 0, s->stream);
}

static void all_to_all(void *arg)
{
    struct shot *s = arg;
    size_t part = s->bytes / (size_t)muster_size(s->m);

    s->rc |= muster_alltoall(s->m, s->out, s->in, part, MUSTER_BYTE, s->stream);
}

static double median(double *us, int n)
{
    for (int i = 1; i < n; i++)
        for (int k = i; k > 0 && us[k] < us[k - 1]; k--) {
            double t = us[k];

            us[k] = us[k - 1];
            us[k - 1] = t;
        }
    return us[n / 2];
}

static void row(struct shot *s, const char *name, void (*fn)(void *arg), bool graph)
{
    double us[9];
    int batch = s->bytes >= 16 * MIB ? 4 : 20;

    if (muster_barrier(s->m) != MUSTER_OK)
        exit(1);
    if (fn != message || muster_rank(s->m) < 2)
        mu_gpu_time(fn, s, batch, 9, graph, us, s->stream);
    if (s->rc != MUSTER_OK) {
        fprintf(stderr, "# %s: %s\n", name, muster_error(s->m));
        exit(1);
    }
    if (muster_rank(s->m) == 0)
        printf("# %-10s %9zu bytes %s %9.2f us %7.1f GB/s\n", name, s->bytes,
               graph ? "graph " : "stream", median(us, 9),
               (double)s->bytes / us[4] * 1e-3);
}

static int times(struct muster *m)
{
    static const size_t sizes[] = { 1024, 64 << 10, 1 << 20, 16 << 20, 64 << 20 };
    struct shot s = { .m = m, .stream = mu_gpu_stream() };

    s.in = mu_gpu_alloc(64 * MIB);
    s.out = mu_gpu_alloc(64 * MIB);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        s.bytes = sizes[i];
        for (int graph = 0; graph < 2; graph++) {
            row(&s, "message", message, graph);
            row(&s, "all-to-all", all_to_all, graph);
        }
    }
    if (muster_rank(m) == 0)
        printf("ok 1 - times\n");
    mu_gpu_free(s.in);
    mu_gpu_free(s.out);
    return 0;
}

static int body(struct mu_world *world, void *arg)
{
    struct mu_config config = { .backend = MU_BACKEND_NCCL,
                                .init_timeout = 60,
                                .timeout = 30,
                                .log = MU_LOG_WARN };
    const struct plan *plan = arg;
    struct muster *m;

    if (mu_init_world(&m, &config, world) != MUSTER_OK) {
        fprintf(stderr, "# %s\n", muster_error(NULL));
        return 1;
    }
    if ((plan->times ? times(m) : programs(m, plan)) != 0)
        return 1;
    return muster_finalize(m) == MUSTER_OK ? 0 : 1;
}

int main(int argc, char **argv)
{
    struct plan plan = { .seeds = 8, .calls = 300 };
    int n, rc;

    if (argc < 2 || argc > 5 || (n = atoi(argv[1])) < 2 || n > 6) {
        fprintf(stderr,
                "usage: check_groups RANKS [host] [SEEDS [CALLS]] | RANKS time\n");
        return 2;
    }
    plan.times = argc > 2 && strcmp(argv[2], "time") == 0;
    plan.host = argc > 2 && strcmp(argv[2], "host") == 0;
    argv += plan.host;
    argc -= plan.host;
    if (argc > 2 && !plan.times)
        plan.seeds = atoi(argv[2]);
    if (argc > 3)
        plan.calls = atoi(argv[3]);
    rc = mu_forked_run(n, true, 60, body, &plan);
    if (rc != 0)
        printf("not ok - %d ranks: status %d\n", n, rc);
    printf("1..%d\n", plan.times ? 1 : plan.seeds);
    return rc != 0;
}
