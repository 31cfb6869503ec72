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

#include "runtime/endpoint/hello.h"

enum { ANSWER = MU_HELLO_RESPONSE };

static const uint8_t secret[MU_TOKEN_LEN] = "0123456789abcdef0123456789abcde";
static const uint8_t another[MU_TOKEN_LEN] = "0123456789abcdef0123456789abcdX";
static const uint8_t seven[MU_ADDRESS_ID] = "endpoint seven.", six[MU_ADDRESS_ID] = "6";
static const struct mu_claim claim = { MU_SERVICE_CONTROL, 5, 3 };

/* Rank 3 calls over fd[0]; endpoint seven accepts on fd[1]. */
struct pair {
    int fd[2];
    struct mu_hello caller, called;
};

static void begin(struct pair *p, const uint8_t *callers, const uint8_t *to)
{
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, p->fd), 0);
    assert_true(mu_hello_call(&p->caller, &claim, to, callers));
    assert_true(mu_hello_accept(&p->called, p->fd[1], seven));
}

static void end(struct pair *p)
{
    close(p->fd[0]);
    close(p->fd[1]);
}

static bool is_proved(const uint8_t *callers, const uint8_t *to)
{
    struct pair p;
    bool result;

    begin(&p, callers, to);
    assert_int_equal(mu_hello_step(&p.caller, p.fd[0]), MU_HELLO_PENDING);
    assert_int_equal(mu_hello_step(&p.called, p.fd[1]), MU_HELLO_CLAIMED);
    result = mu_hello_judge(&p.called, secret);
    end(&p);
    return result;
}

static void both_ends_are_proved_and_the_claim_is_known(void **state)
{
    char data[8];
    struct pair p;

    begin(&p, secret, seven);
    assert_int_equal(mu_hello_step(&p.called, p.fd[1]), MU_HELLO_PENDING);
    assert_int_equal(mu_hello_step(&p.caller, p.fd[0]), MU_HELLO_PENDING);
    assert_int_equal(mu_hello_step(&p.called, p.fd[1]), MU_HELLO_CLAIMED);
    assert_true(mu_hello_judge(&p.called, secret));
    assert_int_equal(p.called.claim.service, MU_SERVICE_CONTROL);
    assert_int_equal(p.called.claim.generation, 5);
    assert_int_equal(p.called.claim.rank, 3);
    /* The caller believes nothing before the other end's proof. */
    assert_int_equal(mu_hello_step(&p.caller, p.fd[0]), MU_HELLO_PENDING);
    assert_true(mu_hello_confirm(&p.called, p.fd[1], secret));
    assert_int_equal(send(p.fd[1], "data", 4, 0), 4);
    assert_int_equal(mu_hello_step(&p.caller, p.fd[0]), MU_HELLO_PROVED);
    assert_int_equal(recv(p.fd[0], data, sizeof data, 0), 4); /* none is lost */
    end(&p);
}

static void another_secret_or_endpoint_is_a_stranger(void **state)
{
    assert_true(is_proved(secret, seven));
    assert_false(is_proved(another, seven));
    assert_false(is_proved(secret, six));
}

static void record_answer(struct pair *p, unsigned char answer[ANSWER])
{
    begin(p, secret, seven);
    assert_int_equal(mu_hello_step(&p->caller, p->fd[0]), MU_HELLO_PENDING);
    assert_int_equal(recv(p->fd[1], answer, ANSWER, 0), ANSWER);
}

static void a_recorded_answer_proves_nothing_on_another_connection(void **state)
{
    unsigned char answer[ANSWER];
    struct pair p, again;

    record_answer(&p, answer);
    begin(&again, secret, seven);
    assert_int_equal(send(again.fd[0], answer, ANSWER, 0), ANSWER);
    assert_int_equal(mu_hello_step(&again.called, again.fd[1]), MU_HELLO_CLAIMED);
    assert_false(mu_hello_judge(&again.called, secret));
    end(&p);
    end(&again);
}

/* A byte of the service, the generation, the rank, the nonce and the proof. */
static void any_byte_that_differs_in_a_recorded_answer_is_noticed(void **state)
{
    static const int at[] = { 4, 8, 16, 24, ANSWER - 1 };

    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        unsigned char answer[ANSWER];
        struct pair p;

        record_answer(&p, answer);
        answer[at[i]] ^= 1;
        assert_int_equal(send(p.fd[0], answer, ANSWER, 0), ANSWER);
        assert_int_equal(mu_hello_step(&p.called, p.fd[1]), MU_HELLO_CLAIMED);
        assert_false(mu_hello_judge(&p.called, secret));
        end(&p);
    }
}

static void a_service_that_does_not_exist_is_refused(void **state)
{
    unsigned char answer[ANSWER];
    struct pair p;

    record_answer(&p, answer);
    answer[7] = 0x7f;
    assert_int_equal(send(p.fd[0], answer, ANSWER, 0), ANSWER);
    assert_int_equal(mu_hello_step(&p.called, p.fd[1]), MU_HELLO_UNPROVED);
    end(&p);
}

/* The one that accepts has no secret and returns the caller's own proof. */
static void the_callers_own_proof_is_not_believed(void **state)
{
    unsigned char answer[ANSWER];
    struct pair p;

    record_answer(&p, answer);
    assert_int_equal(send(p.fd[1], answer + ANSWER - MU_HELLO_PROOF, MU_HELLO_PROOF, 0),
                     MU_HELLO_PROOF);
    assert_int_equal(mu_hello_step(&p.caller, p.fd[0]), MU_HELLO_UNPROVED);
    end(&p);
}

static void bytes_may_arrive_one_by_one(void **state)
{
    unsigned char answer[ANSWER];
    struct pair p;

    record_answer(&p, answer);
    for (int i = 0; i < ANSWER; i++) {
        assert_int_equal(mu_hello_step(&p.called, p.fd[1]), MU_HELLO_PENDING);
        assert_int_equal(send(p.fd[0], answer + i, 1, 0), 1);
    }
    assert_int_equal(mu_hello_step(&p.called, p.fd[1]), MU_HELLO_CLAIMED);
    assert_true(mu_hello_judge(&p.called, secret));
    close(p.fd[1]);
    assert_int_equal(mu_hello_step(&p.caller, p.fd[0]), MU_HELLO_GONE);
    close(p.fd[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_ends_are_proved_and_the_claim_is_known),
        cmocka_unit_test(another_secret_or_endpoint_is_a_stranger),
        cmocka_unit_test(a_recorded_answer_proves_nothing_on_another_connection),
        cmocka_unit_test(any_byte_that_differs_in_a_recorded_answer_is_noticed),
        cmocka_unit_test(a_service_that_does_not_exist_is_refused),
        cmocka_unit_test(the_callers_own_proof_is_not_believed),
        cmocka_unit_test(bytes_may_arrive_one_by_one),
    };

    return cmocka_run_group_tests_name("hello", tests, NULL, NULL);
}
