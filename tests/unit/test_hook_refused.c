/* SPDX-License-Identifier: BSD-3-Clause */
/* test_hook_refused.c - what compression cannot do is refused, or left as it is */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "runtime/core/convert.h"
#include "tests/unit/forked.h"

enum { COUNT = 480 };

static const size_t wrong_rows[1] = { 7 };

static const struct refusal {
    const char *name;
    enum muster_dtype dtype;
    struct muster_hook hook;
    const char *expect;
} refusals[] = {
    { "int8 of f64",
      MUSTER_F64,
      { .compress = MUSTER_COMPRESS_INT8 },
      "int8 compresses f32, but parameter 'w' is f64" },
    { "PowerSGD of f64",
      MUSTER_F64,
      { .compress = MUSTER_COMPRESS_POWERSGD },
      "PowerSGD compresses f32 and 16-bit floats, but parameter 'w' is f64" },
    { "rows that do not divide",
      MUSTER_F32,
      { .compress = MUSTER_COMPRESS_POWERSGD, .rows = wrong_rows },
      "parameter 'w': 480 elements do not make 7 rows" },
    { "PowerSGD of a negative rank",
      MUSTER_F32,
      { .compress = MUSTER_COMPRESS_POWERSGD, .rank = -1 },
      "of rank -1" },
    { "no reduce",
      MUSTER_F32,
      { .compress = MUSTER_COMPRESS_USER },
      "a user hook needs the function reduce" },
    { "no such compression",
      MUSTER_F32,
      { .compress = (enum muster_compress)9 },
      "unknown compression 9" },
};

static int refusal_body(struct muster *m, int rank, void *arg)
{
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        const struct refusal *t = &refusals[i];
        const struct muster_ddp_options o = { .hook = &t->hook };
        struct muster_param p = { .name = "w", .count = COUNT, .dtype = t->dtype };
        struct muster_ddp *ddp;

        RANK_CHECK(muster_ddp_create(m, &p, 1, &o, &ddp) == MUSTER_EUSAGE && !ddp);
        if (!strstr(muster_error(m), t->expect)) {
            fprintf(stderr, "%s: %s\n", t->name, muster_error(m));
            return 97;
        }
    }
    return muster_finalize(m);
}

static void what_a_hook_cannot_do_is_refused_by_name(void **state)
{
    forked_well("refusals", (struct forked_world){ .size = 2 }, refusal_body, NULL);
}

static int other_body(struct muster *m, int rank, void *arg)
{
    const struct muster_hook hook = { .compress = rank == 1 ? MUSTER_COMPRESS_F16
                                                            : MUSTER_COMPRESS_BF16 };
    const struct muster_ddp_options o = { .hook = &hook };
    struct muster_param p = { .name = "w", .count = 8, .dtype = MUSTER_F32 };
    struct muster_ddp *ddp;

    RANK_CHECK(muster_ddp_create(m, &p, 1, &o, &ddp) == MUSTER_ECONTRACT);
    RANK_CHECK(strstr(muster_error(m), "on rank 1"));
    return 0;
}

static void another_compression_on_one_rank_is_refused(void **state)
{
    forked_well("another compression",
                (struct forked_world){ .size = 3, .return_failure = true }, other_body,
                NULL);
}

/* 16-bit gradients are not cast again: bit for bit as without a hook. */
static int short_body(struct muster *m, int rank, void *arg)
{
    const struct muster_hook hook = { .compress = MUSTER_COMPRESS_F16 };
    const struct muster_ddp_options o = { .hook = &hook };
    struct muster_param p = { .name = "w", .count = 64, .dtype = MUSTER_BF16 };
    struct muster_ddp *ddp[2];

    RANK_OK(muster_ddp_create(m, &p, 1, &o, &ddp[0]));
    RANK_OK(muster_ddp_create(m, &p, 1, NULL, &ddp[1]));
    for (int d = 0; d < 2; d++) {
        uint16_t *g = muster_ddp_grad(ddp[d], 0);

        for (int k = 0; k < 64; k++)
            g[k] = mu_to_bf16(ldexpf((float)(rank + 1), k)); /* far beyond fp16 */
        RANK_OK(muster_ddp_grad_ready(ddp[d], 0, NULL));
        RANK_OK(muster_ddp_sync(ddp[d], NULL));
    }
    RANK_CHECK(memcmp(muster_ddp_grad(ddp[0], 0), muster_ddp_grad(ddp[1], 0), 128) ==
               0);
    muster_ddp_destroy(ddp[1]);
    muster_ddp_destroy(ddp[0]);
    return muster_finalize(m);
}

static void gradients_of_16_bits_are_left_as_they_are(void **state)
{
    forked_well("16 bits", (struct forked_world){ .size = 2 }, short_body, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_hook_cannot_do_is_refused_by_name),
        cmocka_unit_test(another_compression_on_one_rank_is_refused),
        cmocka_unit_test(gradients_of_16_bits_are_left_as_they_are),
    };

    return cmocka_run_group_tests_name("hook refused", tests, NULL, NULL);
}
