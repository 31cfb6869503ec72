/* SPDX-License-Identifier: BSD-3-Clause */
/* test_flight.c - flight records: who is to blame, and who waits for whom */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "runtime/core/flight.h"
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
      "rank 1 (node a) does not answer (stopped, or its node hangs); rank 0 (node a) "
      "waits for all" },
    { "a whole node does not answer",
      4,
      { 9, 9, -1, -1 },
      NULL,
      2,
      "rank 2 (node b) does not answer (stopped, or its node hangs); 1 rank behind "
      "it cannot report; rank 0 (node a) waits for all" },
    { "silence is worse than lateness",
      3,
      { 9, 3, -1 },
      NULL,
      2,
      "rank 2 (node b) does not answer (stopped, or its node hangs); rank 0 (node a) "
      "waits for all" },
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_verdict_names_the_rank_that_is_to_blame),
        cmocka_unit_test(ranks_that_wait_for_each_other_are_found_before_the_deadline),
        cmocka_unit_test(another_order_is_proved_by_the_records),
        cmocka_unit_test(a_collective_that_did_not_start_leaves_its_number),
        cmocka_unit_test(the_ring_remembers_the_last_collectives),
    };

    return cmocka_run_group_tests_name("flight", tests, NULL, NULL);
}
