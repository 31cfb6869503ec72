/* SPDX-License-Identifier: BSD-3-Clause */
/* check_own.c - collectives of memory that the program allocates and frees by itself
 *
 *   check_own [RANKS [virtual]]
 *
 * The parts of the backend without NCCL, so that ranks may share a GPU: two ranks run
 * on a machine with one GPU too, by turns. The ranks free and allocate at different
 * times, and at the same addresses. All of it with memory of cudaMalloc, then with
 * virtual memory, or with that alone. Lines with # say what has failed, and where.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/backend/nccl/nccl.h"
#include "runtime/base/clock.h"
#include "runtime/core/dtype.h"
#include "tests/gpu/common.h"
#include "tests/gpu/virtual_memory.h"

#define MIB ((size_t)1 << 20)
#define SEGMENT (22 * MIB)
#define PATIENCE 20.0

struct own {
    struct mu_nccl_backend b;
    struct rank r; /* for print0 */
    int tests, failures;
    bool is_virtual; /* the memory */
};

static char *memory_new(const struct own *o, size_t bytes)
{
    return o->is_virtual ? virtual_new(bytes) : mu_gpu_alloc(bytes);
}

static void memory_free(char *p)
{
    if (!virtual_delete(p))
        mu_gpu_free(p);
}

static void need(cudaError_t rc, const char *what)
{
    if (rc == cudaSuccess)
        return;
    fprintf(stderr, "# %s: %s\n", what, cudaGetErrorString(rc));
    exit(1);
}

static void need_ok(int rc, const struct mu_err *err)
{
    if (rc == 0)
        return;
    fprintf(stderr, "# %s\n", err->text);
    exit(1);
}

/* ---- A backend without NCCL ------------------------------------------------------ */

static void on_failed(void *arg, int rank, int status, const char *why)
{
    fprintf(stderr, "# %s\n", why);
    _exit(1);
}

