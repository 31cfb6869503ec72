/* SPDX-License-Identifier: BSD-3-Clause */
/* test_flight.c - who is to blame, who disagrees, and the arithmetic of small floats */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "runtime/core/contract.h"
#include "runtime/core/convert.h"
#include "runtime/core/flight.h"
#include "runtime/core/ranks.h"
#include "runtime/muster.h"

#define SIZE 8

static const char *const hosts[SIZE] = { "a", "a", "b", "b", "c", "c", "d", "d" };
static const char *const gpus[SIZE] = { "", "", "", "0000:41:00.0", "", "", "", "" };
static const int parents[SIZE] = { -1, 0, 0, 2, 0, 4, 0, 6 };

static const struct verdict_case {
    const char *name;
    int size;
    int entered[SIZE]; /* -1: no answer */
    const char *odd;   /* what rank 1 calls its last collective; NULL: the same */
    int guilty;
    const char *text;
} verdicts[] = {
    { "the sentence of the manual",
      8,
      { 9, 9, 9, 6, 9, 9, 9, 9 },
      NULL,
      3,
      "rank 3 (node b, GPU 0000:41:00.0) has not entered bucket 7 of step 1204; 7 "
      "others wait" },
    { "the last of several is named",
      4,
      { 9, 5, 7, 9 },
      NULL,
      1,
      "rank 1 (node a) has not entered bucket 6 of step 1204; 3 others wait" },
    { "two are equally late",
      4,
      { 9, 5, 9, 5 },
      NULL,
      1,
      "rank 1 (node a) and 1 more has not entered bucket 6 of step 1204; 2 others "
      "wait" },
    { "one waits",
      2,
      { 0, 1 },
      NULL,
      0,
      "rank 0 (node a) has not entered bucket 1 of step 1204; 1 other waits" },
    { "no answer",
      3,
      { 9, -1, 9 },
      NULL,
      1,
      "rank 1 (node a) does not answer (stopped, or its node hangs); rank 0 waits for "
      "all" },
    { "a whole node does not answer",
      4,
      { 9, 9, -1, -1 },
      NULL,
      2,
      "rank 2 (node b) does not answer (stopped, or its node hangs); 1 rank behind "
      "it cannot report; rank 0 waits for all" },
    { "silence is worse than lateness",
      3,
      { 9, 3, -1 },
      NULL,
      2,
      "rank 2 (node b) does not answer (stopped, or its node hangs); rank 0 waits for "
      "all" },
    { "another collective",
      4,
      { 9, 9, 9, 9 },
      "broadcast",
      1,
      "rank 1 (node a) is in broadcast while 3 others are in bucket 9 of step 1204" },
    { "all are in the same",
      3,
      { 9, 9, 9 },
      NULL,
      -1,
      "all 3 ranks are in bucket 9 of step 1204 and none makes progress: check the "
      "network" },
};

static void the_verdict_names_the_rank_that_is_to_blame(void **state)
{
    static struct mu_flight flight[SIZE];
    const struct mu_flight_names names = { hosts, gpus, parents };

    for (size_t c = 0; c < sizeof verdicts / sizeof verdicts[0]; c++) {
        const struct verdict_case *t = &verdicts[c];
        const struct mu_flight *records[SIZE];
        char text[512];
        int guilty, status = MUSTER_ETIMEOUT;

        memset(flight, 0, sizeof flight);
        for (int r = 0; r < t->size; r++) {
            char what[32];

            for (int n = 1; n <= t->entered[r]; n++) {
                snprintf(what, sizeof what, "bucket %d of step 1204", n);
                if (t->odd && r == 1 && n == t->entered[r])
                    snprintf(what, sizeof what, "%s", t->odd);
                mu_flight_enter(&flight[r], what, 1024, n);
            }
            snprintf(flight[r].waiting_for, MU_FLIGHT_WHAT, "all");
            records[r] = t->entered[r] < 0 ? NULL : &flight[r];
        }
        guilty =
            mu_flight_verdict(records, t->size, &names, &status, text, sizeof text);
        if (guilty != t->guilty || strcmp(text, t->text) != 0 ||
            status != MUSTER_ETIMEOUT)
            fail_msg("%s: %d, status %d '%s'", t->name, guilty, status, text);
    }
}

/* Each rank: the names of its collectives; those behind "-" have no place in the order.
 * A hash follows from the names so far.
 */
