/* SPDX-License-Identifier: BSD-3-Clause */
/* preload_program.c - errors, ranks and data of check_preload */
#include "tests/gpu/preload_program.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/gpu/virtual_memory.h"

struct shared *shared;
int rank, ranks;
bool is_virtual;

const struct type types[TYPES] = {
    { ncclFloat32, 4, true }, { ncclFloat16, 2, true }, { ncclBfloat16, 2, true },
    { ncclFloat64, 8, true }, { ncclInt32, 4, false },  { ncclInt64, 8, false },
    { ncclUint32, 4, false }, { ncclUint8, 1, false },  { ncclFloat32, 4, true },
};

void die(const char *what, const char *why)
{
    fprintf(stderr, "rank %d: %s: %s\n", rank, what, why);
    exit(1);
}

void cuda(cudaError_t rc, const char *what)
{
    if (rc != cudaSuccess)
        die(what, cudaGetErrorString(rc));
    progress_step();
}

void nccl(ncclResult_t rc, const char *what)
{
    if (rc != ncclSuccess)
        die(what, ncclGetErrorString(rc));
    progress_step();
}

void *memory_new(size_t bytes)
{
    enum phase before = progress_phase(MAKING);
    void *p = NULL;

    if (is_virtual)
        p = virtual_new(bytes);
    else
        cuda(cudaMalloc(&p, bytes), "cudaMalloc");
    progress_memory(1, is_virtual ? virtual_ranges(p) : 1);
    progress_phase(before);
    return p;
}

void memory_free(void *p)
{
    enum phase before = progress_phase(MAKING);

    progress_memory(-1, is_virtual ? -virtual_ranges(p) : -1);
    if (!virtual_delete(p))
        cuda(cudaFree(p), "cudaFree");
    progress_phase(before);
}

void meet(int of)
{
    int wave = atomic_load(&shared->waves);

    if (atomic_fetch_add(&shared->arrived, 1) + 1 == of) {
        atomic_store(&shared->arrived, 0);
        atomic_fetch_add(&shared->waves, 1);
        return;
    }
    while (atomic_load(&shared->waves) == wave)
        usleep(50);
}

ncclComm_t communicator(int which)
{
    ncclComm_t comm;

    if (rank == 0)
        nccl(ncclGetUniqueId(&shared->id[which]), "ncclGetUniqueId");
    meet(ranks);
    nccl(ncclCommInitRank(&comm, ranks, shared->id[which], rank), "ncclCommInitRank");
    return comm;
}

cudaStream_t stream_new(void)
{
    cudaStream_t s;

    cuda(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), "stream");
    return s;
}

double element(int r, size_t i)
{
    return (double)((i % 7 + 1) * 2 * (size_t)(r + 1));
}

double expected(ncclRedOp_t op, size_t i)
{
    double sum = 0;

    for (int r = 0; r < ranks; r++)
        sum += element(r, i);
    return op == ncclAvg   ? sum / ranks
           : op == ncclMax ? element(ranks - 1, i)
           : op == ncclMin ? element(0, i)
                           : sum;
}

double spoilt_element(int r, size_t i)
{
    return i % 11 == 0 || i % 5 == (size_t)r % 5 ? NAN : element(r, i);
}

double spoilt_expected(ncclRedOp_t op, size_t i)
{
    double out = NAN;

    for (int r = 0; r < ranks; r++) {
        double v = spoilt_element(r, i);

        if (isnan(out) || (op == ncclMax ? v > out : v < out))
            out = v;
    }
    return out;
}

bool is_nan(ncclDataType_t type, const void *at)
{
    uint16_t half;
    double f64;
    float f32;

    memcpy(&half, at, sizeof half);
    if (type == ncclFloat16)
        return (half & 0x7fff) > 0x7c00;
    if (type == ncclBfloat16)
        return (half & 0x7fff) > 0x7f80;
    if (type == ncclFloat64) {
        memcpy(&f64, at, sizeof f64);
        return isnan(f64);
    }
    memcpy(&f32, at, sizeof f32);
    return isnan(f32);
}

void put(ncclDataType_t type, void *base, size_t i, double v)
{
    float f = (float)v;
    uint32_t bits;

    memcpy(&bits, &f, sizeof bits);
    switch (type) {
    case ncclFloat32:
        ((float *)base)[i] = f;
        break;
    case ncclFloat64:
        ((double *)base)[i] = v;
        break;
    case ncclUint8:
        ((uint8_t *)base)[i] = (uint8_t)v;
        break;
    case ncclUint32:
    case ncclInt32:
        ((int32_t *)base)[i] = (int32_t)v;
        break;
    case ncclInt64:
        ((int64_t *)base)[i] = (int64_t)v;
        break;
    case ncclBfloat16:
        ((uint16_t *)base)[i] = (uint16_t)(bits >> 16);
        break;
    default: /* float16, of numbers that have no rest */
        ((uint16_t *)base)[i] =
            isnan(v) ? 0x7e00
            : v == 0 ? 0
                     : (uint16_t)(((bits >> 23) - 112) << 10 | (bits >> 13 & 0x3ff));
    }
}

/* The data repeat after 7 elements, so a block of a multiple of them is enough. */
#define BLOCK (7 * 4096)

static char *block_of(const struct type *t, bool is_result, ncclRedOp_t op)
{
    char *block = malloc((BLOCK + 7) * (size_t)t->bytes);

    if (!block)
        die("the data", "no memory");
    for (size_t i = 0; i < BLOCK + 7; i++)
        put(t->type, block, i, is_result ? expected(op, i) : element(rank, i));
    return block;
}

char *pattern_new(const struct type *t, size_t count)
{
    size_t bytes = (count + 7) * (size_t)t->bytes, step = BLOCK * (size_t)t->bytes;
    enum phase before = progress_phase(CHECKING);
    char *block = block_of(t, false, ncclSum), *at;

    cuda(cudaMalloc((void **)&at, bytes), "cudaMalloc");
    for (size_t i = 0; i < bytes; i += step)
        cuda(cudaMemcpy(at + i, block, bytes - i < step ? bytes - i : step,
                        cudaMemcpyHostToDevice),
             "the data");
    free(block);
    progress_phase(before);
    return at;
}

void check_result(const struct type *t, ncclRedOp_t op, const char *at, size_t count,
                  size_t shift, const char *what)
{
    size_t bytes = count * (size_t)t->bytes, step = BLOCK * (size_t)t->bytes;
    enum phase before = progress_phase(CHECKING);
    char *want = block_of(t, true, op), *got = malloc(bytes + 1);

    if (!got)
        die(what, "no memory");
    cuda(cudaMemcpy(got, at, bytes, cudaMemcpyDeviceToHost), what);
    for (size_t i = 0; i < bytes; i += step) {
        size_t n = bytes - i < step ? bytes - i : step, j = 0;
        const char *w = want + shift % 7 * (size_t)t->bytes;

        if (memcmp(got + i, w, n) == 0)
            continue;
        while (got[i + j] == w[j])
            j++;
        fprintf(stderr, "rank %d: %s: element %zu of %zu is wrong, type %d, op %d\n",
                rank, what, (i + j) / (size_t)t->bytes, count, (int)t->type, (int)op);
        exit(1);
    }
    free(got);
    free(want);
    progress_phase(before);
}
