/* SPDX-License-Identifier: BSD-3-Clause */
/* times.h - the table of Muster's and NCCL's times on one machine, and what follows
 *
 *   what to measure -> backend_nccl.so measures -> the slowest rank's times -> a file
 *        -> the sizes up to which Muster is not slower (limits.h)
 *
 * The file is a text. It begins with the machine, as its ranks describe it, and holds
 * for that one alone:
 *
 *   muster-nccl-times 1
 *   # muster 0.1.0, NCCL 2.28.3, node n1
 *   # rank 0: NVIDIA H200 0000:1b:00.0, CUDA 13000
 *   # rank 1: NVIDIA H200 0000:43:00.0, CUDA 13000
 *   # function bytes way us nccl_us form
 *   AllReduce 4096 one-shot 3.1 8.2 graph
 */
#ifndef MU_NCCL_TIMES_H
#define MU_NCCL_TIMES_H

#include "runtime/backend/serve.h"
#include "runtime/nccl/limits.h"

#define MU_TIMES_MOST 128 /* rows */

struct mu_times {
    struct mu_trial row[MU_TIMES_MOST];
    int n;
};

/* What is measured; without times. */
void mu_times_plan(struct mu_times *t);
/* Take over the longer of both times of each row; not measured counts as longest. */
void mu_times_slowest(struct mu_times *t, const struct mu_times *other);

/* Not where a rank had no memory for the largest sizes. */
bool mu_times_complete(const struct mu_times *t);

/* machine: its lines, with "# " before each and a newline behind. Rows without times are
 * left out. The caller frees the text; NULL: no memory.
 */
char *mu_times_text(const struct mu_times *t, const char *machine);
/* EXDEV: the text is of another machine. path is for the sentence. */
int mu_times_parse(struct mu_times *t, const char *text, const char *machine,
                   const char *path, struct mu_err *err);

void mu_times_limits(const struct mu_times *t, struct mu_limits *out);

#endif