static const struct order_case {
    const char *name;
    const char *entered[3];
    int place, guilty;
    const char *text;
} orders[] = {
    { "one order", { "a b c", "a b c", "a b c" }, 0, -1, NULL },
    { "one rank is behind", { "a b c", "a", "a b" }, 0, -1, NULL },
    { "a gather between them", { "a -g b", "-g a b", "a b -g" }, 0, -1, NULL },
    { "the odd rank is in the middle",
      { "a b", "a c", "a b" },
      2,
      1,
      "rank 1 (node a) started collectives in a different order than 2 others: c in "
      "place of b" },
    { "rank 0 is odd",
      { "a c", "a b", "a b" },
      2,
      0,
      "rank 0 (node a) started collectives in a different order than 2 others: c in "
      "place of b" },
    { "each is another: the lowest rank is the majority",
      { "a b", "a c", "a d" },
      2,
      1,
      "rank 1 (node a) started collectives in a different order than 1 other: c in "
      "place of b" },
    { "the odd rank has gone on",
      { "a b", "a c b d", "a b d" },
      2,
      1,
      "rank 1 (node a) started collectives in a different order than 2 others: c in "
      "place of b" },
    { "equal names of different objects",
      { "a b", "a b'", "a b" },
      2,
      1,
      "rank 1 (node a) started collectives in a different order than 2 others" },
    { "a rank that does not answer",
      { "a b", "", "a c" },
      2,
      2,
      "rank 2 (node b) started collectives in a different order than 1 other: c in "
      "place of b" },
    { "longer ago than the records reach",
      { "a b x x x x x x x x x x x x x x x x", "a c x x x x x x x x x x x x x x x x",
        "a b x x x x x x x x x x x x x x x x" },
      3,
      1,
      "rank 1 (node a) started collectives in a different order than 2 others" },
};

static void enter_in_order(struct mu_flight *f, const char *words)
{
    uint64_t ordered = 0, order = 0;
    char copy[128], *at = copy, *word;

    memset(f, 0, sizeof *f);
    snprintf(copy, sizeof copy, "%s", words);
    while ((word = strsep(&at, " "))) {
        bool counts = word[0] != '-';
        uint64_t number;

        for (const char *p = word; counts && *p; p++)
            order = order * 31 + (uint64_t)*p;
        word[strcspn(word, "'")] = '\0';
        number = mu_flight_enter(f, word, 8, 1);
        if (counts)
            mu_flight_order(f, number, ++ordered, order);
    }
}

static void another_order_is_proved_by_the_records(void **state)
{
    static struct mu_flight flight[3];
    const struct mu_flight_names names = { hosts, gpus, NULL };

    for (size_t i = 0; i < sizeof orders / sizeof orders[0]; i++) {
        const struct order_case *t = &orders[i];
        const struct mu_flight *records[3];
        int status = MUSTER_ETIMEOUT, guilty;
        char text[512];

        for (int r = 0; r < 3; r++) {
            enter_in_order(&flight[r], t->entered[r]);
            records[r] = t->entered[r][0] ? &flight[r] : NULL;
        }
        if (mu_flight_disorder(records, 3) != (uint64_t)t->place)
            fail_msg("%s: place %llu", t->name,
                     (unsigned long long)mu_flight_disorder(records, 3));
        if (t->place == 0)
            continue;
        guilty = mu_flight_verdict(records, 3, &names, &status, text, sizeof text);
        if (guilty != t->guilty || strcmp(text, t->text) != 0 ||
            status != MUSTER_ECONTRACT)
            fail_msg("%s: %d, status %d '%s'", t->name, guilty, status, text);
    }
}

/* Each rank: the collectives that it has entered, "." behind those it has left, and
 * what it waits for.
 */
static const struct apart_case {
    const char *name;
    const char *entered[2], *waits[2];
    bool apart;
} aparts[] = {
    { "a barrier and a bucket",
      { "barrier", "bucket" },
      { "barrier", "bucket" },
      true },
    { "the same bucket", { "bucket", "bucket" }, { "bucket", "bucket" }, false },
    { "one computes", { "barrier", "bucket" }, { "barrier", "" }, false },
    { "the bucket is under way on both",
      { "bucket barrier", "bucket" },
      { "barrier", "bucket" },
      false },
    { "the barrier is behind the bucket: another order",
      { "barrier", "bucket barrier" },
      { "barrier", "barrier" },
      false },
    { "an earlier barrier is over",
      { "barrier. bucket. barrier", "barrier. bucket. bucket" },
      { "barrier", "bucket" },
      true },
    { "no collective, such as the absent gradients",
      { "bucket", "bucket other" },
      { "absent", "other" },
      false },
};

static void enter_all(struct mu_flight *f, const char *words, const char *waits)
{
    char copy[128], *at = copy, *word;

    snprintf(copy, sizeof copy, "%s", words);
    while ((word = strsep(&at, " "))) {
        char *dot = strchr(word, '.');
        uint64_t number;

        if (dot)
            *dot = '\0';
        number = mu_flight_enter(f, word, 8, 1);
        if (dot)
            mu_flight_leave(f, number, 2);
    }
    snprintf(f->waiting_for, MU_FLIGHT_WHAT, "%s", waits);
    f->waiting_since = waits[0] ? 3 : 0;
}

