/* SPDX-License-Identifier: BSD-3-Clause */
/* patience.h - bounds on time for builds in which everything takes longer
 *
 * ThreadSanitizer makes all of it slower, and the end of a process above all; with
 * tests/cover.h each process writes its counts then, one after the other. A bound is
 * multiplied by PATIENCE, which is 1 in every other build.
 */
#ifndef TEST_PATIENCE_H
#define TEST_PATIENCE_H

#ifdef __SANITIZE_THREAD__
#define PATIENCE 6
#elif defined(MU_COVER)
#define PATIENCE 3
#else
#define PATIENCE 1
#endif

#endif
