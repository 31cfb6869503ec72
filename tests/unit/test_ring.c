/* SPDX-License-Identifier: BSD-3-Clause */
/* test_ring.c - rings in which a rank dies, is late, or is called by a stranger */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/boot/ring.h"

enum { SIZE = 6 };

/* Ranks of three nodes in no order; the first ones are 0, 1 and 4. */
static const uint64_t node_of[SIZE] = { 7, 9, 7, 9, 3, 3 };

static struct mu_endpoint *endpoint[SIZE];

static void open_rank(struct mu_ring *n, int r, const uint64_t *nodes, int size)
{
    char host[16];

    assert_int_equal(mu_endpoint_open(NULL, &endpoint[r], NULL), 0);
    snprintf(host, sizeof host, "node%d", (int)nodes[r]);
    mu_ring_open(&n[r], endpoint[r], r, nodes, size, host);
    mu_ring_enter(&n[r]);
}

static void open_all(struct mu_ring *n)
{
    for (int r = 0; r < SIZE; r++)
        open_rank(n, r, node_of, SIZE);
}

static void tell(struct mu_ring *n, int r)
{
    for (int k = 0; k < MU_RINGS; k++)
        if (n[r].side[k].next >= 0)
            mu_ring_set_next(&n[r], (enum mu_ring_kind)k, &n[n[r].side[k].next].mine,
                             sizeof n[r].mine);
}

static void tell_all(struct mu_ring *n)
{
    for (int r = 0; r < SIZE; r++)
        tell(n, r);
}

/* As a process that dies. */
static void end(struct mu_ring *n, int r)
{
    mu_ring_close(&n[r]);
    mu_endpoint_close(endpoint[r]);
    endpoint[r] = NULL;
}

static void end_all(struct mu_ring *n)
{
    for (int r = 0; r < SIZE; r++)
        end(n, r);
}

/* Ranks look until each ring is closed. */
static void connect_all(struct mu_ring *n, int size)
{
    double until = mu_clock_s() + 10;
    enum mu_ring_kind kind;
    const char *host;
    int open;

    do {
        open = 0;
        for (int r = 0; r < size; r++) {
            assert_int_equal(mu_ring_poll(&n[r], &host, &kind), -1);
            for (int k = 0; k < MU_RINGS; k++)
                open += n[r].side[k].next >= 0 &&
                        (n[r].side[k].to.fd < 0 || n[r].side[k].from.fd < 0);
        }
        usleep(1000);
    } while (open > 0 && mu_clock_s() < until);
    assert_int_equal(open, 0);
}

/* All of them look for a while; the rank that `rank` names. */
static int look(struct mu_ring *n, int rank, const char **host)
{
    enum mu_ring_kind kind;
    int lost = -1;

    for (int i = 0; i < 150 && lost < 0; i++) {
        for (int r = 0; r < SIZE; r++)
            if (r != rank)
                mu_ring_poll(&n[r], host, &kind);
        lost = mu_ring_poll(&n[rank], host, &kind);
        usleep(2000);
    }
    return lost;
}

static void
each_rank_is_in_the_ring_of_its_node_and_the_first_in_that_of_nodes(void **state)
{
    static const int next[MU_RINGS][SIZE] = { { 2, 3, 0, 1, 5, 4 },
                                              { 1, 4, -1, -1, 0, -1 } };
    static const int before[SIZE] = { 4, 0, -1, -1, 1, -1 };
    static const uint64_t unknown[3] = { 5, 0, 5 };
    struct mu_ring n[SIZE];

    open_all(n);
    for (int r = 0; r < SIZE; r++) {
        for (int k = 0; k < MU_RINGS; k++)
            assert_int_equal(n[r].side[k].next, next[k][r]);
        assert_int_equal(n[r].side[MU_RING_NODES].before, before[r]);
    }
    end_all(n);
    open_rank(n, 0, unknown, 3); /* a node is not known: no ring of nodes */
    assert_int_equal(n[0].side[MU_RING_NODE].next, 2);
    assert_int_equal(n[0].side[MU_RING_NODES].next, -1);
    end(n, 0);
    mu_ring_open(&n[0], NULL, 0, unknown, 1, "alone");
    assert_int_equal(n[0].side[MU_RING_NODE].next, -1);
}

static void a_rank_that_dies_is_named_with_its_node_by_all_beside_it(void **state)
{
    struct mu_ring n[SIZE];
    const char *host;

    open_all(n);
    assert_int_equal(look(n, 0, &host), -1); /* nobody has been told of anybody */
    tell_all(n);
    connect_all(n, SIZE);
    end(n, 4);
    assert_int_equal(look(n, 1, &host), 4);
    assert_string_equal(host, "node3");
    assert_int_equal(look(n, 0, &host), 4);
    assert_string_equal(host, "node3");
    assert_int_equal(look(n, 5, &host), 4);
    assert_string_equal(host, "node3");
    assert_int_equal(look(n, 3, &host), -1);
    end_all(n);
}

