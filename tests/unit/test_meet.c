/* SPDX-License-Identifier: BSD-3-Clause */
/* test_meet.c - ranks of a communicator meet, vote and exchange, in real processes */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "runtime/base/clock.h"
#include "runtime/nccl/meet.h"
#include "runtime/nccl/meet_link.h"
#include "tests/unit/patience.h"

enum { MET = 0, ALONE = 10, WRONG = 20 };

/* What one rank does differently. */
struct oddity {
    int rank; /* -1: none */
    bool missing, other_version, votes_no, dies, sleeps, breaks;
};

struct world {
    int size;
    double seconds;
    struct oddity odd;
};

static unsigned char id[128]; /* of this test's communicator */

/* Each rank publishes its square; the second round overwrites nothing. */
static int exchange(struct mu_meet *m, int rank, int size)
{
    struct mu_exchange x = mu_meet_exchange(m);

    for (int round = 0; round < 2; round++) {
        char key[16] = { 'k', (char)('0' + round) };
        int mine = rank * rank + round;

        if (x.publish(x.arg, key, &mine, sizeof mine, NULL) < 0 ||
            x.fence(x.arg, 5, NULL) < 0)
            return WRONG;
        for (int r = 0; r < size; r++) {
            void *value = NULL;
            size_t len = 0;
            bool right = x.fetch(x.arg, r, key, &value, &len, 1, NULL) == 0 &&
                         len == sizeof(int) && *(int *)value == r * r + round;

            free(value);
            if (!right)
                return WRONG + 1;
        }
    }
    return MET;
}

static int rank_of(const struct world *w, int rank)
{
    const struct oddity *odd = rank == w->odd.rank ? &w->odd : &(struct oddity){ 0 };
    struct mu_meet_call call = { .id = id,
                                 .id_len = sizeof id,
                                 .rank = rank,
                                 .size = w->size,
                                 .version = odd->other_version ? "0.2" : "0.1",
                                 .seconds = w->seconds };
    struct mu_err err = { 0 };
    struct mu_meet *m;
    bool all;
    int rc;

    if (odd->missing)
        return ALONE;
    if (odd->sleeps)
        mu_pause(w->seconds / 4);
    m = mu_meet_open(&call, &err);
    if (!m)
        return err.text[0] ? ALONE : WRONG + 3;
    if (odd->dies)
        _exit(ALONE);
    if (odd->breaks) {
        struct mu_exchange x = mu_meet_exchange(m);

        x.fence(x.arg, 0, NULL); /* its time is over at once */
        rc = ALONE;
    } else {
        rc = exchange(m, rank, w->size);
        if (rc >= WRONG && (w->odd.dies || w->odd.breaks))
            rc = ALONE;
    }
    all = mu_meet_vote(m, rc == MET && !odd->votes_no, 5);
    mu_meet_close(m);
    return rc == MET && !all ? ALONE : rc;
}

/* All ranks end with `expected`; returns the seconds that they took. */
static double run(struct world w, int expected)
{
    double from = mu_clock_s();
    pid_t pid[MU_MEET_RANKS];

    for (int i = 0; i < (int)sizeof id; i++)
        id[i] = (unsigned char)random();
    for (int r = 0; r < w.size; r++) {
        pid[r] = fork();
        if (pid[r] == 0)
            _exit(rank_of(&w, r));
    }
    for (int r = 0; r < w.size; r++) {
        int status;

        assert_int_equal(waitpid(pid[r], &status, 0), pid[r]);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), expected);
    }
    return mu_clock_s() - from;
}

static void all_ranks_meet(void **state)
{
    for (int size = 2; size <= MU_MEET_RANKS; size += 3)
        run((struct world){ size, 20, { .rank = -1 } }, MET);
}

static void a_rank_may_be_late(void **state)
{
    for (int r = 0; r < 2; r++)
        run((struct world){ 3, 4, { .rank = r, .sleeps = true } }, MET);
}

static void a_missing_rank_costs_the_time_and_no_more(void **state)
{
    for (int r = 0; r < 3; r += 2) {
        double took =
            run((struct world){ 3, 0.3, { .rank = r, .missing = true } }, ALONE);

        assert_true(took >= 0.3 && took < 0.3 + 5 * PATIENCE);
    }
}

static void another_version_ends_the_meeting_for_all(void **state)
{
    for (int r = 0; r < 2; r++)
        run((struct world){ 2, 20, { .rank = r, .other_version = true } }, ALONE);
    /* of three ranks, the third may not have arrived yet */
    run((struct world){ 3, 2, { .rank = 1, .other_version = true } }, ALONE);
}

