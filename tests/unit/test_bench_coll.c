/* SPDX-License-Identifier: BSD-3-Clause */
/* test_bench_coll.c - the collectives that muster bench times on GPUs, with made-up
 * GPUs in host memory: the buffers, and the check that finds wrong data
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "runtime/backend/nccl/bench/gpu.h"
#include "runtime/tools/bench.h"

/* ---- Made-up GPUs: f32, whole numbers -------------------------------------------- */

/* The GPU of this rank changes one element of each result. */
static int spoils = -1;

static float element(uint32_t seed, int rank, size_t i)
{
    return (float)((seed * 31 + (uint32_t)rank * 7 + i * 3) % 101);
}

void mu_gpu_fill(void *buffer, size_t count, enum muster_dtype dtype, uint32_t seed,
                 int rank, void *stream)
{
    assert_int_equal(dtype, MUSTER_F32);
    for (size_t i = 0; i < count; i++)
        ((float *)buffer)[i] = element(seed, rank, i);
}

uint64_t mu_gpu_differs(const void *buffer, size_t count, enum muster_dtype dtype,
                        uint32_t seed, int rank, size_t at, void *stream)
{
    uint64_t n = 0;

    for (size_t i = 0; i < count; i++)
        n += ((const float *)buffer)[i] != element(seed, rank, at + i);
    return n + (spoils == rank);
}

uint64_t mu_gpu_wrong(const void *buffer, size_t count, enum muster_dtype dtype,
                      uint32_t seed, int ranks, enum muster_op op, double scale,
                      size_t at, size_t *first, void *stream)
{
    uint64_t n = 0;

    assert_int_equal(op, MUSTER_SUM);
    for (size_t i = 0; i < count; i++) {
        float sum = 0;

        for (int r = 0; r < ranks; r++)
            sum += element(seed, r, at + i);
        n += ((const float *)buffer)[i] != sum;
    }
    return n;
}

void mu_gpu_time(void (*fn)(void *arg), void *arg, int batch, int n, bool graph,
                 double *us, void *stream)
{
    for (int i = 0; i < n; i++) {
        fn(arg);
        us[i] = 1;
    }
}

void *mu_gpu_alloc(size_t bytes)
{
    return calloc(1, bytes);
}

void mu_gpu_free(void *p)
{
    free(p);
}

void mu_gpu_put(void *device, const void *host, size_t bytes)
{
    memcpy(device, host, bytes);
}

void mu_gpu_get(void *host, const void *device, size_t bytes)
{
    memcpy(host, device, bytes);
}

void mu_gpu_sync(void *stream)
{
}

void *mu_gpu_event(void)
{
    return NULL;
}

void mu_gpu_mark(void *event, void *stream)
{
    fail();
}

double mu_gpu_span(void *from, void *to)
{
    fail();
    return 0;
}

void mu_gpu_copy(void *dst, const void *src, size_t bytes, void *stream)
{
    fail();
}

/* ---- The rows -------------------------------------------------------------------- */

static char printed[1 << 16];

static int body(struct muster *m, const struct bench_options *options, double init_ms)
{
    struct bench b = { .options = options, .m = m };
    int rc = bench_collectives(&b);

    muster_finalize(m);
    return rc;
}

static int bench(const char *kind)
{
    const struct bench_options options = { .kind = kind,
                                           .path = "auto",
                                           .min = 96,
                                           .max = 96 << 6,
                                           .dtype = MUSTER_F32,
                                           .ranks = 3,
                                           .batches = 2,
                                           .host = true,
                                           .check = true,
                                           .tsv = true };
    FILE *out = tmpfile();
    int saved = dup(1), rc;

    assert_non_null(out);
    fflush(stdout);
    dup2(fileno(out), 1);
    rc = bench_start(&options, body);
    fflush(stdout);
    dup2(saved, 1);
    close(saved);
    rewind(out);
    printed[fread(printed, 1, sizeof printed - 1, out)] = '\0';
    fclose(out);
    return rc;
}

static const char *const kinds[] = { "allreduce", "allgather", "reduce-scatter",
                                     "broadcast", "alltoall" };

static void every_size_of_every_collective_is_right(void **state)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        int rows = 0;

        if (bench(kinds[i]) != 0)
            fail_msg("%s:\n%s", kinds[i], printed);
        for (const char *at = printed; (at = strstr(at, "\tok\n")); at++)
            rows++;
        if (rows != 4)
            fail_msg("%s: %d rows of 4 sizes are ok\n%s", kinds[i], rows, printed);
    }
}

static void a_wrong_part_of_one_rank_is_reported_by_all(void **state)
{
    spoils = 2;
    assert_int_equal(bench("alltoall"), 1);
    assert_non_null(strstr(printed, "alltoall\tauto\t96\t"));
    assert_non_null(strstr(printed, "\tWRONG\n"));
    assert_null(strstr(printed, "\tok\n"));
    spoils = -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_size_of_every_collective_is_right),
        cmocka_unit_test(a_wrong_part_of_one_rank_is_reported_by_all),
    };

    return cmocka_run_group_tests_name("bench_coll", tests, NULL, NULL);
}
