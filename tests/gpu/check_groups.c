/* SPDX-License-Identifier: BSD-3-Clause */
/* check_groups.c - groups and messages on GPUs
 *
 *   check_groups RANKS [SEEDS [CALLS]]        random programs over groups in GPU memory
 *   check_groups RANKS host [SEEDS [CALLS]]   the same, buffers in host memory
 *   check_groups RANKS large [SEEDS]          random large messages, each byte checked
 *   check_groups RANKS time                   us of messages and of an all-to-all, ours
 *                                             and NCCL's, in turns
 *
 * It tests all of libmuster except PMIx: ranks are forked, the backend is NCCL.
 */
#include <dlfcn.h>
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
    bool times, host, large;
};

static int (*force)(struct mu_backend *b, const char *path);

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

/* ---- Large messages ---- */

#define LARGE_MOST (40 * MIB)
#define LARGE_CALLS 4 /* in a row, or in a graph */

/* In a ring: to the rank `shift` behind this one. */
struct large {
    struct muster *m;
    char *in, *out; /* LARGE_CALLS each */
    size_t bytes[LARGE_CALLS], skew_in, skew_out;
    int shift;
    void *stream;
    int rc;
};

static uint64_t draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

static char *place(char *buffer, size_t skew, int call)
{
    return buffer + (size_t)call * (LARGE_MOST + 64) + skew;
}

static void send_all(void *arg)
{
    struct large *l = arg;
    int me = muster_rank(l->m), n = muster_size(l->m);

    for (int i = 0; i < LARGE_CALLS; i++)
        l->rc |= muster_sendrecv(l->m, place(l->out, l->skew_out, i), l->bytes[i],
                                 (me + l->shift) % n, place(l->in, l->skew_in, i),
                                 l->bytes[i], (me - l->shift + n) % n, MUSTER_BYTE,
                                 l->stream);
}

static void fill(char *p, size_t bytes, uint64_t seed)
{
    for (size_t i = 0; i < bytes; i++)
        p[i] = (char)((i * 2654435761u + seed * 40503u) >> 9);
}

/* What came, and the bytes beside it. */
static int check_large(struct large *l, uint64_t seed, char *host, char *want)
{
    int n = muster_size(l->m), from = (muster_rank(l->m) - l->shift + n) % n;

    for (int i = 0; i < LARGE_CALLS; i++) {
        size_t bytes = l->bytes[i];

        memset(want, 0x5a, bytes + 64);
        fill(want + l->skew_in, bytes, seed * 64 + (uint64_t)(from * LARGE_CALLS + i));
        mu_gpu_get(host, place(l->in, 0, i), bytes + 64);
        for (size_t at = 0; at < bytes + 64; at++)
            if (host[at] != want[at]) {
                printf("# rank %d: byte %zu of %zu from rank %d, message %d, is wrong, "
                       "places %zu and %zu\n",
                       muster_rank(l->m), at, bytes, from, i, l->skew_out, l->skew_in);
                return 1;
            }
    }
    return 0;
}

static int large_seed(struct muster *m, uint64_t seed, struct large *l, char *host,
                      char *want)
{
    static const size_t least[] = { 33 << 10, 100 << 10, 1 << 20, 5 << 20, 20 << 20 };
    uint64_t state = seed;
    bool graph = draw(&state) % 3 == 0;
    int wrong = 0;

    l->shift = 1 + (int)(draw(&state) % (uint64_t)(muster_size(m) - 1));
    l->skew_in = draw(&state) % 2 ? draw(&state) % 64 : 0;
    l->skew_out = draw(&state) % 2 ? draw(&state) % 64 : 0;
    for (int i = 0; i < LARGE_CALLS; i++) {
        size_t from = least[draw(&state) % 5];

        l->bytes[i] = from + draw(&state) % from;
        fill(host, l->bytes[i],
             seed * 64 + (uint64_t)(muster_rank(m) * LARGE_CALLS + i));
        mu_gpu_put(place(l->out, l->skew_out, i), host, l->bytes[i]);
        memset(host, 0x5a, l->bytes[i] + 64);
        mu_gpu_put(place(l->in, 0, i), host, l->bytes[i] + 64);
    }
    l->rc = 0;
    if (graph) {
        void *captured = mu_gpu_capture(send_all, l, 1, l->stream);

        for (int i = 0; i < 2; i++)
            mu_gpu_replay(captured, l->stream);
        mu_gpu_sync(l->stream);
        mu_gpu_capture_free(captured);
    } else {
        send_all(l);
        mu_gpu_sync(l->stream);
    }
    if (l->rc != MUSTER_OK)
        printf("# rank %d: %s\n", muster_rank(m), muster_error(m));
    wrong = l->rc != MUSTER_OK || check_large(l, seed, host, want);
    if (muster_rank(m) == 0 || wrong)
        printf("%s %d - seed %d: large messages%s, the last of %zu bytes\n",
               wrong ? "not ok" : "ok", (int)seed, (int)seed,
               graph ? " in a graph" : "", l->bytes[LARGE_CALLS - 1]);
    fflush(stdout);
    return wrong;
}

