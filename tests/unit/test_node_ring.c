/* SPDX-License-Identifier: BSD-3-Clause */
/* test_node_ring.c - a ring of nodes in which a rank dies, stands still, or is a
 * stranger */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "runtime/boot/node_ring.h"

enum { SIZE = 6 };

/* Ranks of three nodes in no order; the first ones are 0, 1 and 4. */
static const uint64_t node_of[SIZE] = { 7, 9, 7, 9, 3, 3 };
static const int first[3] = { 0, 1, 4 };

static void open_all(struct mu_node_ring *n)
{
    char host[16];

    for (int r = 0; r < SIZE; r++) {
        snprintf(host, sizeof host, "node%d", (int)node_of[r]);
        mu_node_ring_open(&n[r], r, node_of, SIZE, host);
        mu_node_ring_enter(&n[r]);
    }
}

static void tell_all(struct mu_node_ring *n)
{
    for (int i = 0; i < 3; i++) {
        struct mu_node_ring *at = &n[first[i]];

        mu_node_ring_set_next(at, &n[at->next].mine, sizeof at->mine);
    }
}

static void close_all(struct mu_node_ring *n)
{
    for (int r = 0; r < SIZE; r++)
        mu_node_ring_close(&n[r]);
}

/* All of them look for a while; the rank that the last one names. */
static int look(struct mu_node_ring *n, int rank, const char **host)
{
    int lost = -1;

    for (int i = 0; i < 150 && lost < 0; i++) {
        for (int k = 0; k < 3; k++)
            if (first[k] != rank)
                mu_node_ring_poll(&n[first[k]], host);
        lost = mu_node_ring_poll(&n[rank], host);
        usleep(2000);
    }
    return lost;
}

static void the_first_ranks_of_the_nodes_form_it(void **state)
{
    static const int next[SIZE] = { 1, 4, -1, -1, 0, -1 };
    static const int before[SIZE] = { 4, 0, -1, -1, 1, -1 };
    static const uint64_t one[2] = { 5, 5 };
    struct mu_node_ring n[SIZE], alone;

    open_all(n);
    for (int r = 0; r < SIZE; r++) {
        assert_int_equal(n[r].next, next[r]);
        assert_int_equal(n[r].before, before[r]);
    }
    close_all(n);
    mu_node_ring_open(&alone, 0, one, 2, "a");
    assert_int_equal(alone.next, -1);
    mu_node_ring_close(&alone);
}

static void a_rank_that_dies_is_named_with_its_node_by_both_beside_it(void **state)
{
    struct mu_node_ring n[SIZE];
    const char *host;

    open_all(n);
    assert_int_equal(look(n, 0, &host), -1); /* nobody has been told of anybody */
    tell_all(n);
    assert_int_equal(look(n, 0, &host), -1);
    assert_true(n[0].to.fd >= 0 && n[0].from.fd >= 0);
    mu_node_ring_close(&n[4]);
    assert_int_equal(look(n, 1, &host), 4);
    assert_string_equal(host, "node3");
    assert_int_equal(look(n, 0, &host), 4);
    assert_string_equal(host, "node3");
    close_all(n);
}

static void one_that_does_not_enter_the_next_fence_is_told(void **state)
{
    struct mu_node_ring n[SIZE];
    const char *host;

    open_all(n);
    tell_all(n);
    assert_int_equal(look(n, 0, &host), -1);
    for (int i = 0; i < 3; i++)
        assert_int_equal(mu_node_ring_behind(&n[first[i]]), -1);
    mu_node_ring_enter(&n[0]);
    mu_node_ring_enter(&n[4]);
    assert_int_equal(look(n, 0, &host), -1);
    assert_int_equal(mu_node_ring_behind(&n[0]), 1);
    assert_int_equal(mu_node_ring_behind(&n[4]), 1);
    close_all(n);
}

/* It answers the nonce without the secret, and hangs up. */
static void call_as_a_stranger(struct mu_node_ring *n, int rank)
{
    struct sockaddr_in at = { .sin_family = AF_INET,
                              .sin_port = htons((uint16_t)n->mine.port) };
    const uint8_t guess[MU_PROOF_SECRET] = { 0 };
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct mu_hello hello;

    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_true(mu_hello_call(&hello, MU_HELLO_RING, guess, rank, 0));
    for (int i = 0; i < 500 && !hello.answered; i++) {
        const char *host;

        mu_node_ring_poll(n, &host);
        assert_int_equal(mu_hello_step(&hello, fd), MU_HELLO_PENDING);
        usleep(1000);
    }
    assert_true(hello.answered);
    close(fd);
}

static void strangers_are_not_taken_for_ranks(void **state)
{
    struct mu_node_ring n[SIZE];
    const char *host;

    open_all(n);
    for (int i = 0; i < 10; i++)
        call_as_a_stranger(&n[0], 4);
    assert_int_equal(look(n, 0, &host), -1);
    assert_int_equal(n[0].from.fd, -1);
    tell_all(n);
    assert_int_equal(look(n, 0, &host), -1); /* rank 4 is let in nevertheless */
    assert_true(n[0].from.fd >= 0);
    close_all(n);
}

/* The first address leads to somebody else who hangs up: the next one is tried. */
static void a_wrong_address_is_no_death(void **state)
{
    struct mu_node_ring n[SIZE];
    const char *host;

    open_all(n);
    tell_all(n);
    strcpy(n[0].theirs.address, "127.0.0.2,192.0.2.1,127.0.0.1");
    memset(n[1].theirs.secret, 0, sizeof n[1].theirs.secret);
    assert_int_equal(look(n, 0, &host), -1);
    assert_int_equal(n[1].to.fd, -1); /* what answers there is not rank 4 */
    assert_int_equal(look(n, 1, &host), -1);
    close_all(n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_ranks_of_the_nodes_form_it),
        cmocka_unit_test(a_rank_that_dies_is_named_with_its_node_by_both_beside_it),
        cmocka_unit_test(one_that_does_not_enter_the_next_fence_is_told),
        cmocka_unit_test(strangers_are_not_taken_for_ranks),
        cmocka_unit_test(a_wrong_address_is_no_death),
    };

    return cmocka_run_group_tests_name("node ring", tests, NULL, NULL);
}