static void a_rank_that_comes_late_is_no_death(void **state)
{
    static const uint64_t pair[2] = { 8, 8 };
    struct mu_ring n[SIZE];
    enum mu_ring_kind kind;
    const char *host;

    open_rank(n, 0, pair, 2);
    assert_int_equal(mu_ring_poll(&n[0], &host, &kind), -1);
    open_rank(n, 1, pair, 2);
    for (int i = 0; i < 100; i++) {
        for (int r = 0; r < 2; r++) {
            tell(n, r);
            assert_int_equal(mu_ring_poll(&n[r], &host, &kind), -1);
        }
        usleep(1000);
    }
    connect_all(n, 2);
    end(n, 1); /* of two, each is next and before */
    assert_int_equal(mu_ring_poll(&n[0], &host, &kind), 1);
    assert_int_equal(kind, MU_RING_NODE);
    assert_string_equal(host, "node8");
    end(n, 0);
}

/* Both connections in the ring of nodes were made so many seconds ago. */
static void connected(struct mu_ring *n, double ago)
{
    struct mu_ring_side *s = &n->side[MU_RING_NODES];

    s->to.since = s->from.since = mu_clock_s() - ago;
}

static void one_that_does_not_enter_the_next_fence_is_told(void **state)
{
    struct mu_ring n[SIZE];
    const char *host;

    open_all(n);
    tell_all(n);
    connect_all(n, SIZE);
    for (int r = 0; r < SIZE; r++) {
        connected(&n[r], 0);
        assert_int_equal(mu_ring_behind(&n[r]), -1);
    }
    mu_ring_enter(&n[0]);
    mu_ring_enter(&n[4]);
    assert_int_equal(look(n, 0, &host), -1);
    connected(&n[0], 0);
    assert_int_equal(mu_ring_behind(&n[0]), -1);
    connected(&n[0], 1);
    connected(&n[4], 1);
    assert_int_equal(mu_ring_behind(&n[0]), 1);
    assert_int_equal(mu_ring_behind(&n[4]), 1);
    end_all(n);
}

/* It answers the nonce without the secret. */
static void call_as_a_stranger(struct mu_ring *n, bool tcp)
{
    const struct mu_claim claim = { MU_SERVICE_RING_OF_NODES, 0, 4 };
    const uint8_t guess[MU_TOKEN_LEN] = { 0 };
    struct mu_dial d;

    mu_dial_start(&d, &n->mine.address, &n->mine.address, tcp, &claim, guess);
    assert_int_equal(mu_dial_wait(&d, mu_clock_s() + 5), MU_ANSWER_DROPPED);
    assert_true(d.hello.answered);
}

static void strangers_are_not_taken_for_ranks(void **state)
{
    struct mu_ring n[SIZE];
    const char *host;

    open_all(n);
    for (int i = 0; i < 10; i++)
        call_as_a_stranger(&n[0], i % 2);
    assert_int_equal(look(n, 0, &host), -1);
    assert_int_equal(n[0].side[MU_RING_NODES].from.fd, -1);
    tell_all(n);
    connect_all(n, SIZE); /* rank 4 is let in nevertheless */
    end_all(n);
}

/* Neither a wrong secret nor an endpoint that is not there is a death: the rank may
 * come yet.
 */
static void a_call_that_fails_is_no_death(void **state)
{
    struct mu_ring n[SIZE];
    const char *host;

    open_all(n);
    tell_all(n);
    n[0].side[MU_RING_NODES].theirs.address.id[0] ^= 1;
    memset(n[1].side[MU_RING_NODES].theirs.secret, 0, MU_TOKEN_LEN);
    assert_int_equal(look(n, 0, &host), -1);
    assert_int_equal(n[0].side[MU_RING_NODES].to.fd, -1);
    assert_int_equal(n[1].side[MU_RING_NODES].to.fd, -1);
    assert_int_equal(look(n, 1, &host), -1);
    end_all(n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            each_rank_is_in_the_ring_of_its_node_and_the_first_in_that_of_nodes),
        cmocka_unit_test(a_rank_that_dies_is_named_with_its_node_by_all_beside_it),
        cmocka_unit_test(a_rank_that_comes_late_is_no_death),
        cmocka_unit_test(one_that_does_not_enter_the_next_fence_is_told),
        cmocka_unit_test(strangers_are_not_taken_for_ranks),
        cmocka_unit_test(a_call_that_fails_is_no_death),
    };

    return cmocka_run_group_tests_name("ring", tests, NULL, NULL);
}
