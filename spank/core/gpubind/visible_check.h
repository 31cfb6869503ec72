/* SPDX-License-Identifier: BSD-3-Clause */
/* visible_check.h - are the GPUs that CUDA shows a task those of its plan, by the rule
 * of `visible`?
 *
 * Where CUDA shows as many as the plan has, these are the task's own: device k is GPU k
 * of the plan. Where it shows more, these are all of the step: the planned ones are
 * among them, and device LOCAL_RANK is the task's if each task has one GPU of its own.
 */
#ifndef MU_VISIBLE_CHECK_H
#define MU_VISIBLE_CHECK_H

#include <stddef.h>

struct mu_cuda_device {
    char pci[64], uuid[64]; /* "GPU-...", also of a MIG slice; "" unknown */
};

struct mu_visible_task {
    const char *gpus;           /* of the plan: bus ids or MIG UUIDs, comma separated */
    int local_rank, local_size; /* -1 unknown */
};

enum mu_visible_verdict { MU_VISIBLE_OK, MU_VISIBLE_DIFFERS, MU_VISIBLE_UNKNOWN };

/* text: the reason, or which devices these are. */
enum mu_visible_verdict mu_visible_check(const struct mu_visible_task *task,
                                         const struct mu_cuda_device *device, int n,
                                         char *text, size_t len);

#endif
