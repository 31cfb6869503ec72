/* SPDX-License-Identifier: BSD-3-Clause */
/* test_published.c - an exchange over an all-gather, and what it refuses of a rank */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "runtime/boot/published.h"

/* Rank 0 gives what it has; rank 1 sends these lengths, and zeros. */
static int gather(void *arg, const void *mine, size_t len, void *all, double timeout,
                  struct mu_err *err)
{
    const uint64_t *theirs = arg;

    (void)timeout;
    (void)err;
    memset(all, 0, 2 * len);
    memcpy(all, mine, len);
    if (len == sizeof *theirs)
        memcpy((char *)all + len, theirs, len);
    return 0;
}

static char *const met[] = { "a", "b" }, *const not_met[] = { NULL, NULL };

static const struct row {
    const char *name;
    char *const *host_of;
    uint64_t theirs;
    const char *text;
} rows[] = {
    { "a length that no rank sends names the node", met, (uint64_t)1 << 40,
      "rank 1 (node b) sent a length of 1099511627776 bytes in a fence" },
    { "so does a record that is cut", met, 3,
      "what rank 1 (node b) sent in a fence is truncated" },
    { "and a key that is missing", met, 0, "rank 1 (node b) published no key" },
    { "before the ranks have met their nodes are not known", not_met, 3,
      "what rank 1 sent in a fence is truncated" },
    { "an exchange without a world has no nodes", NULL, 0, "rank 1 published no key" },
};

static void refuses(void **state)
{
    const struct row *t = *state;
    uint64_t theirs = t->theirs;
    struct mu_published p = {
        .size = 2, .gather = gather, .arg = &theirs, .host_of = t->host_of
    };
    struct mu_exchange x = mu_published_exchange(&p);
    struct mu_err err = { 0 };
    void *value;
    size_t len;

    assert_int_equal(x.publish(x.arg, "key", "value", 5, &err), 0);
    if (x.fence(x.arg, 1, &err) == 0) {
        assert_int_equal(x.fetch(x.arg, 0, "key", &value, &len, 1, &err), 0);
        assert_int_equal(len, 5);
        assert_memory_equal(value, "value", 5);
        free(value);
        assert_int_equal(x.fetch(x.arg, 1, "key", &value, &len, 1, &err), -1);
    }
    assert_string_equal(err.text, t->text);
    mu_published_clear(&p);
}

int main(void)
{
    struct CMUnitTest tests[sizeof rows / sizeof rows[0]];

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        tests[i] = (struct CMUnitTest){ .name = rows[i].name,
                                        .test_func = refuses,
                                        .initial_state = (void *)(uintptr_t)&rows[i] };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
