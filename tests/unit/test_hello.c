/* SPDX-License-Identifier: BSD-3-Clause */
/* test_hello.c - both ends prove the secret; what was recorded proves nothing again */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/endpoint/hello.h"
#include "runtime/endpoint/net.h"

enum { GREETING = 20, ANSWER = 44 };

static const uint8_t secret[MU_PROOF_SECRET] = "0123456789abcdef0123456789abcde";
static const uint8_t another[MU_PROOF_SECRET] = "0123456789abcdef0123456789abcdX";

/* Rank 3 calls rank 7 over fd[0]; rank 7 accepts on fd[1]. */
struct pair {
    int fd[2];
    struct mu_hello caller, called;
};

static void begin(struct pair *p, enum mu_hello_kind kind, const uint8_t *callers,
                  int to)
{
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, p->fd), 0);
    assert_true(mu_hello_call(&p->caller, kind, callers, 3, to));
    assert_true(mu_hello_accept(&p->called, p->fd[1], MU_HELLO_CONTROL, secret, 7));
}

static void end(struct pair *p)
{
    close(p->fd[0]);
    close(p->fd[1]);
}

static enum mu_hello_result result_of_call(enum mu_hello_kind kind,
                                           const uint8_t *callers, int to)
{
    enum mu_hello_result result;
    struct pair p;

    begin(&p, kind, callers, to);
    assert_int_equal(mu_hello_step(&p.caller, p.fd[0]), MU_HELLO_PENDING);
    result = mu_hello_step(&p.called, p.fd[1]);
    end(&p);
    return result;
}

static void both_ends_are_proved_and_the_rank_is_known(void **state)
{
    struct pair p;

    begin(&p, MU_HELLO_CONTROL, secret, 7);
    assert_int_equal(mu_hello_step(&p.called, p.fd[1]), MU_HELLO_PENDING);
    assert_int_equal(mu_hello_step(&p.caller, p.fd[0]), MU_HELLO_PENDING);
    assert_int_equal(mu_hello_step(&p.called, p.fd[1]), MU_HELLO_PROVED);
    assert_int_equal(p.called.peer, 3);
    /* The caller believes nothing before the other end's proof. */
    assert_int_equal(mu_hello_step(&p.caller, p.fd[0]), MU_HELLO_PENDING);
    assert_true(mu_hello_confirm(&p.called, p.fd[1]));
    assert_int_equal(send(p.fd[1], "data", 4, 0), 4);
    assert_int_equal(mu_hello_wait(&p.caller, p.fd[0], mu_clock_s() + 5),
                     MU_HELLO_PROVED);
    {
        char data[8];

        assert_int_equal(recv(p.fd[0], data, sizeof data, 0), 4); /* none is lost */
    }
    end(&p);
}

static void another_secret_kind_or_rank_is_a_stranger(void **state)
{
    assert_int_equal(result_of_call(MU_HELLO_CONTROL, secret, 7), MU_HELLO_PROVED);
    assert_int_equal(result_of_call(MU_HELLO_CONTROL, another, 7), MU_HELLO_UNPROVED);
    assert_int_equal(result_of_call(MU_HELLO_SURVIVE, secret, 7), MU_HELLO_UNPROVED);
    assert_int_equal(result_of_call(MU_HELLO_RING, secret, 7), MU_HELLO_UNPROVED);
    assert_int_equal(result_of_call(MU_HELLO_CONTROL, secret, 6), MU_HELLO_UNPROVED);
}

static void a_recorded_answer_proves_nothing_on_another_connection(void **state)
{
    unsigned char answer[ANSWER];
    struct pair p, again;

    begin(&p, MU_HELLO_CONTROL, secret, 7);
    begin(&again, MU_HELLO_CONTROL, secret, 7);
    assert_int_equal(mu_hello_step(&p.caller, p.fd[0]), MU_HELLO_PENDING);
    assert_int_equal(recv(p.fd[1], answer, sizeof answer, 0), ANSWER);
    assert_int_equal(send(again.fd[0], answer, ANSWER, 0), ANSWER);
    assert_int_equal(mu_hello_step(&again.called, again.fd[1]), MU_HELLO_UNPROVED);
    end(&p);
    end(&again);
}

