/* SPDX-License-Identifier: BSD-3-Clause */
/* check_one_gpu.c - the kernels of all-reduces: all ranks in one process on one GPU
 *
 *   check_one_gpu [SEEDS]
 *
 * Each rank has a stream, flags and areas of its own, so their kernels run side by side
 * as on several GPUs. Sizes, types, places and alignments are random, and each call is
 * checked against float64. It tests no mapping and no link.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/backend/nccl/kernels/kernels.h"
#include "runtime/core/convert.h"
#include "runtime/core/dtype.h"

#define PACKETS ((size_t)1 << 20)
#define LINES ((size_t)8 << 20)
#define ROOM ((size_t)9 << 20) /* bytes of a rank's memory from muster_alloc */
#define MOST ((size_t)2 << 20) /* bytes of a call */
#define CALLS 60
#define BLOCKS 8

enum way { ONE_SHOT, PULL, RELAY, WAYS };
static const char *const names[] = { "one-shot", "pull", "relay" };
static const enum muster_dtype types[] = { MUSTER_F32, MUSTER_F64, MUSTER_F16,
                                           MUSTER_BF16 };

struct rank {
    struct mu_reach reach;
    cudaStream_t stream;
    char *memory; /* of this rank; the others see it at the same address */
    char *before; /* host: what the memory holds */
    size_t at;    /* of the call's buffer */
};

struct call {
    enum way way;
    enum muster_dtype dtype;
    size_t count;
    double scale;
};

static void must(cudaError_t rc, const char *what)
{
    if (rc == cudaSuccess)
        return;
    printf("Bail out! %s: %s\n", what, cudaGetErrorString(rc));
    exit(1);
}

static void *zeroed(size_t bytes)
{
    void *p;

    must(cudaMalloc(&p, bytes), "cudaMalloc");
    must(cudaMemset(p, 0, bytes), "cudaMemset");
    return p;
}

static void open_ranks(struct rank *ranks, int n)
{
    struct mu_host_words *words;

    must(cudaHostAlloc((void **)&words, sizeof *words, cudaHostAllocMapped), "words");
    memset(words, 0, sizeof *words);
    for (int i = 0; i < n; i++) {
        struct mu_reach *r = &ranks[i].reach;

        *r = (struct mu_reach){ .rank = i,
                                .n = n,
                                .packet_slot = PACKETS / 2 / n / 128 * 128,
                                .lines_half = LINES / 2,
                                .limit_ns = UINT64_C(10000000000) };
        must(cudaHostGetDevicePointer((void **)&r->words, words, 0), "words");
        r->flags[i] = zeroed(sizeof *r->flags[i]);
        r->packets[i] = zeroed(PACKETS);
        r->lines[i] = zeroed(LINES);
        ranks[i].memory = zeroed(ROOM);
        ranks[i].before = malloc(ROOM);
        must(cudaStreamCreateWithFlags(&ranks[i].stream, cudaStreamNonBlocking),
             "stream");
    }
    for (int i = 0; i < n; i++)
        for (int p = 0; p < n; p++) {
            ranks[i].reach.flags[p] = ranks[p].reach.flags[p];
            ranks[i].reach.packets[p] = ranks[p].reach.packets[p];
            ranks[i].reach.lines[p] = ranks[p].reach.lines[p];
        }
}

static uint64_t draw(uint64_t *state, uint64_t below)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (*state >> 33) % below;
}

static double get(const struct call *c, const char *buffer, size_t i)
{
    switch (c->dtype) {
    case MUSTER_F32:
        return ((const float *)buffer)[i];
    case MUSTER_F64:
        return ((const double *)buffer)[i];
    case MUSTER_F16:
        return mu_from_f16(((const uint16_t *)buffer)[i]);
    default:
        return mu_from_bf16(((const uint16_t *)buffer)[i]);
    }
}

/* Small integers: sums of eight are exact in each type. */
static void put(const struct call *c, char *buffer, size_t i, int value)
{
    switch (c->dtype) {
    case MUSTER_F32:
        ((float *)buffer)[i] = (float)value;
        break;
    case MUSTER_F64:
        ((double *)buffer)[i] = value;
        break;
    case MUSTER_F16:
        ((uint16_t *)buffer)[i] = mu_to_f16((float)value);
        break;
    default:
        ((uint16_t *)buffer)[i] = mu_to_bf16((float)value);
    }
}

static int element(int rank, size_t i)
{
    return (int)((i * 7 + (size_t)rank * 3) % 13) - 6;
}

