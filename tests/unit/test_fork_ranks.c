/* SPDX-License-Identifier: BSD-3-Clause */
/* test_fork_ranks.c - the harness that forks ranks for other tests and for muster bench
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/muster.h"
#include "runtime/tools/fork_ranks.h"
#include "tests/unit/patience.h"

#define LINE(cond)                                                                     \
    do {                                                                               \
        if (!(cond))                                                                   \
            return (fprintf(stderr, "# line %d: " #cond "\n", __LINE__), 1);           \
    } while (0)

static struct mu_fork_end end;

static int run(struct mu_fork_spec spec, int (*body)(struct mu_fork_rank *, void *))
{
    memset(&end, 0, sizeof end);
    if (spec.limit == 0)
        spec.limit = 20 * PATIENCE;
    return mu_fork_ranks(&spec, body, NULL, &end);
}

/* The value of this key and rank, -1: none. */
static int get(struct mu_fork_rank *self, int rank, const char *key)
{
    struct mu_err err = { 0 };
    void *value;
    size_t len;
    int v = -1;

    if (self->exchange.fetch(self, rank, key, &value, &len, 5, &err) < 0)
        return err.code == MUSTER_ERENDEZVOUS ? -1 : -2;
    if (len == sizeof v)
        memcpy(&v, value, sizeof v);
    free(value);
    return v;
}

static int put(struct mu_fork_rank *self, const char *key, int value)
{
    return self->exchange.publish(self, key, &value, sizeof value, NULL);
}

static int fence(struct mu_fork_rank *self)
{
    return self->exchange.fence(self, 10, NULL);
}

/* A rank publishes once in an epoch, or twice, or leaves one out, and runs ahead of the
 * readers as far as the fence lets it.
 */
static int exchanges(struct mu_fork_rank *self, void *arg)
{
    double start = mu_clock_s();

    LINE(get(self, 1, "a") == -1 && mu_clock_s() - start < 1); /* not after 5 s */
    LINE(put(self, "a", 10 + self->rank) == 0);
    LINE(get(self, self->rank, "a") == -1);
    for (int i = 0; i < 2000; i++) {
        int last = i - (i > 0 && (i - 1) % 3 == 2); /* the epoch of the newest value */

        LINE(fence(self) == 0);
        if (i % 3 == 1)
            LINE(put(self, "a", -7) == 0);
        if (i % 3 != 2)
            LINE(put(self, "a", 100 * (i + 1) + self->rank) == 0);
        for (int r = 0; r < self->size; r++)
            LINE(get(self, r, "a") == (i == 0 ? 10 : 100 * last) + r);
    }
    LINE(get(self, 0, "b") == -1);
    return 0;
}

static void a_value_is_valid_from_the_next_fence_on(void **state)
{
    assert_int_equal(run((struct mu_fork_spec){ .size = 4 }, exchanges), 0);
}

static int fills(struct mu_fork_rank *self, void *arg)
{
    char key[16], longest[2049] = { 0 };
    struct mu_err err = { 0 };
    int n = 0;

    for (int i = 0; i < 256; i++) {
        snprintf(key, sizeof key, "%d", i);
        n += put(self, key, i) == 0;
    }
    LINE(n == 256 && put(self, "7", 5) == 0);
    LINE(self->exchange.publish(self, "more", &n, sizeof n, &err) < 0 &&
         err.code == MUSTER_EINTERNAL);
    LINE(self->exchange.publish(self, "9", longest, 2048, &err) == 0);
    LINE(self->exchange.publish(self, "9", longest, 2049, &err) < 0);
    LINE(fence(self) == 0 && get(self, 1 - self->rank, "7") == 5 &&
         get(self, 1 - self->rank, "255") == 255);
    return 0;
}

static void a_key_or_value_too_many_is_refused(void **state)
{
    assert_int_equal(run((struct mu_fork_spec){ .size = 2 }, fills), 0);
}

