/* SPDX-License-Identifier: BSD-3-Clause */
/* check_kernels.c - kernels without peers, compared with the CPU: sums of squares, the
 * search for NaN and Inf, 8-bit integers, the sum of copied parts
 *
 *   check_kernels [RANKS]
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/backend/nccl/kernels/kernels.h"
#include "runtime/core/compress.h"
#include "runtime/core/convert.h"
#include "runtime/core/dtype.h"
#include "runtime/core/numeric.h"
#include "tests/gpu/common.h"

#define MOST ((size_t)3000017)

/* Device memory: the data, followed by the results of the operations. */
struct place {
    char *data, *rest, *peak, *word, *sums, *found;
    void *host; /* MOST doubles of host memory */
};

static void copy(struct rank *r, void *dst, const void *src, size_t bytes)
{
    struct mu_err err = { 0 };

    if (r->ops->copy(r->b, dst, src, bytes, r->stream, &err) < 0 ||
        r->ops->drain(r->b, r->stream, &err) < 0) {
        fprintf(stderr, "# rank %d: %s\n", r->number, err.text);
        exit(1);
    }
}

/* Equal on all ranks, like gradients after the mean. */
static void fill(void *to, enum muster_dtype dtype, size_t count, unsigned seed)
{
    for (size_t i = 0; i < count; i++) {
        double v;

        seed = seed * 1103515245u + 12345;
        v = (double)(int)seed * 0x1p-31;
        if (dtype == MUSTER_F32)
            ((float *)to)[i] = (float)v;
        else if (dtype == MUSTER_F64)
            ((double *)to)[i] = v;
        else
            ((uint16_t *)to)[i] =
                dtype == MUSTER_F16 ? mu_to_f16((float)v) : mu_to_bf16((float)v);
    }
}

static double norm(struct rank *r, const struct place *p, enum muster_dtype dtype,
                   size_t count)
{
    double sums[MU_SQUARES], sum = 0;

    r->ops->zero(r->b, p->sums, sizeof sums, r->stream, NULL);
    r->ops->squares(r->b, p->data, count, dtype, (double *)p->sums, r->stream, NULL);
    copy(r, sums, p->sums, sizeof sums);
    for (int i = 0; i < MU_SQUARES; i++)
        sum += sums[i];
    return sum;
}

static const size_t counts[] = { 1, 3, 1000, 65537, 262147, MOST, 0 };

static void squares(struct rank *r, const struct place *p, enum muster_dtype dtype)
{
    bool right = true, again = true, same = true;

    for (int c = 0; counts[c]; c++) {
        double got, want, other;
        uint64_t bits;

        fill(p->host, dtype, counts[c], 7);
        copy(r, p->data, p->host, counts[c] * mu_dtype_size(dtype));
        want = mu_sum_squares(p->host, dtype, counts[c]);
        got = norm(r, p, dtype, counts[c]);
        other = norm(r, p, dtype, counts[c]);
        memcpy(&bits, &got, sizeof bits);
        right &= fabs(got - want) <= 1e-12 * want;
        again &= got == other;
        same &= same_everywhere(r, bits);
    }
    check(r, right, "%s: sums of squares as the CPU has them", mu_dtype_name(dtype));
    check(r, again && same, "%s: the same bits again, and on all ranks",
          mu_dtype_name(dtype));
}

static void looks(struct rank *r, const struct place *p, enum muster_dtype dtype)
{
    enum { N = 300 };
    static const int bad[] = { 0, 1, 127, 128, 299 };
    const size_t count = 1001, size = mu_dtype_size(dtype);
    struct mu_piece piece[N];
    bool right = true;

    for (int i = 0; i < N; i++)
        piece[i] = (struct mu_piece){ p->data + (size_t)i * count * size, 0, count };
    for (int k = -1; k < 5; k++) {
        uint32_t found = 99;

        fill(p->host, dtype, N * count, 3);
        if (k >=
            0) /* an exponent of all ones in the last element, and in the last piece */
            for (int j = 0; j < 2; j++)
                memset((char *)p->host +
                           ((size_t)(j ? N : bad[k] + 1) * count - 1) * size,
                       0xff, size);
        copy(r, p->data, p->host, N * count * size);
        r->ops->zero(r->b, p->found, sizeof found, r->stream, NULL);
        r->ops->find_nonfinite(r->b, piece, N, dtype, (uint32_t *)p->found, r->stream,
                               NULL);
        copy(r, &found, p->found, sizeof found);
        right &= found == (k < 0 ? 0 : (uint32_t)(N - bad[k]));
    }
    check(r, right, "%s: the first of 300 gradients with NaN is found",
          mu_dtype_name(dtype));
}

