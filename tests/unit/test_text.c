/* SPDX-License-Identifier: BSD-3-Clause */
/* test_text.c - texts of runtime/core: numbers, lists of ranks, sides of a contract */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "runtime/core/contract.h"
#include "runtime/core/ranks.h"
#include "runtime/core/text.h"

static const char *const hosts[] = { "a", "a", "b" };

static void words_and_numbers_fill_a_text_to_its_end(void **state)
{
    static const uint64_t numbers[] = { 0, 9, 10, 4194304, UINT64_MAX };
    char text[32], want[32];

    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        size_t at = 0;

        mu_text_add_word(text, sizeof text, &at, "sum of ");
        mu_text_add_number(text, sizeof text, &at, numbers[i]);
        snprintf(want, sizeof want, "sum of %llu", (unsigned long long)numbers[i]);
        assert_string_equal(text, want);
        assert_int_equal(at, strlen(want));
    }
    for (size_t room = 1; room < 8; room++) {
        size_t at = 0;

        memset(text, '#', sizeof text);
        text[0] = '\0';
        mu_text_add_word(text, room, &at, "abcdef");
        mu_text_add_number(text, room, &at, 12345);
        assert_int_equal(strlen(text), room - 1);
        assert_int_equal(text[room], '#');
    }
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_and_numbers_fill_a_text_to_its_end),
        cmocka_unit_test(lists_of_ranks_are_short),
        cmocka_unit_test(contracts_find_the_first_difference_and_both_sides),
    };

    return cmocka_run_group_tests_name("text", tests, NULL, NULL);
}