static void ranks_that_wait_for_each_other_are_found_before_the_deadline(void **state)
{
    const struct mu_flight_names names = { hosts, gpus, parents };

    for (size_t i = 0; i < sizeof aparts / sizeof aparts[0]; i++) {
        const struct apart_case *t = &aparts[i];
        struct mu_flight f[3] = { { 0 } };
        const struct mu_flight *records[3] = { &f[0], &f[1], &f[2] };
        int guilty, status = MUSTER_ETIMEOUT;
        char text[512];

        enter_all(&f[0], t->entered[0], t->waits[0]);
        enter_all(&f[1], t->entered[1], t->waits[1]);
        enter_all(&f[2], t->entered[0], t->waits[0]);
        if (mu_flight_apart(&f[0], &f[1]) != t->apart ||
            mu_flight_apart(&f[1], &f[0]) != t->apart)
            fail_msg("%s", t->name);
        guilty = mu_flight_verdict(records, 3, &names, &status, text, sizeof text);
        if ((status == MUSTER_ECONTRACT) != t->apart || (t->apart && guilty != 1))
            fail_msg("%s: status %d, rank %d: %s", t->name, status, guilty, text);
    }
    /* One number has two names: the root looks closer. */
    {
        struct mu_flight seen = { 0 }, f[2] = { { 0 } };

        enter_all(&f[0], "bucket. barrier", "");
        enter_all(&f[1], "bucket. bucket", "");
        assert_true(mu_flight_merge(&seen, &f[0]));
        assert_true(mu_flight_merge(&seen, &f[0]));
        assert_false(mu_flight_merge(&seen, &f[1]));
    }
}

static void a_collective_that_did_not_start_leaves_its_number(void **state)
{
    struct mu_flight f = { 0 };

    enter_all(&f, "a b", "");
    mu_flight_cancel(&f, 1); /* not the last */
    assert_int_equal(f.entered, 2);
    mu_flight_cancel(&f, 2);
    assert_null(mu_flight_find(&f, 2));
    assert_int_equal(mu_flight_enter(&f, "c", 8, 1), 2);
}

static void the_ring_remembers_the_last_collectives(void **state)
{
    struct mu_flight f = { 0 };
    const struct mu_flight_names names = { hosts, gpus, parents };
    char text[512];

    for (int i = 1; i <= 100; i++)
        mu_flight_leave(&f, mu_flight_enter(&f, "x", 8, i), i + 0.5);
    assert_null(mu_flight_find(&f, 0));
    assert_null(mu_flight_find(&f, 100 - MU_FLIGHT_RING));
    assert_non_null(mu_flight_find(&f, 101 - MU_FLIGHT_RING));
    assert_null(mu_flight_find(&f, 101));
    assert_true(mu_flight_find(&f, 100)->left == 100.5);
    mu_flight_leave(&f, 3, 200); /* long overwritten */
    f.now = 102;
    mu_flight_line(&f, 3, &names, text, sizeof text);
    assert_non_null(strstr(text, "rank 3 (node b, GPU 0000:41:00.0): "));
    assert_non_null(strstr(text, "entered 100: x, 8 bytes, 2.0 s ago, done"));
}

static void lists_of_ranks_are_short(void **state)
{
    const bool in[8] = { true, true, true, false, true, true, false, true };
    const bool one[3] = { false, true, false };
    char text[64], little[48];
    bool many[64];

    mu_ranks_text(in, 8, text, sizeof text);
    assert_string_equal(text, "ranks 0-2, 4, 5, 7");
    mu_ranks_text(one, 3, text, sizeof text);
    assert_string_equal(text, "rank 1");
    for (int i = 0; i < 64; i++)
        many[i] = i % 2;
    mu_ranks_text(many, 64, little, sizeof little);
    assert_non_null(strstr(little, ", ..."));
}

static void contracts_find_the_first_difference_and_both_sides(void **state)
{
    struct mu_contract a = { 0 }, b = { 0 };
    const uint64_t *hash[3];
    const char *line[3];
    int n[3];
    char text[256];

    for (int i = 0; i < 100; i++) {
        assert_int_equal(mu_contract_add(&a, NULL, "parameter %d", i), 0);
        assert_int_equal(
            mu_contract_add(&b, NULL, "parameter %d%s", i, i == 77 ? "!" : ""), 0);
    }
    assert_true(mu_contract_total(&a) != mu_contract_total(&b));
    hash[0] = a.hash, hash[1] = b.hash, hash[2] = a.hash;
    n[0] = n[1] = n[2] = 100;
    assert_int_equal(mu_contract_first_difference(hash, n, 3), 77);
    line[0] = a.line[77], line[1] = b.line[77], line[2] = a.line[77];
    mu_contract_sides(line, 3, hosts, text, sizeof text);
    assert_string_equal(text, "parameter 77 on ranks 0, 2, but parameter 77! on rank 1 "
                              "(node a)");
    mu_contract_sides(line, 2, hosts, text, sizeof text);
    assert_string_equal(text, "parameter 77 on rank 0 (node a), but parameter 77! on "
                              "rank 1 (node a)");
    line[1] = line[0], line[2] = b.line[77];
    mu_contract_sides(line, 3, hosts, text, sizeof text);
    assert_string_equal(text, "parameter 77 on ranks 0, 1 (node a), but parameter 77! "
                              "on rank 2 (node b)");
    hash[1] = a.hash;
    assert_int_equal(mu_contract_first_difference(hash, n, 3), -1);
    n[1] = 50; /* a list that is only shorter */
    assert_int_equal(mu_contract_first_difference(hash, n, 3), 50);
    mu_contract_clear(&a);
    mu_contract_clear(&b);
}