static void another_user_is_not_accepted(void **state)
{
    struct sockaddr_un name;
    socklen_t len = sizeof name;
    int fd = mu_meet_listen(id, sizeof id), status;
    pid_t pid;

    if (geteuid() != 0)
        skip();
    assert_int_equal(getsockname(fd, (struct sockaddr *)&name, &len), 0);
    pid = fork();
    if (pid == 0) {
        int from = setuid(65534) == 0 ? socket(AF_UNIX, SOCK_STREAM, 0) : -1;
        char c;

        /* it ends when the listener has closed the connection */
        _exit(connect(from, (struct sockaddr *)&name, len) < 0 ||
              read(from, &c, 1) != 0);
    }
    assert_int_equal(mu_meet_accept(fd, mu_clock_s() + 0.3), -1);
    close(fd);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* A name that another user has bound first is dialled, and left. */
static void another_user_who_has_the_name_is_not_believed(void **state)
{
    int fds[2], status;
    pid_t pid;
    char c;

    if (geteuid() != 0)
        skip();
    assert_int_equal(pipe(fds), 0);
    pid = fork();
    if (pid == 0) {
        struct sockaddr_un name;
        socklen_t len = sizeof name;
        int fd = mu_meet_listen(id, sizeof id);

        /* the name has the user in it: take root's, as another user */
        if (fd < 0 || getsockname(fd, (struct sockaddr *)&name, &len) < 0)
            _exit(1);
        close(fd);
        fd = setuid(65534) == 0 ? socket(AF_UNIX, SOCK_STREAM, 0) : -1;
        if (fd < 0 || bind(fd, (struct sockaddr *)&name, len) < 0 ||
            listen(fd, 1) < 0 || write(fds[1], "x", 1) != 1)
            _exit(2);
        pause();
    }
    assert_int_equal(read(fds[0], &c, 1), 1);
    assert_int_equal(mu_meet_dial(id, sizeof id, mu_clock_s() + 0.05), -1);
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    close(fds[0]);
    close(fds[1]);
}

#define SECRET 8 /* bytes of NCCL's id that others cannot see; the rest is an address */
#define PRIME 0x100000001b3ull

/* FNV-1a is undone byte by byte where the bytes are known, which leaves so little to
 * guess that two such hashes give the secret away.
 */
static void the_name_does_not_lead_back_to_the_id(void **state)
{
    uint64_t inverse = PRIME, secret = 0xcbf29ce484222325ull;
    unsigned long long back;
    struct sockaddr_un name;
    socklen_t len = sizeof name;
    const char *dot;
    int fd;

    for (int i = 0; i < 5; i++) /* Newton, modulo 2^64 */
        inverse *= 2 - PRIME * inverse;
    for (size_t i = 0; i < sizeof id; i++)
        id[i] = (unsigned char)random();
    fd = mu_meet_listen(id, sizeof id);
    memset(&name, 0, sizeof name);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&name, &len), 0);
    close(fd);
    dot = strrchr(name.sun_path + 1, '.');
    assert_int_equal(sscanf(dot, ".%16llx", &back), 1);
    for (size_t i = sizeof id; i-- > SECRET;)
        back = (back * inverse) ^ id[i];
    for (size_t i = 0; i < SECRET; i++)
        secret = (secret ^ id[i]) * PRIME;
    assert_true(back != secret);
    assert_int_equal(strlen(dot), 1 + 32);
}

static void one_vote_decides_for_all(void **state)
{
    for (int r = 0; r < 3; r++)
        run((struct world){ 3, 20, { .rank = r, .votes_no = true } }, ALONE);
}

static void a_rank_that_ends_ends_the_meeting(void **state)
{
    for (int r = 0; r < 3; r++)
        assert_true(run((struct world){ 3, 20, { .rank = r, .dies = true } }, ALONE) <
                    5 * PATIENCE + 5);
}

static void a_fence_that_one_rank_has_left_loses_the_vote(void **state)
{
    for (int r = 0; r < 3; r++)
        run((struct world){ 3, 20, { .rank = r, .breaks = true } }, ALONE);
}

static void sizes_that_cannot_meet(void **state)
{
    static const int sizes[] = { 0, 1, MU_MEET_RANKS + 1 };

    for (int i = 0; i < 3; i++) {
        struct mu_meet_call call = { .id = id, .id_len = 1, .size = sizes[i] };
        struct mu_err err = { 0 };

        assert_null(mu_meet_open(&call, &err));
        assert_non_null(strstr(err.text, "2 to 8 can meet"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_ranks_meet),
        cmocka_unit_test(a_rank_may_be_late),
        cmocka_unit_test(a_missing_rank_costs_the_time_and_no_more),
        cmocka_unit_test(another_version_ends_the_meeting_for_all),
        cmocka_unit_test(another_user_is_not_accepted),
        cmocka_unit_test(another_user_who_has_the_name_is_not_believed),
        cmocka_unit_test(the_name_does_not_lead_back_to_the_id),
        cmocka_unit_test(one_vote_decides_for_all),
        cmocka_unit_test(a_rank_that_ends_ends_the_meeting),
        cmocka_unit_test(a_fence_that_one_rank_has_left_loses_the_vote),
        cmocka_unit_test(sizes_that_cannot_meet),
    };

    srandom((unsigned)getpid());
    return cmocka_run_group_tests(tests, NULL, NULL);
}