static void open_backend(struct own *o, struct mu_world *world)
{
    static struct mu_log log = { .level = MU_LOG_DEBUG };
    struct mu_nccl_backend *b = &o->b;
    struct mu_nccl_record mine = { .mappable = 0 };
    struct mu_err err = { 0 };
    int devices = 0;

    need(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
    b->device = world->rank % devices;
    need(cudaSetDevice(b->device), "cudaSetDevice");
    b->env = (struct mu_backend_env){ .rank = world->rank,
                                      .size = world->size,
                                      .local_rank = world->local_rank,
                                      .local_size = world->local_size,
                                      .nnodes = world->nnodes,
                                      .node_of = world->node_of,
                                      .host_of = (const char *const *)world->host_of,
                                      .job = world->job,
                                      .map_memory = true,
                                      .init_timeout = 60,
                                      .timeout = 60,
                                      .exchange = world->exchange,
                                      .log = &log,
                                      .failed = on_failed };
    b->forced = MU_ALGO_OWN;
    b->local_ranks = calloc(world->size, sizeof *b->local_ranks);
    b->records = calloc(world->size, sizeof *b->records);
    for (int i = 0; i < world->size; i++)
        b->local_ranks[i] = i;
    need(cudaStreamCreateWithFlags(&b->stream, cudaStreamNonBlocking), "a stream");
    need(mu_kernels_load(), "loading the kernels");
    need_ok(mu_peers_prepare(b, &mine, &err), &err);
    need_ok(mu_peers_collect(b, "record", &mine, sizeof mine, b->records, &err), &err);
    need_ok(mu_peers_connect(b, &err), &err);
    need_ok(mu_own_open(b, &err), &err);
    need_ok(mu_watch_start(b, &err), &err);
    b->reach.limit_ns = 60000000000;
    o->r.world = world;
}

static void fence(struct own *o)
{
    const struct mu_exchange *x = &o->b.env.exchange;
    struct mu_err err = { 0 };

    need_ok(x->fence(x->arg, 60, &err), &err);
}

static void close_backend(struct own *o, struct mu_world *world)
{
    need(cudaStreamSynchronize(o->b.stream), "the last collectives");
    fence(o);
    mu_watch_stop(&o->b);
    mu_own_close(&o->b);
    mu_peers_close(&o->b);
    mu_world_close(world);
}

/* ---- What every rank sees -------------------------------------------------------- */

/* The sum of `value` over the ranks (collective). */
static int over_ranks(struct own *o, int value)
{
    static unsigned number;
    int all[MU_PEERS], sum = 0;
    char key[32];
    struct mu_err err = { 0 };

    snprintf(key, sizeof key, "sum.%u", number++);
    need_ok(mu_peers_collect(&o->b, key, &value, sizeof value, all, &err), &err);
    for (int i = 0; i < o->b.env.size; i++)
        sum += all[i];
    return sum;
}

static void verify(struct own *o, bool ok, const char *what)
{
    int failures = over_ranks(o, !ok);

    o->tests++;
    o->failures += failures > 0;
    print0(&o->r, "%sok %d - %s%s\n", failures ? "not " : "", o->tests,
           o->is_virtual ? "virtual memory: " : "", what);
}

/* All of the ranges that a call on [p, p + bytes) has touched. say: what is not. */
static bool is_direct(struct own *o, const char *p, size_t bytes, bool say)
{
    struct mu_own *own = &o->b.ours;
    const struct mu_own_table *t = &own->table;
    bool direct = true;

    pthread_mutex_lock(&own->work);
    for (size_t at = 0; (direct || say) && at < bytes; at += 2 * MIB) {
        unsigned long long id = virtual_id(p + at);
        int slot = mu_own_find(t, id, p + at, 1);
        uint32_t generation = slot < 0 ? 0 : t->entry[slot].generation;

        if (slot >= 0 && own->mirror->direct[slot] == generation)
            continue;
        direct = false;
        if (!say)
            continue;
        printf("# rank %d: at %p, id %llu: slot %d", o->b.env.rank,
               (const void *)(p + at), id, slot);
        if (slot >= 0)
            printf(", generation %u, announced %u, refused %d", generation,
                   atomic_load(&t->board[t->rank]->slot[slot].generation),
                   own->refused[slot]);
        for (int peer = 0; slot >= 0 && peer < t->n; peer++)
            if (peer != t->rank)
                printf("; rank %d: seen %u, held %d", peer,
                       atomic_load(&t->board[peer]->seen[t->rank][slot]),
                       atomic_load(&t->board[peer]->held[t->rank][slot]));
        printf("\n");
        fflush(stdout);
    }
    pthread_mutex_unlock(&own->work);
    return direct;
}

/* When it has not happened once, the next ones are not waited for as long. */
static bool becomes_direct(struct own *o, const char *p, size_t bytes)
{
    static double patience = PATIENCE;
    double end = mu_clock_s() + patience;

    while (!is_direct(o, p, bytes, false) && mu_clock_s() < end)
        usleep(1000);
    if (is_direct(o, p, bytes, true))
        return true;
    patience = 1;
    return false;
}

/* ---- All-reduces ----------------------------------------------------------------- */

struct shot {
    struct own *o;
    struct mu_coll coll;
};

static void fire(void *arg)
{
    struct shot *s = arg;
    struct mu_err err = { 0 };

    need_ok(mu_nccl_enqueue(&s->o->b, &s->coll, &err), &err);
}

static struct shot shot(struct own *o, const void *send, void *recv, size_t count,
                        enum muster_dtype dtype)
{
    return (struct shot){ o,
                          { .kind = MU_COLL_ALLREDUCE,
                            .dtype = dtype,
                            .op = MUSTER_SUM,
                            .send = send,
                            .recv = recv,
                            .count = count,
                            .scale = 1.0 / o->b.env.size,
                            .what = "an all-reduce" } };
}

/* The element that is wrong, and what would be there if a rank had missed a step. */
static void say_wrong(struct own *o, const struct shot *s, size_t first, uint64_t wrong,
                      uint32_t seed)
{
    const struct mu_coll *c = &s->coll;
    const size_t size = mu_dtype_size(c->dtype);
    char *expected = mu_gpu_alloc(size * (first + 1));
    uint64_t got = 0, would = 0;

    mu_gpu_get(&got, (const char *)c->recv + first * size, size);
    printf("# rank %d: %llu of %zu %s wrong in %p, the first is %zu: %0*llx; by itself",
           o->b.env.rank, (unsigned long long)wrong, c->count, mu_dtype_name(c->dtype),
           c->recv, first, (int)(2 * size), (unsigned long long)got);
    for (int rank = 0; rank < o->b.env.size; rank++) {
        mu_gpu_fill(expected, first + 1, c->dtype, seed, rank, o->b.stream);
        mu_gpu_sync(o->b.stream);
        mu_gpu_get(&would, expected + first * size, size);
        printf(" rank %d has %0*llx", rank, (int)(2 * size), (unsigned long long)would);
    }
    printf("\n");
    fflush(stdout);
    mu_gpu_free(expected);
}

/* Wrong elements; *hash: of the result. */
static uint64_t once(struct own *o, char *send, char *recv, size_t count,
                     enum muster_dtype dtype, uint32_t seed, uint64_t *hash)
{
    struct shot s = shot(o, send, recv, count, dtype);
    size_t bytes = count * mu_dtype_size(dtype);
    size_t first = 0;
    uint64_t wrong;

    mu_gpu_fill(send, count, dtype, seed, o->b.env.rank, o->b.stream);
    fire(&s);
    wrong = mu_gpu_wrong(recv, count, dtype, seed, o->b.env.size, MUSTER_SUM,
                         s.coll.scale, 0, &first, o->b.stream);
    if (wrong)
        say_wrong(o, &s, first, wrong, seed);
    *hash = mu_gpu_hash(recv, bytes, o->b.stream);
    return wrong;
}

static const size_t counts[] = { 37, 1000, 65537, 500009, 3 * 1000 * 1000 + 17 };

/* Staged at first, direct later: the same bits. */
static void both_ways(struct own *o, enum muster_dtype dtype)
{
    const size_t size = mu_dtype_size(dtype);
    char text[96];

    for (int place = 0; place < 2; place++) {
        bool right = true, same = true, direct = true;

        for (unsigned i = 0; i < sizeof counts / sizeof counts[0]; i++) {
            char *p = memory_new(o, SEGMENT + MIB),
                 *q = place ? memory_new(o, SEGMENT + MIB) : p;
            uint64_t staged, mapped;

            right &= once(o, p, q, counts[i], dtype, i + 1, &staged) == 0;
            direct &= becomes_direct(o, p, counts[i] * size) &&
                      becomes_direct(o, q, counts[i] * size);
            fence(o);
            right &= once(o, p, q, counts[i], dtype, i + 1, &mapped) == 0;
            same &= staged == mapped;
            /* without alignment: staged again */
            right &= once(o, p + 8, q + 8, counts[i], dtype, i + 1, &mapped) == 0;
            same &= staged == mapped;
            fence(o);
            memory_free(p);
            if (place)
                memory_free(q);
        }
        if (!right || !same || !direct)
            printf("# rank %d:%s%s%s\n", o->b.env.rank, right ? "" : " wrong",
                   same ? "" : ", other bits", direct ? "" : ", not direct");
        fflush(stdout);
        snprintf(text, sizeof text,
                 "%s, %s: right, and the same bits staged and direct",
                 mu_dtype_name(dtype), place ? "out of place" : "in place");
        verify(o, right && same && direct, text);
    }
}

/* ---- Reduce-scatter, all-gather, broadcast --------------------------------------- */

static void launch(struct own *o, const struct mu_work *w, bool one_shot)
{
    need(one_shot ? mu_one_shot(&o->b.reach, w, 4, 512, o->b.stream)
                  : mu_own_launch(&o->b, w, 4, false),
         "a launch");
}

/* An all-reduce in two halves, p to q, then a broadcast in q. Wrong elements; *hash: of
 * the sums.
 */
static uint64_t in_halves(struct own *o, char *p, char *q, size_t part,
                          enum muster_dtype dtype, uint32_t seed, bool one_shot,
                          uint64_t *hash)
{
    const int rank = o->b.env.rank, n = o->b.env.size, root = (int)seed % n;
    const size_t bytes = part * mu_dtype_size(dtype), count = part * (size_t)n;
    char *mine = q + bytes * (size_t)rank;
    const struct mu_work scatter = { .shape = MU_REDUCE_SCATTER,
                                     .send = p,
                                     .recv = mine,
                                     .count = part,
                                     .dtype = dtype,
                                     .op = MUSTER_SUM,
                                     .scale = 1.0 / n },
                         gather = { .shape = MU_ALLGATHER,
                                    .send = mine,
                                    .recv = q,
                                    .count = bytes },
                         broadcast = { .shape = MU_BROADCAST,
                                       .root = root,
                                       .send = q,
                                       .recv = q,
                                       .count = bytes * (size_t)n };
    uint64_t wrong;

    mu_gpu_fill(p, count, dtype, seed, rank, o->b.stream);
    launch(o, &scatter, one_shot);
    launch(o, &gather, one_shot);
    wrong = mu_gpu_wrong(q, count, dtype, seed, n, MUSTER_SUM, scatter.scale, 0, NULL,
                         o->b.stream);
    *hash = mu_gpu_hash(q, bytes * (size_t)n, o->b.stream);
    mu_gpu_fill(q, count, dtype, seed, rank, o->b.stream);
    launch(o, &broadcast, one_shot);
    return wrong + mu_gpu_differs(q, count, dtype, seed, root, 0, o->b.stream);
}

/* Staged at first, direct later, staged without alignment, and by one-shot. */
static void halves(struct own *o, enum muster_dtype dtype)
{
    static const size_t parts[] = { 16, 4096, 65552, 300000 };
    enum { STAGED, DIRECT, UNALIGNED, ONE_SHOT, TURNS };
    char text[128];

    for (int place = 0; place < 2; place++) {
        bool right = true, same = true, direct = true;

        for (unsigned i = 0; i < sizeof parts / sizeof parts[0]; i++) {
            size_t count = parts[i] * (size_t)o->b.env.size;
            size_t bytes = count * mu_dtype_size(dtype);
            char *p = memory_new(o, SEGMENT), *q = place ? memory_new(o, SEGMENT) : p;
            uint64_t whole, got;

            for (int turn = STAGED; turn < (i < 2 ? TURNS : ONE_SHOT); turn++) {
                size_t shift = turn == UNALIGNED ? 8 : 0;

                right &= in_halves(o, p + shift, q + shift, parts[i], dtype, i + 1,
                                   turn == ONE_SHOT, &got) == 0;
                right &= once(o, p, q, count, dtype, i + 1, &whole) == 0;
                same &= got == whole;
                if (turn == STAGED)
                    direct &=
                        becomes_direct(o, p, bytes) && becomes_direct(o, q, bytes);
                fence(o);
            }
            memory_free(p);
            if (place)
                memory_free(q);
        }
        snprintf(text, sizeof text,
                 "%s, %s: the halves have the bits of an all-reduce; a broadcast",
                 mu_dtype_name(dtype), place ? "out of place" : "in place");
        verify(o, right && same && direct, text);
    }
}

/* Memory at the address that was freed just now, or else anywhere. */
static char *allocate_again(const struct own *o, const char *freed)
{
    enum { TRIES = 8 };
    char *p[TRIES];
    int n = 0;

    do
        p[n] = memory_new(o, SEGMENT);
    while (p[n++] != freed && n < TRIES);
    for (int i = 0; i < n - 1; i++)
        memory_free(p[i]);
    return p[n - 1];
}

/* Rank 0 frees before every second call, rank 1 before every third, and so on. The
 * peers have mapped what is freed, so an old mapping would read old bytes.
 */
static void same_address(struct own *o)
{
    char *p = memory_new(o, SEGMENT), *before;
    unsigned long long id;
    int same_id = 0;
    int again = 0, ready = 0, wrong = 0;
    uint64_t hash;

    for (int i = 0; i < 60; i++) {
        if (i % (2 + o->b.env.rank) == 0) {
            before = p;
            id = virtual_id(p);
            memory_free(p);
            p = allocate_again(o, before);
            again += p == before;
            same_id += p == before && id == virtual_id(p);
        }
        wrong += once(o, p, p, 100003, MUSTER_F32, (uint32_t)i, &hash) != 0;
        /* Some calls come before the mapping, some after it. A peer that has launched
         * the next one answers behind it.
         */
        if (i % 3 == 0) {
            ready += becomes_direct(o, p, 400000);
            fence(o);
        }
    }
    again = over_ranks(o, again);
    print0(&o->r, "# %d times an address was allocated again\n", again);
    verify(o, again > 0, "addresses are allocated again");
    verify(o, same_id == 0, "other memory at an address has another buffer id");
    verify(o, ready == 20, "new allocations become direct");
    verify(o, wrong == 0, "60 calls, memory freed and allocated between them: right");
    memory_free(p);
}

/* The mapping of a peer keeps freed memory: it must be given back soon. */
static void memory_returns(struct own *o)
{
    size_t before, after = 0;
    double end;
    uint64_t hash;
    char *p;

    fence(o);
    usleep(300000); /* what was freed above */
    fence(o);
    before = mu_gpu_free_bytes();
    fence(o);
    p = memory_new(o, 400 * MIB);
    once(o, p, p, 1000, MUSTER_F32, 1, &hash);
    becomes_direct(o, p, 4000);
    fence(o);
    memory_free(p);
    end = mu_clock_s() + PATIENCE;
    while ((after = mu_gpu_free_bytes()) + 16 * MIB < before && mu_clock_s() < end)
        usleep(1000);
    print0(&o->r, "# given back after %.0f ms\n",
           (mu_clock_s() - end + PATIENCE) * 1e3);
    verify(o, after + 16 * MIB >= before, "freed memory is given back");
}

/* One replay; wrong elements. */
static uint64_t replay(struct own *o, void *graph, const struct shot *s, uint32_t seed)
{
    const struct mu_coll *c = &s->coll;

    mu_gpu_fill(c->recv, c->count, c->dtype, seed, o->b.env.rank, o->b.stream);
    mu_gpu_replay(graph, o->b.stream);
    return mu_gpu_wrong(c->recv, c->count, c->dtype, seed, o->b.env.size, MUSTER_SUM,
                        c->scale, 0, NULL, o->b.stream);
}

/* A launch captured before the peers have mapped the memory is direct afterwards; on
 * virtual memory it is staged, whatever is mapped there.
 */
static void graph(struct own *o)
{
    char *p = memory_new(o, SEGMENT);
    struct shot s = shot(o, p, p, 300007, MUSTER_F32);
    void *captured = mu_gpu_capture(fire, &s, 1, o->b.stream);
    bool there = true;
    uint64_t wrong = 0, hash;

    for (uint32_t i = 0; i < 20; i++) {
        wrong += replay(o, captured, &s, i);
        if (i == 4) {
            if (o->is_virtual) /* a captured call alone is staged for ever */
                once(o, p, p, s.coll.count, MUSTER_F32, 1, &hash);
            wrong += !becomes_direct(o, p, s.coll.count * 4);
            fence(o);
        }
    }
    verify(o, wrong == 0, "a captured call, before and after the mapping: right");
    fence(o);
    for (uint32_t i = 0; o->is_virtual && i < 20; i++) {
        memory_free(p);
        there &= memory_new(o, SEGMENT) == p;
        wrong += replay(o, captured, &s, i);
    }
    if (o->is_virtual)
        verify(o, there && wrong == 0,
               "a captured call, and other memory at its addresses: right");
    fence(o);
    mu_gpu_capture_free(captured);
    memory_free(p);
}

/* Memory that CUDA cannot share by handle. */
static void other_memory(struct own *o)
{
    char *pool = NULL, *managed = NULL;
    uint64_t hash;
    int wrong = 0;

    need(cudaMallocAsync((void **)&pool, SEGMENT, o->b.stream), "cudaMallocAsync");
    need(cudaMallocManaged((void **)&managed, SEGMENT, cudaMemAttachGlobal),
         "cudaMallocManaged");
    for (uint32_t i = 0; i < 4; i++) {
        wrong += once(o, pool, pool, 1000003, MUSTER_BF16, i, &hash) != 0;
        wrong += once(o, managed, managed, 1000003, MUSTER_F32, i, &hash) != 0;
        usleep(20000);
    }
    verify(o, wrong == 0, "memory of a pool, and managed memory: right");
    fence(o);
    cudaFreeAsync(pool, o->b.stream);
    cudaFree(managed);
}

/* Host time of a call, in us: by turns on n allocations. */
static double call_time(struct own *o, char *const *p, int n)
{
    enum { CALLS = 400 };
    double from, us;

    fence(o);
    mu_gpu_sync(o->b.stream);
    from = mu_clock_s();
    for (int i = 0; i < CALLS; i++) {
        struct shot s = shot(o, p[i % n], p[i % n], 256, MUSTER_F32);

        fire(&s);
    }
    us = (mu_clock_s() - from) * 1e6 / CALLS;
    mu_gpu_sync(o->b.stream);
    return us;
}

static void costs(struct own *o)
{
    enum { SEGMENTS = 200 };
    char *p[SEGMENTS], *control = mu_parts_of(&o->b, o->b.env.rank);
    uint64_t hash;
    double one, all, none;

    for (int i = 0; i < SEGMENTS; i++) {
        p[i] = memory_new(o, 2 * MIB);
        once(o, p[i], p[i], 256, MUSTER_F32, 1, &hash);
    }
    for (int i = 0; i < SEGMENTS; i++)
        becomes_direct(o, p[i], 1024);
    none = call_time(o, &control, 1);
    one = call_time(o, p, 1);
    all = call_time(o, p, SEGMENTS);
    print0(&o->r,
           "# host time of a call, %d segments mapped: %.2f us on one, %.2f us on all "
           "in turn, %.2f us without a look-up\n",
           SEGMENTS, one, all, none);
    fence(o);
    for (int i = 0; i < SEGMENTS; i++)
        memory_free(p[i]);
}

/* ---- Measurements beside NCCL ---------------------------------------------------- */

/* In NCCL's place: Muster's own, by the way that the size has. */
static int stand_in(void *arg, const struct mu_coll *c)
{
    struct own *o = arg;
    struct mu_err err = { 0 };
    bool carried = false,
         moves = c->kind == MU_COLL_ALLGATHER || c->kind == MU_COLL_BROADCAST;
    bool large = c->count * (moves ? 1 : 4) > MIB / 2;

    need_ok(mu_nccl_carry((struct mu_backend *)&o->b, c, large, &carried, &err), &err);
    return !carried;
}

static void measured(struct own *o)
{
    enum { KINDS = 4, SIZES = 4 };
    static const size_t bytes[SIZES] = { 4096, MIB / 2, 4 * MIB, 64 * MIB };
    struct mu_trial t[KINDS * SIZES * 2];
    struct mu_err err = { 0 };
    double from = mu_clock_s();
    int n = 0, wrong = 0;

    need_ok(mu_carry_open(&o->b, &err), &err);
    for (int kind = 0; kind < KINDS; kind++)
        for (int size = 0; size < SIZES; size++)
            for (int graph = 0; graph < 2; graph++)
                t[n++] = (struct mu_trial){ .kind = (enum mu_coll_kind)kind,
                                            .mapped = size > 1,
                                            .bytes = bytes[size],
                                            .graph = graph };
    need_ok(mu_nccl_trials((struct mu_backend *)&o->b, t, n, stand_in, o, &err), &err);
    print0(&o->r, "# measured in %.2f s\n", mu_clock_s() - from);
    for (int i = 0; i < n; i++) {
        wrong += t[i].us <= 0 || t[i].nccl_us <= 0 || t[i].us > 100 * t[i].nccl_us ||
                 t[i].nccl_us > 100 * t[i].us;
        print0(&o->r, "# kind %d, %zu bytes, %s: %.1f and %.1f us\n", (int)t[i].kind,
               t[i].bytes, t[i].graph ? "graph" : "stream", (double)t[i].us,
               (double)t[i].nccl_us);
    }
    verify(o, wrong == 0, "each size has times of both, and of one magnitude");
    mu_carry_close(&o->b);
}

static void every_way(struct own *o)
{
    for (int d = MUSTER_F32; d <= MUSTER_BF16; d++)
        both_ways(o, (enum muster_dtype)d);
    for (int d = MUSTER_F32; d <= MUSTER_BF16; d++)
        halves(o, (enum muster_dtype)d);
    same_address(o);
    memory_returns(o);
    graph(o);
    costs(o);
}

static int body(struct mu_world *world, void *arg)
{
    const bool *virtual_only = arg;
    struct own o = { .tests = 0 };

    open_backend(&o, world);
    verify(&o, o.b.ours.open, "the ranks can share the program's memory");
    if (o.b.ours.open) {
        if (!*virtual_only) {
            every_way(&o);
            other_memory(&o);
            measured(&o);
        }
        verify(&o, o.b.ours.virtual_memory.usable,
               "the ranks can share virtual memory");
        o.is_virtual = o.b.ours.virtual_memory.usable;
    }
    if (o.is_virtual)
        every_way(&o);
    print0(&o.r, "1..%d\n", o.tests);
    close_backend(&o, world);
    return o.failures ? 1 : 0;
}

int main(int argc, char **argv)
{
    int n = ranks_wanted(argc, argv, 1);
    bool virtual_only = argc > 2 && strcmp(argv[2], "virtual") == 0;

    return mu_forked_run(n < 2 ? 2 : n, false, 20, body, &virtual_only);
}