/* Every one of the 65536 halves survives the way through float. */
static void all_halves_survive_the_round_trip(void **state)
{
    for (unsigned i = 0; i < 65536; i++) {
        uint16_t h = (uint16_t)i;
        float f = mu_from_f16(h), g = mu_from_bf16(h);

        if (isnan(f))
            assert_true(isnan(mu_from_f16(mu_to_f16(f))));
        else if (mu_to_f16(f) != h)
            fail_msg("f16 %04x -> %g -> %04x", h, (double)f, mu_to_f16(f));
        if (isnan(g))
            assert_true(isnan(mu_from_bf16(mu_to_bf16(g))));
        else if (mu_to_bf16(g) != h)
            fail_msg("bf16 %04x -> %g -> %04x", h, (double)g, mu_to_bf16(g));
    }
}

static const struct half_case {
    float in;
    uint16_t f16, bf16;
} halves[] = {
    { 1, 0x3c00, 0x3f80 },
    { 65504, 0x7bff, 0x4780 },
    { 65519, 0x7bff, 0x4780 },
    { 65520, 0x7c00, 0x4780 },
    { -1e6f, 0xfc00, 0xc974 },
    { 0x1p-24f, 0x0001, 0x3380 },
    { 0x1p-25f, 0x0000, 0x3300 },
    { 0x1.8p-25f, 0x0001, 0x3340 },
    { 1.00048828125f, 0x3c00, 0x3f80 }, /* half way: to even */
    { 1.00146484375f, 0x3c02, 0x3f80 },
    { 1.00390625f, 0x3c04, 0x3f80 }, /* of bf16 half way */
    { 1.01171875f, 0x3c0c, 0x3f82 },
};

static void halves_round_to_nearest_even(void **state)
{
    for (size_t i = 0; i < sizeof halves / sizeof halves[0]; i++)
        if (mu_to_f16(halves[i].in) != halves[i].f16 ||
            mu_to_bf16(halves[i].in) != halves[i].bf16)
            fail_msg("%g: f16 %04x bf16 %04x", (double)halves[i].in,
                     mu_to_f16(halves[i].in), mu_to_bf16(halves[i].in));
}

static void conversion_multiplies_before_it_rounds(void **state)
{
    const float big[3] = { 160000, -160000, 8 };
    uint16_t half[3];
    double wide[3];
    int32_t whole[3];

    assert_int_equal(mu_convert(half, MUSTER_F16, big, MUSTER_F32, 3, 0.125, NULL), 0);
    assert_true(mu_from_f16(half[0]) == 20000 && mu_from_f16(half[1]) == -20000);
    assert_int_equal(mu_convert(wide, MUSTER_F64, half, MUSTER_F16, 3, 8, NULL), 0);
    assert_true(wide[0] == 160000 && wide[2] == 8);
    assert_int_equal(mu_convert(wide, MUSTER_F64, wide, MUSTER_F64, 3, 0.1, NULL), 0);
    assert_true(wide[2] == 8 * 0.1);
    assert_int_equal(mu_convert(whole, MUSTER_I32, big, MUSTER_F32, 3, 1, NULL), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_verdict_names_the_rank_that_is_to_blame),
        cmocka_unit_test(ranks_that_wait_for_each_other_are_found_before_the_deadline),
        cmocka_unit_test(another_order_is_proved_by_the_records),
        cmocka_unit_test(a_collective_that_did_not_start_leaves_its_number),
        cmocka_unit_test(the_ring_remembers_the_last_collectives),
        cmocka_unit_test(lists_of_ranks_are_short),
        cmocka_unit_test(contracts_find_the_first_difference_and_both_sides),
        cmocka_unit_test(all_halves_survive_the_round_trip),
        cmocka_unit_test(halves_round_to_nearest_even),
        cmocka_unit_test(conversion_multiplies_before_it_rounds),
    };

    return cmocka_run_group_tests_name("flight", tests, NULL, NULL);
}