static void another_rank_in_a_recorded_answer_is_noticed(void **state)
{
    unsigned char answer[ANSWER];
    struct pair p;
    int32_t from = 5;

    begin(&p, MU_HELLO_CONTROL, secret, 7);
    assert_int_equal(mu_hello_step(&p.caller, p.fd[0]), MU_HELLO_PENDING);
    assert_int_equal(recv(p.fd[1], answer, sizeof answer, 0), ANSWER);
    memcpy(answer + 4, &from, sizeof from);
    assert_int_equal(send(p.fd[0], answer, ANSWER, 0), ANSWER);
    assert_int_equal(mu_hello_step(&p.called, p.fd[1]), MU_HELLO_UNPROVED);
    end(&p);
}

/* The one that accepts has no secret and returns the caller's own proof. */
static void the_callers_own_proof_is_not_believed(void **state)
{
    unsigned char answer[ANSWER];
    struct pair p;

    begin(&p, MU_HELLO_CONTROL, secret, 7);
    assert_int_equal(mu_hello_step(&p.caller, p.fd[0]), MU_HELLO_PENDING);
    assert_int_equal(recv(p.fd[1], answer, sizeof answer, 0), ANSWER);
    assert_int_equal(send(p.fd[1], answer + ANSWER - MU_PROOF_LEN, MU_PROOF_LEN, 0),
                     MU_PROOF_LEN);
    assert_int_equal(mu_hello_step(&p.caller, p.fd[0]), MU_HELLO_UNPROVED);
    end(&p);
}

static void bytes_may_arrive_one_by_one_and_a_silent_end_is_given_up(void **state)
{
    unsigned char answer[ANSWER];
    struct pair p;
    double begun;

    begin(&p, MU_HELLO_CONTROL, secret, 7);
    assert_int_equal(mu_hello_step(&p.caller, p.fd[0]), MU_HELLO_PENDING);
    assert_int_equal(recv(p.fd[1], answer, sizeof answer, 0), ANSWER);
    for (int i = 0; i < ANSWER; i++) {
        assert_int_equal(mu_hello_step(&p.called, p.fd[1]), MU_HELLO_PENDING);
        assert_int_equal(send(p.fd[0], answer + i, 1, 0), 1);
    }
    assert_int_equal(mu_hello_step(&p.called, p.fd[1]), MU_HELLO_PROVED);
    begun = mu_clock_s();
    assert_int_equal(mu_hello_wait(&p.caller, p.fd[0], begun + 0.2), MU_HELLO_GONE);
    assert_true(mu_clock_s() - begun >= 0.2);
    close(p.fd[1]);
    assert_int_equal(mu_hello_step(&p.caller, p.fd[0]), MU_HELLO_GONE);
    close(p.fd[0]);
}

static void secrets_differ_in_each_byte(void **state)
{
    uint8_t other[MU_PROOF_SECRET];

    assert_true(mu_secret_equal(secret, secret));
    for (int i = 0; i < MU_PROOF_SECRET; i++) {
        memcpy(other, secret, sizeof other);
        other[i] ^= 0x80;
        assert_false(mu_secret_equal(secret, other));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_ends_are_proved_and_the_rank_is_known),
        cmocka_unit_test(another_secret_kind_or_rank_is_a_stranger),
        cmocka_unit_test(a_recorded_answer_proves_nothing_on_another_connection),
        cmocka_unit_test(another_rank_in_a_recorded_answer_is_noticed),
        cmocka_unit_test(the_callers_own_proof_is_not_believed),
        cmocka_unit_test(bytes_may_arrive_one_by_one_and_a_silent_end_is_given_up),
        cmocka_unit_test(secrets_differ_in_each_byte),
    };

    return cmocka_run_group_tests_name("hello", tests, NULL, NULL);
}