static cudaError_t launch(const struct rank *ranks, int i, const struct call *c)
{
    const struct rank *r = &ranks[i];
    char *buffer = r->memory + r->at;
    const struct mu_work sum = { .send = buffer,
                                 .recv = buffer,
                                 .count = c->count,
                                 .dtype = c->dtype,
                                 .scale = c->scale };
    struct mu_places places;

    switch (c->way) {
    case ONE_SHOT:
        return mu_one_shot(&r->reach, &sum, BLOCKS, 512, r->stream);
    case RELAY:
        return mu_relay(&r->reach, buffer, buffer, c->count, c->dtype, c->scale, BLOCKS,
                        r->stream);
    default:
        memset(&places, 0, sizeof places);
        /* The same place of each rank's memory; all map it at its own address. */
        for (int p = 0; p < r->reach.n; p++) {
            places.peer[p] = ranks[p].memory + r->at;
            places.there[p] = buffer;
        }
        return mu_pull(&r->reach, &places, c->count, c->dtype, c->scale, BLOCKS,
                       r->stream);
    }
}

/* Wrong bytes of the rank's whole memory: the sum where the buffer is, the rest as
 * before.
 */
static size_t wrong(const struct rank *r, const struct call *c, char *got)
{
    size_t bytes = c->count * mu_dtype_size(c->dtype), bad = 0;

    must(cudaMemcpy(got, r->memory, ROOM, cudaMemcpyDefault), "copy");
    for (size_t i = 0; i < c->count; i++) {
        double sum = 0;

        for (int p = 0; p < r->reach.n; p++)
            sum += element(p, i);
        bad += get(c, got + r->at, i) != sum * c->scale;
    }
    bad += memcmp(got, r->before, r->at) != 0;
    bad += memcmp(got + r->at + bytes, r->before + r->at + bytes,
                  ROOM - r->at - bytes) != 0;
    return bad;
}

/* Of all ranks the same place, or of each one its own. */
static void draw_call(uint64_t *state, struct rank *ranks, int n, struct call *c)
{
    size_t size, most, same;
    uint64_t apart = draw(state, 3);

    c->way = (enum way)draw(state, WAYS);
    c->dtype = types[draw(state, 4)];
    c->scale = draw(state, 2) ? 1 : 0.5;
    size = mu_dtype_size(c->dtype);
    most = c->way == ONE_SHOT ? mu_one_shot_limit(&ranks[0].reach, size) : MOST;
    do
        c->count = 1 + draw(state, draw(state, 2) ? most / size : 4000);
    while (c->count * size > most ||
           (c->way == RELAY && !mu_relay_fits(&ranks[0].reach, c->count * size)));
    same = draw(state, (ROOM - MOST) / size) * size;
    for (int i = 0; i < n; i++)
        ranks[i].at = apart == 0   ? same / 16 * 16
                      : apart == 1 ? same
                                   : draw(state, (ROOM - MOST) / size) * size;
}

static bool run_call(struct rank *ranks, int n, const struct call *c, char *got)
{
    for (int i = 0; i < n; i++) {
        memset(ranks[i].before, 0x5a, ROOM);
        for (size_t k = 0; k < c->count; k++)
            put(c, ranks[i].before + ranks[i].at, k, element(i, k));
        must(cudaMemcpy(ranks[i].memory, ranks[i].before, ROOM, cudaMemcpyDefault),
             "copy");
    }
    must(cudaDeviceSynchronize(), "copies");
    for (int i = 0; i < n; i++)
        must(launch(ranks, i, c), names[c->way]);
    must(cudaDeviceSynchronize(), names[c->way]);
    for (int i = 0; i < n; i++) {
        size_t bad = wrong(&ranks[i], c, got);

        if (bad > 0) {
            printf("# %s of %zu %s, rank %d of %d at %zu (rank 0 at %zu): %zu wrong\n",
                   names[c->way], c->count, mu_dtype_name(c->dtype), i, n, ranks[i].at,
                   ranks[0].at, bad);
            return false;
        }
    }
    return true;
}

int main(int argc, char **argv)
{
    int seeds = argc > 1 ? atoi(argv[1]) : 2, devices = 0, failed = 0;
    char *got = malloc(ROOM);

    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        printf("1..0 # SKIP no GPU here\n");
        return 0;
    }
    for (int n = 2; n <= 8; n++) {
        struct rank ranks[MU_PEERS];
        int wrongs = 0;

        open_ranks(ranks, n);
        for (int seed = 1; seed <= seeds; seed++) {
            uint64_t state = (uint64_t)seed * 1000 + (uint64_t)n;

            for (int k = 0; k < CALLS; k++) {
                struct call c;

                draw_call(&state, ranks, n, &c);
                wrongs += !run_call(ranks, n, &c, got);
            }
        }
        failed += wrongs > 0;
        printf("%sok %d - %d ranks on one GPU: %d calls at any place\n",
               wrongs ? "not " : "", n - 1, n, seeds * CALLS);
        fflush(stdout);
    }
    printf("1..7\n");
    return failed > 0;
}
