/* SPDX-License-Identifier: BSD-3-Clause */
/* preload_run.h - one run of a program of several ranks with libmuster-nccl, on a
 * made-up NCCL
 *
 * A rank's output is in order; the ranks' outputs mix. So each rank is compared alone.
 */
#ifndef TEST_PRELOAD_RUN_H
#define TEST_PRELOAD_RUN_H

#include <stdbool.h>

#define FAKES BUILD "/tests/unit/.libs/"
#define MOST 16384

/* Before a group of tests: `folder` gets the libraries, as installed, and NCCL. */
extern char folder[256];
int lay_out(void **state);
int clear(void **state);
void link_to(const char *target, const char *name);

/* One run of the program. */
struct run {
    const char *env;  /* "A=1 B=2", beside MUSTER_NCCL */
    const char *nccl; /* MUSTER_NCCL, NULL: not set */
    const char *how;  /* NULL: "global" */
    int ranks;        /* 0: 2 */
    bool alone;       /* no backend beside the library */
    const char *steps;
    char text[MOST];
};

void run(struct run *r);
/* The lines of that rank, without "rN ", separated by " | ". */
void expect(const struct run *r, int rank, const char *expected);
/* Of ranks 0 and 1 alike. */
void both(const struct run *r, const char *expected);
void has(const struct run *r, const char *text);
/* How often `end` is in the text. */
int lines(const struct run *r, const char *end);

#define SMALL "sum:256:7:0"
#define BY_NCCL "nccl AllReduce 256 7 0"
#define MADE "nccl InitRank 2 1 0 | "
#define SERVED MADE "backend open 2 borrowed | "
#define BY_MUSTER "backend sum 256 0 1"

#endif
