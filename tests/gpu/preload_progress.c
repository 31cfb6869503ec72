/* SPDX-License-Identifier: BSD-3-Clause */
/* preload_progress.c - how far the ranks of check_preload are */
#include "tests/gpu/preload_progress.h"

#include <dirent.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#define EVERY 500      /* calls */
#define STALLED_S 30.0 /* without a step of any rank */
#define LEFT_S 5.0     /* that the others have when one has failed */

static const char *const names[PHASES] = { "starting", "making memory", "calling",
                                           "waiting for the GPU", "checking" };
static struct progress none, *mine = &none;

static uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- A rank ---------------------------------------------------------------------- */

void progress_begin(struct progress *p)
{
    mine = p;
    atomic_store(&mine->since, now_ns());
}

void progress_step(void)
{
    atomic_fetch_add(&mine->steps, 1);
}

enum phase progress_phase(enum phase next)
{
    enum phase before = (enum phase)atomic_exchange(&mine->phase, (int)next);
    uint64_t now = now_ns();

    atomic_fetch_add(&mine->ns[before], now - atomic_exchange(&mine->since, now));
    progress_step();
    return before;
}

static void say_state(const struct progress *p, const char *who)
{
    double all = 0;

    for (int i = 0; i < PHASES; i++)
        all += (double)atomic_load(&p->ns[i]) * 1e-9;
    printf("# %s: %lu calls in %.1f s:", who, atomic_load(&p->calls), all);
    for (int i = 0; i < PHASES; i++)
        printf("%s %s %.1f", i ? "," : "", names[i],
               (double)atomic_load(&p->ns[i]) * 1e-9);
    printf("; %lu memories in %lu ranges", atomic_load(&p->memories),
           atomic_load(&p->ranges));
}

void progress_calls(unsigned long n, bool say)
{
    unsigned long before = atomic_fetch_add(&mine->calls, n);

    progress_step();
    if (!say || before / EVERY == (before + n) / EVERY)
        return;
    say_state(mine, "rank 0");
    printf("\n");
    fflush(stdout);
}

void progress_memory(long memories, long ranges)
{
    atomic_fetch_add(&mine->memories, (unsigned long)memories);
    atomic_fetch_add(&mine->ranges, (unsigned long)ranges);
}

/* ---- The parent ------------------------------------------------------------------ */

static void copy_file(const char *path, const char *what)
{
    FILE *f = fopen(path, "r");
    char text[160] = "";

    if (f && fgets(text, sizeof text, f))
        text[strcspn(text, "\n")] = '\0';
    if (f)
        fclose(f);
    printf(" %s %s", what, text[0] ? text : "?");
}

/* Its threads: names, and what of the kernel they are in. */
static void say_threads(pid_t pid)
{
    char folder[64], path[400];
    struct dirent *d;
    DIR *dir;

    snprintf(folder, sizeof folder, "/proc/%d/task", (int)pid);
    dir = opendir(folder);
    while (dir && (d = readdir(dir))) {
        if (d->d_name[0] == '.')
            continue;
        printf("#   thread %s", d->d_name);
        snprintf(path, sizeof path, "%s/%s/comm", folder, d->d_name);
        copy_file(path, "named");
        snprintf(path, sizeof path, "%s/%s/wchan", folder, d->d_name);
        copy_file(path, "in");
        snprintf(path, sizeof path, "%s/%s/syscall", folder, d->d_name);
        copy_file(path, "system call");
        printf("\n");
    }
    if (dir)
        closedir(dir);
}

static void say_all(const struct progress *all, const pid_t *pid, int n)
{
    uint64_t now = now_ns();
    char who[32];

    for (int r = 0; r < n; r++) {
        snprintf(who, sizeof who, "rank %d%s", r, pid[r] ? "" : " (ended)");
        say_state(&all[r], who);
        printf("; %s for %.1f s\n", names[atomic_load(&all[r].phase)],
               (double)(now - atomic_load(&all[r].since)) * 1e-9);
        if (pid[r])
            say_threads(pid[r]);
    }
    fflush(stdout);
}

static unsigned long steps_of(const struct progress *all, int n)
{
    unsigned long sum = 0;

    for (int r = 0; r < n; r++)
        sum += atomic_load(&all[r].steps);
    return sum;
}

/* The ranks that have ended; *left: the others. Returns how many of those have failed.
 */
static int collect(pid_t *pid, int n, int killed, int *left)
{
    int failed = 0, status;

    *left = 0;
    for (int r = 0; r < n; r++) {
        if (!pid[r])
            continue;
        if (waitpid(pid[r], &status, WNOHANG) != pid[r]) {
            ++*left;
            continue;
        }
        pid[r] = 0;
        failed += r == killed ? !WIFSIGNALED(status) : status != 0;
    }
    return failed;
}

int progress_wait(const struct progress *all, const pid_t *pids, int n, int killed)
{
    const struct timespec second = { .tv_sec = 1 };
    double limit = STALLED_S;
    unsigned long steps = 0;
    uint64_t since = now_ns();
    int failed = 0, left = n;
    sigset_t child;
    pid_t pid[16];

    memcpy(pid, pids, (size_t)n * sizeof *pid);
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    for (;;) {
        int more = collect(pid, n, killed, &left);

        if (left == 0)
            return failed + more;
        if (more && failed == 0) {
            limit = LEFT_S;
            since = now_ns();
        }
        failed += more;
        if (failed == 0 && steps_of(all, n) != steps) {
            steps = steps_of(all, n);
            since = now_ns();
        }
        if ((double)(now_ns() - since) * 1e-9 >= limit)
            break;
        sigtimedwait(&child, NULL, &second);
    }
    printf("# %s\n", failed ? "a rank has failed, and the others do not end"
                            : "no rank has taken a step for 30 s");
    say_all(all, pid, n);
    for (int r = 0; r < n; r++)
        if (pid[r]) {
            kill(pid[r], SIGKILL);
            waitpid(pid[r], NULL, 0);
        }
    return failed + left;
}
