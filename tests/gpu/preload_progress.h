/* SPDX-License-Identifier: BSD-3-Clause */
/* preload_progress.h - how far the ranks of check_preload are, and what they do when
 * they do not go on
 */
#ifndef TEST_PRELOAD_PROGRESS_H
#define TEST_PRELOAD_PROGRESS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

enum phase { STARTING, MAKING, CALLING, WAITING, CHECKING, PHASES };

/* Of one rank, in shared memory: the rank writes, the parent reads. */
struct progress {
    atomic_ulong steps; /* it goes on while this changes */
    atomic_ulong calls;
    atomic_ulong memories, ranges; /* that exist */
    atomic_int phase;
    atomic_ullong ns[PHASES]; /* spent in each */
    atomic_ullong since;      /* ns, monotonic: the phase has begun */
};

/* This process is the rank of p. */
void progress_begin(struct progress *p);
void progress_step(void);
/* Begin a phase; returns the one before, to begin it again. */
enum phase progress_phase(enum phase next);
/* n more calls are done. With `say`, a line for each 500. */
void progress_calls(unsigned long n, bool say);
void progress_memory(long memories, long ranges);

/* Wait for the ranks. killed: this one ends by a signal, -1: none does. Where a rank
 * fails, or none takes a step for 30 s, the state of all is printed, and they end.
 * Returns how many have failed.
 */
int progress_wait(const struct progress *all, const pid_t *pid, int n, int killed);

#endif
