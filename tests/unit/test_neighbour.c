/* SPDX-License-Identifier: BSD-3-Clause */
/* test_neighbour.c - a ring of ranks in which one dies, comes late, or is a stranger */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "runtime/boot/neighbour.h"

enum { SIZE = 6, KEY = 0x5eed };

static uint64_t own_key(void)
{
    return (uint64_t)getpid() << 16 | KEY;
}

/* Ranks of this node by bit; the others are on another one. */
static void open_ring(struct mu_neighbour *n, unsigned here)
{
    bool local[SIZE];

    for (int r = 0; r < SIZE; r++)
        local[r] = here >> r & 1;
    for (int r = 0; r < SIZE; r++)
        if (local[r])
            mu_neighbour_open(&n[r], own_key(), r, local, SIZE);
}

/* As often as ranks look that wait for some time. */
static int look(struct mu_neighbour *n)
{
    int lost = -1;

    for (int i = 0; i < 5 && lost < 0; i++)
        lost = mu_neighbour_poll(n);
    return lost;
}

static void a_rank_that_dies_is_named_by_both_its_neighbours(void **state)
{
    struct mu_neighbour n[SIZE];

    open_ring(n, 1u << 0 | 1u << 2 | 1u << 3 | 1u << 5);
    for (int i = 0; i < 3; i++)
        for (int r = 0; r < SIZE; r++)
            if (r != 1 && r != 4)
                assert_int_equal(look(&n[r]), -1);
    mu_neighbour_close(&n[3]);
    assert_int_equal(look(&n[2]), 3);
    assert_int_equal(look(&n[5]), 3);
    assert_int_equal(look(&n[0]), -1);
    mu_neighbour_close(&n[0]);
    mu_neighbour_close(&n[2]);
    mu_neighbour_close(&n[5]);
}

static void a_rank_that_comes_late_or_is_alone_is_no_death(void **state)
{
    struct mu_neighbour n[SIZE];
    bool pair[2] = { true, true };

    open_ring(n, 1u << 4);
    assert_int_equal(n[4].next, -1);
    assert_int_equal(look(&n[4]), -1);
    mu_neighbour_close(&n[4]);

    mu_neighbour_open(&n[0], own_key(), 0, pair, 2);
    assert_int_equal(look(&n[0]), -1);
    mu_neighbour_open(&n[1], own_key(), 1, pair, 2);
    assert_int_equal(look(&n[1]), -1);
    assert_int_equal(look(&n[0]), -1);
    mu_neighbour_close(&n[1]); /* of two, each is next and before */
    assert_int_equal(look(&n[0]), 1);
    mu_neighbour_close(&n[0]);
}

/* Another user's process, which calls and hangs up. */
static void call_as_nobody(uint64_t key, int rank)
{
    struct sockaddr_un at = { .sun_family = AF_UNIX };
    int len = snprintf(at.sun_path + 1, sizeof at.sun_path - 1,
                       "muster.ring.%016llx.%d", (unsigned long long)key, rank);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    if (setgid(65534) < 0 || setuid(65534) < 0 ||
        connect(fd, (struct sockaddr *)&at,
                (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len)) <
            0)
        _exit(1);
    _exit(0);
}

static void another_users_call_is_not_a_rank(void **state)
{
    struct mu_neighbour n[SIZE];
    uint64_t key = own_key();
    pid_t pid;
    int raw;

    if (geteuid() != 0)
        skip();
    open_ring(n, 1u << 0 | 1u << 1);
    pid = fork();
    if (pid == 0)
        call_as_nobody(key, 0);
    assert_int_equal(waitpid(pid, &raw, 0), pid);
    assert_int_equal(raw, 0);
    assert_int_equal(look(&n[0]), -1);
    assert_int_equal(look(&n[1]), -1);
    assert_int_equal(look(&n[0]), -1); /* rank 1 is let in nevertheless */
    mu_neighbour_close(&n[1]);
    assert_int_equal(look(&n[0]), 1);
    mu_neighbour_close(&n[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_that_dies_is_named_by_both_its_neighbours),
        cmocka_unit_test(a_rank_that_comes_late_or_is_alone_is_no_death),
        cmocka_unit_test(another_users_call_is_not_a_rank),
    };

    return cmocka_run_group_tests_name("neighbour", tests, NULL, NULL);
}