static int waits(struct mu_fork_rank *self, void *arg)
{
    struct mu_err err = { 0 };

    LINE(self->pid[1] == 0 && self->pid[self->rank] == getpid());
    LINE(self->exchange.fence(self, 0.3, &err) < 0);
    LINE(err.code == MUSTER_ERENDEZVOUS);
    LINE(strcmp(err.text, "rank 1 did not arrive within 0.3 s") == 0);
    return 0;
}

static void a_fence_names_the_rank_that_is_missing(void **state)
{
    assert_int_equal(run((struct mu_fork_spec){ .size = 3, .skip = 2 }, waits), 0);
    assert_int_equal(end.status[1], 0);
    assert_true(end.seconds[1] == 0 && end.seconds[0] >= 0.3);
}

static int reports(struct mu_fork_rank *self, void *arg)
{
    int others = 0;

    for (int r = 0; r < self->size; r++)
        others += self->pid[r] > 0 && kill(self->pid[r], 0) == 0;
    self->results[self->rank] = others;
    self->results[63] += 1;
    for (int i = 0; i < MU_TOKEN_LEN; i++)
        self->results[10 + self->rank] =
            self->results[10 + self->rank] * 3 + self->token[i];
    return fence(self);
}

static void every_rank_has_all_process_ids_and_leaves_its_results(void **state)
{
    assert_int_equal(run((struct mu_fork_spec){ .size = 8 }, reports), 0);
    for (int r = 0; r < 8; r++) {
        assert_int_equal(end.results[r], 8);
        assert_int_equal(end.results[10 + r], end.results[10]);
    }
    assert_int_equal(end.results[63], 8);
    assert_true(end.results[10] != 0);
}

static int ends_or_hangs(struct mu_fork_rank *self, void *arg)
{
    if (self->rank == 0)
        raise(SIGTERM);
    if (self->rank == 1)
        usleep(200000);
    if (self->rank >= 2)
        pause();
    return 42;
}

static void after_a_failure_the_rest_has_a_limited_time(void **state)
{
    int rc = run((struct mu_fork_spec){ .size = 4, .patience = 0.6 }, ends_or_hangs);

    assert_int_equal(rc, 42); /* and not 128 + SIGTERM, which was first */
    assert_int_equal(end.status[0], 128 + SIGTERM);
    assert_int_equal(end.status[1], 42);
    assert_int_equal(end.status[2], 128 + SIGKILL);
    assert_int_equal(end.status[3], 128 + SIGKILL);
    assert_int_equal(end.killed, 2);
    assert_true(end.seconds[2] >= 0.6 && end.seconds[2] < 5 * PATIENCE);
}

static int stops(struct mu_fork_rank *self, void *arg)
{
    if (self->rank == 1)
        raise(SIGSTOP);
    return 0;
}

static void a_rank_that_is_late_is_killed(void **state)
{
    int rc = run((struct mu_fork_spec){ .size = 2, .limit = 0.5 }, stops);

    assert_int_equal(rc, 128 + SIGKILL);
    assert_int_equal(end.status[0], 0);
    assert_int_equal(end.killed, 1);
    assert_true(end.seconds[1] >= 0.5 && end.seconds[1] < 5 * PATIENCE);
}

static void a_size_out_of_range_is_refused(void **state)
{
    assert_int_equal(run((struct mu_fork_spec){ .size = 0 }, stops), -1);
    assert_int_equal(run((struct mu_fork_spec){ .size = MU_FORK_MAX + 1 }, stops), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_value_is_valid_from_the_next_fence_on),
        cmocka_unit_test(a_key_or_value_too_many_is_refused),
        cmocka_unit_test(a_fence_names_the_rank_that_is_missing),
        cmocka_unit_test(every_rank_has_all_process_ids_and_leaves_its_results),
        cmocka_unit_test(after_a_failure_the_rest_has_a_limited_time),
        cmocka_unit_test(a_rank_that_is_late_is_killed),
        cmocka_unit_test(a_size_out_of_range_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
