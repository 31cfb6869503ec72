/* SPDX-License-Identifier: BSD-3-Clause */
/* tally.c - what was done with a program's all-reduces, and the line about it */
#include "runtime/nccl/tally.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#define MIB (1024.0 * 1024.0)

static struct {
    struct {
        atomic_ulong calls, bytes;
    } of[MU_FATES];
    pthread_mutex_t lock;
    char reason[200];
} tally = { .lock = PTHREAD_MUTEX_INITIALIZER };

static const char *const words[MU_FATES] = {
    [MU_NO_RANKS] = "of communicators that Muster does not serve",
    [MU_OTHER_SIZE] = "of other sizes",
    [MU_OTHER_TYPE] = "of other types",
    [MU_OTHER_OPERATOR] = "of other operators",
    [MU_WINDOW] = "of communicators with symmetric windows",
};

void mu_tally_add(enum mu_fate fate, size_t bytes)
{
    atomic_fetch_add_explicit(&tally.of[fate].calls, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&tally.of[fate].bytes, bytes, memory_order_relaxed);
}

void mu_tally_reason(const char *why)
{
    pthread_mutex_lock(&tally.lock);
    if (!tally.reason[0])
        snprintf(tally.reason, sizeof tally.reason, "%s", why);
    pthread_mutex_unlock(&tally.lock);
}

int mu_tally_text(char *text, size_t len)
{
    unsigned long calls = 0;
    double bytes = 0;
    const char *between = "; forwarded: ";
    size_t at;

    for (int f = 0; f < MU_FATES; f++) {
        calls += atomic_load(&tally.of[f].calls);
        bytes += (double)atomic_load(&tally.of[f].bytes);
    }
    if (calls == 0)
        return 0;
    at = (size_t)snprintf(
        text, len, "carried out %lu of %lu all-reduces (%.1f of %.1f MiB)",
        atomic_load(&tally.of[MU_CARRIED].calls), calls,
        (double)atomic_load(&tally.of[MU_CARRIED].bytes) / MIB, bytes / MIB);
    for (int f = MU_CARRIED + 1; f < MU_FATES && at < len; f++) {
        unsigned long n = atomic_load(&tally.of[f].calls);

        if (n == 0)
            continue;
        at += (size_t)snprintf(text + at, len - at, "%s%lu %s", between, n, words[f]);
        if (f == MU_NO_RANKS && tally.reason[0] && at < len)
            at += (size_t)snprintf(text + at, len - at, " (%s)", tally.reason);
        between = ", ";
    }
    return 1;
}
