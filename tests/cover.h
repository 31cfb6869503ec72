/* SPDX-License-Identifier: BSD-3-Clause */
/* cover.h - what tests/coverage puts in front of each file: a child that ends by _exit
 * writes its counts too, so does a task of Slurm, and no call fails on purpose while
 * counts are written
 */
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#define MU_COVER 1 /* patience.h */

void __gcov_dump(void);
void __gcov_reset(void);
/* Of failing_calls.h, where it is. */
__attribute__((weak)) void mu_calls_fail_no_more(void);

/* Before the destructor of gcov, which has a higher priority. */
__attribute__((destructor)) static void mu_cover_end(void)
{
    if (mu_calls_fail_no_more)
        mu_calls_fail_no_more();
}

/* Each library has counts and a __gcov_dump of its own; quick_exit calls all of them,
 * and nothing else that exit would call.
 */
__attribute__((constructor)) static void mu_cover_begin(void)
{
    at_quick_exit(__gcov_dump);
}

static volatile int mu_cover_status;

__attribute__((unused)) static void mu_cover_give_up(int number)
{
    (void)number;
    _exit(mu_cover_status);
}

/* gcov opens its files by stdio: it waits for ever where another thread is stopped in
 * the middle of a flush of all streams. That process ends without its counts.
 */
__attribute__((noreturn)) static inline void mu_cover_exit(int status)
{
    sigset_t set;

    mu_cover_status = status;
    signal(SIGALRM, mu_cover_give_up);
    sigemptyset(&set);
    sigaddset(&set, SIGALRM);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    alarm(2);
    mu_cover_end();
    quick_exit(status);
}
#define _exit mu_cover_exit

/* The plugin's hook in the process of a task, where Slurm then starts the program: the
 * counts are written when the hook returns. Its body has another name here.
 */
#define slurm_spank_task_init mu_cover_task_init
__attribute__((weak)) int mu_cover_body(void *, int,
                                        char **) __asm__("mu_cover_task_init");
__attribute__((weak)) int mu_cover_hook(void *, int,
                                        char **) __asm__("slurm_spank_task_init");
__attribute__((weak)) int mu_cover_hook(void *step, int argc, char **argv)
{
    int rc = mu_cover_body ? mu_cover_body(step, argc, argv) : 0;

    mu_cover_end();
    __gcov_dump();
    __gcov_reset();
    return rc;
}