static int large(struct muster *m, const struct plan *plan)
{
    struct large l = { .m = m, .stream = mu_gpu_stream() };
    char *host = malloc(LARGE_MOST + 64), *want = malloc(LARGE_MOST + 64);
    int wrong = 0;

    l.in = mu_gpu_alloc(LARGE_CALLS * (LARGE_MOST + 64));
    l.out = mu_gpu_alloc(LARGE_CALLS * (LARGE_MOST + 64));
    for (int seed = 1; seed <= plan->seeds && host && want; seed++)
        wrong += large_seed(m, (uint64_t)seed, &l, host, want);
    free(host);
    free(want);
    mu_gpu_free(l.in);
    mu_gpu_free(l.out);
    return wrong;
}

/* ---- Times ---- */

#define TURNS 3 /* of each path, in turns */
#define REPEATS 5

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

/* Both ways at once. */
static void both(void *arg)
{
    struct shot *s = arg;
    int other = 1 - muster_rank(s->m);

    if (other >= 0)
        s->rc |= muster_sendrecv(s->m, s->out, s->bytes, other, s->in, s->bytes, other,
                                 MUSTER_BYTE, s->stream);
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
    static const char *const paths[] = { "auto", "nccl" };
    double us[2][TURNS * REPEATS];
    int batch = s->bytes >= 16 * MIB ? 4 : 20;

    for (int turn = 0; turn < TURNS; turn++)
        for (int p = 0; p < 2; p++) {
            if (muster_barrier(s->m) != MUSTER_OK)
                exit(1);
            force(s->m->comm.backend, paths[p]);
            if (fn == all_to_all || muster_rank(s->m) < 2)
                mu_gpu_time(fn, s, batch, REPEATS, graph, us[p] + turn * REPEATS,
                            s->stream);
            force(s->m->comm.backend, "auto");
        }
    if (s->rc != MUSTER_OK) {
        fprintf(stderr, "# %s: %s\n", name, muster_error(s->m));
        exit(1);
    }
    if (muster_rank(s->m) != 0)
        return;
    printf("# %-10s %9zu bytes %s", name, s->bytes, graph ? "graph " : "stream");
    for (int p = 0; p < 2; p++)
        printf(" %s %8.2f us", paths[p], median(us[p], TURNS * REPEATS));
    printf(" %6.1f GB/s\n", (double)s->bytes / us[0][TURNS * REPEATS / 2] * 1e-3);
    fflush(stdout);
}

static int times(struct muster *m)
{
    static const size_t sizes[] = { 1024,    64 << 10, 256 << 10, 1 << 20,  4 << 20,
                                    8 << 20, 16 << 20, 32 << 20,  64 << 20, 256 << 20 };
    struct shot s = { .m = m, .stream = mu_gpu_stream() };

    s.in = mu_gpu_alloc(256 * MIB);
    s.out = mu_gpu_alloc(256 * MIB);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        s.bytes = sizes[i];
        for (int graph = 0; graph < 2; graph++) {
            row(&s, "message", message, graph);
            row(&s, "both ways", both, graph);
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
    *(void **)&force = dlsym(m->comm.module, "mu_nccl_force");
    if (!force) {
        fprintf(stderr, "# the backend has no mu_nccl_force\n");
        return 1;
    }
    if ((plan->times   ? times(m)
         : plan->large ? large(m, plan)
                       : programs(m, plan)) != 0)
        return 1;
    return muster_finalize(m) == MUSTER_OK ? 0 : 1;
}

int main(int argc, char **argv)
{
    struct plan plan = { .seeds = 8, .calls = 300 };
    int n, rc;

    if (argc < 2 || argc > 5 || (n = atoi(argv[1])) < 2 || n > 6) {
        fprintf(
            stderr,
            "usage: check_groups RANKS [host|large] [SEEDS [CALLS]] | RANKS time\n");
        return 2;
    }
    plan.times = argc > 2 && strcmp(argv[2], "time") == 0;
    plan.host = argc > 2 && strcmp(argv[2], "host") == 0;
    plan.large = argc > 2 && strcmp(argv[2], "large") == 0;
    argv += plan.host || plan.large;
    argc -= plan.host || plan.large;
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
