/* SPDX-License-Identifier: BSD-3-Clause */
/* test_survive.c - who is named when survivors do not all come: ranks are forked, and
 * read each other's addresses in shared memory
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "runtime/boot/survive_impl.h"
#include "runtime/muster.h"
#include "tests/unit/patience.h"

enum { RANKS = 3 };

struct shared {
    atomic_int ready;
    struct mu_address address[RANKS];
    char text[RANKS][MU_ERR_TEXT];
};

static void pause_seconds(double s)
{
    nanosleep(&(struct timespec){ (time_t)s, (long)((s - (double)(time_t)s) * 1e9) },
              NULL);
}

/* Waits `begin` seconds, then agrees; never with a negative one. */
static void rank(struct shared *sh, int me, double begin, double patience)
{
    const int64_t words[MU_SURVIVE_BALLOT] = { 0 };
    struct mu_err err = { 0 };
    struct mu_world *world = mu_world_new(me, RANKS, "1.0", &err);
    struct mu_survive *s;

    if (!world || mu_world_listen(world, NULL, &err) < 0)
        _exit(1);
    mu_endpoint_set_secret(world->endpoint, MU_SERVICE_SURVIVE, world->token);
    for (int r = 0; r < RANKS; r++)
        world->host_of[r] = strdup(r < 2 ? "a" : "b");
    sh->address[me] = *mu_endpoint_address(world->endpoint);
    atomic_fetch_add(&sh->ready, 1);
    while (atomic_load(&sh->ready) < RANKS)
        pause_seconds(0.001);
    memcpy(world->address, sh->address, sizeof sh->address);
    if (mu_survive_open(world, &s, &err) < 0)
        _exit(1);
    if (begin < 0)
        for (;;)
            pause();
    pause_seconds(begin);
    if (mu_survive_agree(s, words, false, patience, &err) < 0)
        snprintf(sh->text[me], sizeof sh->text[me], "%s", err.text);
    if (me == 1) /* as a process that waits for the head's word to end it */
        pause_seconds(patience);
    mu_survive_close(s);
    mu_world_free(world);
    _exit(0);
}

/* The first to call has waited longest and is not to blame. */
static void who_never_called_is_named_not_who_waited_longest(void **state)
{
    const double patience = 0.6 * PATIENCE, begin[RANKS] = { patience / 2, 0, -1 };
    struct shared *sh = mmap(NULL, sizeof *sh, PROT_READ | PROT_WRITE,
                             MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t pid[RANKS];
    int status;

    assert_ptr_not_equal(sh, MAP_FAILED);
    for (int r = 0; r < RANKS; r++) {
        pid[r] = fork();
        assert_true(pid[r] >= 0);
        if (pid[r] == 0)
            rank(sh, r, begin[r], patience);
    }
    for (int r = 0; r < 2; r++) {
        assert_int_equal(waitpid(pid[r], &status, 0), pid[r]);
        assert_int_equal(status, 0);
    }
    kill(pid[2], SIGKILL);
    waitpid(pid[2], &status, 0);
    assert_non_null(strstr(sh->text[0], "rank 2 (node b) lives, but did not join"));
    munmap(sh, sizeof *sh);
}

/* A rank that died when the verdict was sent to it: no survivor waits for it until the
 * deadline.
 */
static void who_missed_the_verdict_is_lost(void **state)
{
    struct mu_err err = { 0 };
    struct mu_world *world = mu_world_new(0, RANKS, "1.0", &err);
    struct mu_survive *s;
    struct mu_exchange x;
    int pair[2];

    assert_non_null(world);
    assert_int_equal(mu_world_listen(world, NULL, &err), 0);
    assert_int_equal(mu_survive_open(world, &s, &err), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    x = mu_survive_exchange(s);
    s->leader = s->me = 0;
    s->fate[2].life = MU_DIED;
    s->fd[1] = pair[0];
    assert_false(x.lost(x.arg, &err));
    mu_survive_part(s, 1); /* as after a verdict that was not taken */
    assert_true(x.lost(x.arg, &err));
    assert_int_equal(err.code, MUSTER_EPEER);
    s->leader = 1; /* a follower looks at the leader only */
    s->fate[1].life = MU_LIVES;
    assert_true(x.lost(x.arg, &err));
    close(pair[1]);
    mu_survive_close(s);
    mu_world_free(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_never_called_is_named_not_who_waited_longest),
        cmocka_unit_test(who_missed_the_verdict_is_lost),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
