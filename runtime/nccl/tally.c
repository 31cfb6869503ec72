/* SPDX-License-Identifier: BSD-3-Clause */
/* tally.c - what was done with a program's collectives, and the line about it */
#include "runtime/nccl/tally.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#define MIB (1024.0 * 1024.0)

/* In the order of the line. */
static const struct {
    enum mu_coll_kind kind;
    const char *name;
} kinds[] = { { MU_COLL_ALLREDUCE, "all-reduces" },
              { MU_COLL_REDUCE_SCATTER, "reduce-scatters" },
              { MU_COLL_ALLGATHER, "all-gathers" },
              { MU_COLL_BROADCAST, "broadcasts" } };
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static struct {
    struct {
        atomic_ulong calls, bytes;
    } of[KINDS][MU_FATES]; /* by enum mu_coll_kind */
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

void mu_tally_add(enum mu_coll_kind kind, enum mu_fate fate, size_t bytes)
{
    atomic_fetch_add_explicit(&tally.of[kind][fate].calls, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&tally.of[kind][fate].bytes, bytes, memory_order_relaxed);
}

void mu_tally_reason(const char *why)
{
    pthread_mutex_lock(&tally.lock);
    if (!tally.reason[0])
        snprintf(tally.reason, sizeof tally.reason, "%s", why);
    pthread_mutex_unlock(&tally.lock);
}

static unsigned long calls_of(enum mu_fate fate)
{
    unsigned long n = 0;

    for (int k = 0; k < KINDS; k++)
        n += atomic_load(&tally.of[k][fate].calls);
    return n;
}

/* Appends the calls of a kind, if there were any. */
static size_t kind_text(int which, char *text, size_t len, size_t at)
{
    enum mu_coll_kind kind = kinds[which].kind;
    unsigned long calls = 0;
    double bytes = 0;

    for (int f = 0; f < MU_FATES; f++) {
        calls += atomic_load(&tally.of[kind][f].calls);
        bytes += (double)atomic_load(&tally.of[kind][f].bytes);
    }
    if (calls == 0 || at >= len)
        return at;
    return at + (size_t)snprintf(
                    text + at, len - at, "%s%lu of %lu %s (%.1f of %.1f MiB)",
                    at ? ", " : "carried out ",
                    atomic_load(&tally.of[kind][MU_CARRIED].calls), calls,
                    kinds[which].name,
                    (double)atomic_load(&tally.of[kind][MU_CARRIED].bytes) / MIB,
                    bytes / MIB);
}

int mu_tally_text(char *text, size_t len)
{
    const char *between = "; forwarded: ";
    size_t at = 0;

    for (int k = 0; k < KINDS; k++)
        at = kind_text(k, text, len, at);
    if (at == 0)
        return 0;
    for (int f = MU_CARRIED + 1; f < MU_FATES && at < len; f++) {
        unsigned long n = calls_of((enum mu_fate)f);

        if (n == 0)
            continue;
        at += (size_t)snprintf(text + at, len - at, "%s%lu %s", between, n, words[f]);
        if (f == MU_NO_RANKS && tally.reason[0] && at < len)
            at += (size_t)snprintf(text + at, len - at, " (%s)", tally.reason);
        between = ", ";
    }
    return 1;
}
