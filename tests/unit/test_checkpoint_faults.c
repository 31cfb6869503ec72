/* SPDX-License-Identifier: BSD-3-Clause */
/* test_checkpoint_faults.c - processes that die while they save, disks that are full */
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "runtime/checkpoint/ckfolder.h"
#include "tests/unit/checkpoints.h"
#include "tests/unit/patience.h"

static void a_forked_child_does_not_save(void **state)
{
    struct muster_checkpoint *c = opened(NULL);
    int status;
    pid_t child = fork();

    if (child == 0)
        _exit(muster_checkpoint_save(c, 1, items, 2));
    waitpid(child, &status, 0);
    assert_int_equal(WEXITSTATUS(status), MUSTER_EUSAGE);
    assert_false(exists(1));
    muster_checkpoint_close(c);
}

static void pause_us(long us)
{
    struct timespec t = { 0, us * 1000 };

    nanosleep(&t, NULL);
}

/* A process that saves without pause is killed at any moment; what it leaves must load.
 * Where a busy machine gave it no time for a single one, later rounds are longer.
 */
static void case_059_kill_nine_at_any_moment_loses_at_most_the_last(void **state)
{
    uint64_t last = 0;

    for (int round = 0; round < 40 || (last == 0 && round < 400); round++) {
        struct muster_checkpoint_options o = { .mode = (enum muster_checkpoint_mode)(
                                                   round % 3) };
        struct muster_checkpoint *c;
        uint64_t step = 0, *steps = NULL;
        int found, status;
        pid_t child = fork();

        if (child == 0) {
            if (muster_checkpoint_open(m, folder, &o, &c) != MUSTER_OK)
                _exit(1);
            for (uint64_t s = last + 1;; s++) {
                fill(s);
                if (muster_checkpoint_save(c, s, items, 2) != MUSTER_OK)
                    _exit(1);
                muster_checkpoint_copied(c);
            }
        }
        pause_us(PATIENCE * (3000 + round * 1117 % 20000 + round / 40 * 10000));
        kill(child, SIGKILL);
        waitpid(child, &status, 0);
        assert_true(WIFSIGNALED(status));
        c = opened(NULL);
        if (muster_checkpoint_load(c, items, 2, &step, &found) != MUSTER_OK)
            fail_msg("round %d: %s", round, muster_error(m));
        if (found && !holds(step))
            fail_msg("round %d: step %llu is a mixture", round,
                     (unsigned long long)step);
        /* Not only is there a good one: none of the names is given to a bad one. */
        assert_true(mu_ckfolder_list(folder, "checkpoint", &steps, NULL) >= found);
        if (found && steps[0] != step)
            fail_msg("round %d: step %llu is there, but bad", round,
                     (unsigned long long)steps[0]);
        free(steps);
        if (step < last)
            fail_msg("round %d: step %llu after %llu", round, (unsigned long long)step,
                     (unsigned long long)last);
        last = step;
        muster_checkpoint_close(c);
    }
    assert_true(last > 0);
}

/* In a mount namespace of its own: a file system of 6 MB, room for two checkpoints. */
static int on_a_full_disk(void)
{
    struct muster_checkpoint_options o = { .keep = 2, .mode = MUSTER_CHECKPOINT_COPY };
    struct muster_checkpoint *c;
    uint64_t step = 0;
    int found = 0, status = MUSTER_OK;

    if (unshare(CLONE_NEWNS) < 0 ||
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("muster", folder, "tmpfs", 0, "size=6m") < 0)
        return 77;
    if (muster_checkpoint_open(m, folder, &o, &c) != MUSTER_OK)
        return 1;
    for (uint64_t s = 1; s <= 3 && status == MUSTER_OK; s++) {
        fill(s);
        status = muster_checkpoint_save(c, s, items, 2);
    }
    status = status == MUSTER_OK ? muster_checkpoint_wait(c) : status;
    if (status != MUSTER_EIO || !strstr(muster_error(m), "No space left on device") ||
        !strstr(muster_error(m), "checkpoint-000000000003.muster"))
        return 2;
    if (muster_checkpoint_load(c, items, 2, &step, &found) != MUSTER_OK || step != 2 ||
        !holds(2))
        return 3;
    return muster_checkpoint_close(c) == MUSTER_OK ? 0 : 4;
}

static void a_full_disk_is_told_and_the_last_good_one_stays(void **state)
{
    int status;
    pid_t child = fork();

    if (child == 0)
        _exit(on_a_full_disk());
    waitpid(child, &status, 0);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77)
        skip(); /* no right to mount a file system */
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_A_FOLDER(a_forked_child_does_not_save),
        IN_A_FOLDER(case_059_kill_nine_at_any_moment_loses_at_most_the_last),
        IN_A_FOLDER(a_full_disk_is_told_and_the_last_good_one_stays),
    };

    return cmocka_run_group_tests(tests, alone, together);
}