static void int8(struct rank *r, const struct place *p, size_t count)
{
    struct mu_int8_tensor t = { (float *)p->data, (float *)p->rest, count,
                                (float *)p->peak, (int32_t *)p->word };
    size_t blocks = mu_int8_blocks(count), words = mu_int8_words(count);
    float *g = malloc(count * 4), *rest = calloc(count, 4), *peak = malloc(blocks * 4);
    float *got = malloc(count * 4);
    int32_t *word = malloc(words * 4);
    bool right;

    fill(g, MUSTER_F32, count, 5);
    copy(r, p->data, g, count * 4);
    r->ops->zero(r->b, p->rest, count * 4, r->stream, NULL);
    for (int s = MU_INT8_PEAKS; s <= MU_INT8_DECODE; s++)
        r->ops->int8(r->b, (enum mu_int8_stage)s, &t, 1, 3, r->stream, NULL);
    mu_int8_peaks(g, rest, count, peak);
    mu_int8_encode(g, rest, count, peak, 3, word);
    copy(r, got, p->word, words * 4);
    right = memcmp(got, word, words * 4) == 0;
    check(r, right, "int8: %zu elements, the words of the CPU", count);
    mu_int8_decode(word, count, peak, 3, g);
    copy(r, got, p->data, count * 4);
    right = memcmp(got, g, count * 4) == 0;
    copy(r, got, p->rest, count * 4);
    right &= memcmp(got, rest, count * 4) == 0;
    check(r, right, "int8: %zu elements, the mean and what is left", count);
    free(g);
    free(rest);
    free(peak);
    free(got);
    free(word);
}

/* Element i of the mean of n ranks' lists of `count` elements: added in rank order,
 * 16-bit types in fp32. 1/n is exact for every n used here.
 */
static void mean_of(void *to, const void *lists, enum muster_dtype dtype, int n,
                    size_t count, double scale)
{
    for (size_t i = 0; i < count; i++) {
        float sum = 0;
        double wide = 0;

        for (int p = 0; p < n; p++) {
            size_t at = (size_t)p * count + i;
            float x = dtype == MUSTER_F32 ? ((const float *)lists)[at]
                      : dtype == MUSTER_F16
                          ? mu_from_f16(((const uint16_t *)lists)[at])
                          : mu_from_bf16(((const uint16_t *)lists)[at]);

            if (dtype == MUSTER_F64)
                wide += ((const double *)lists)[at];
            else
                sum = p == 0 ? x : sum + x;
        }
        sum *= (float)scale;
        if (dtype == MUSTER_F32)
            ((float *)to)[i] = sum;
        else if (dtype == MUSTER_F64)
            ((double *)to)[i] = wide * scale;
        else
            ((uint16_t *)to)[i] =
                dtype == MUSTER_F16 ? mu_to_f16(sum) : mu_to_bf16(sum);
    }
}

/* As rank `rank` of n: our part, followed by the parts of the other ranks. */
static bool parts_as(struct rank *r, const struct place *p, enum muster_dtype dtype,
                     int n, int rank, size_t bytes)
{
    const struct mu_reach reach = { .rank = rank, .n = n };
    const size_t count = bytes / mu_dtype_size(dtype);
    char *lists = p->host, *want = malloc(bytes), *got = malloc(bytes);
    const double scale = rank ? 1.0 / n : 1.0;
    bool right;

    if (!want || !got)
        exit(1);
    fill(lists, dtype, (size_t)n * count, 11);
    mean_of(want, lists, dtype, n, count, scale);
    copy(r, p->data, lists + (size_t)rank * bytes, bytes);
    for (int q = 0, at = 1; q < n; q++)
        if (q != rank)
            copy(r, p->data + (size_t)at++ * bytes, lists + (size_t)q * bytes, bytes);
    right = mu_add_parts(&reach, p->data, p->data + bytes, bytes, dtype, scale,
                         r->stream) == cudaSuccess;
    copy(r, got, p->data, bytes);
    right = right && memcmp(got, want, bytes) == 0;
    free(want);
    free(got);
    return right;
}

static void parts(struct rank *r, const struct place *p, enum muster_dtype dtype)
{
    static const size_t sizes[] = { 16, 16 * 511, 16 * 512, 16 * 513, 16 * 100003 };
    bool right = true;

    for (int n = 2; n <= MU_PEERS; n *= 2)
        for (int rank = 0; rank < n; rank += n - 1)
            for (int i = 0; i < 5; i++)
                right &= parts_as(r, p, dtype, n, rank, sizes[i]);
    check(r, right, "%s: the parts of 2 to 8 ranks added up as on the CPU",
          mu_dtype_name(dtype));
}

static int body(struct mu_world *world, void *arg)
{
    struct rank r = { 0 };
    struct place p;
    struct mu_err err = { 0 };
    char *arena;

    rank_open(&r, world, 120);
    arena = r.ops->alloc(r.b, MOST * 16 + (1 << 20), &err);
    p.host = malloc(MOST * sizeof(double));
    if (!arena || !p.host) {
        fprintf(stderr, "# rank %d: %s\n", world->rank, err.text);
        return 1;
    }
    p.sums = arena;
    p.found = arena + 4096;
    p.data = arena + 8192;
    p.rest = p.data + (MOST * 8 + 4095) / 4096 * 4096;
    p.word = p.rest + (MOST * 4 + 4095) / 4096 * 4096;
    p.peak = p.word + (MOST + 4095) / 4096 * 4096;
    for (int d = MUSTER_F32; d <= MUSTER_BF16; d++) {
        squares(&r, &p, (enum muster_dtype)d);
        looks(&r, &p, (enum muster_dtype)d);
        parts(&r, &p, (enum muster_dtype)d);
    }
    int8(&r, &p, 1);
    int8(&r, &p, 257);
    int8(&r, &p, MOST);
    print0(&r, "1..%d\n", r.number);
    free(p.host);
    r.ops->free(r.b, arena);
    rank_close(&r);
    return r.failures ? 1 : 0;
}

int main(int argc, char **argv)
{
    return mu_forked_run(ranks_wanted(argc, argv, 1), true, 20, body, NULL);
}
