/* SPDX-License-Identifier: BSD-3-Clause */
/* gpu_bind.h - the text of --gpu-bind into a struct; see muster(7) */
#ifndef MU_GPU_BIND_H
#define MU_GPU_BIND_H

#include <stdbool.h>

#include "runtime/base/cpuset.h"
#include "runtime/base/err.h"
#include "spank/core/node/node.h"

/* A GPU binding as Slurm spells it, understood. */
enum mu_gpu_bind_kind {
    MU_GPU_BIND_NONE,     /* no binding */
    MU_GPU_BIND_CLOSEST,  /* a GPU near the task's CPUs; Muster's CPUs follow the GPU */
    MU_GPU_BIND_SINGLE,   /* single:N: N tasks per GPU */
    MU_GPU_BIND_PER_TASK, /* per_task:N, --gpus-per-task: N GPUs per task */
    MU_GPU_BIND_MAP,      /* map_gpu:, map: position in the step's GPUs, by task */
    MU_GPU_BIND_MASK,     /* mask_gpu:, mask: bits over the step's GPUs, by task */
};

struct mu_gpu_bind {
    enum mu_gpu_bind_kind kind;
    int n;                              /* of single: and per_task: */
    int nlist;                          /* of map and mask, repeated cyclically */
    struct mu_cpuset list[MU_GPUS_MAX]; /* positions (not node numbers) for task i */
    bool verbose;
};

/* Accepts [verbose,]closest|single:N|per_task:N|none|map_gpu:1,0|map:..|mask_gpu:0x1,..
 * |mask:.., with a prefix gpu: or gres/gpu: (22.05's and 23.11's stored form), "*N"
 * repetition counts, and a `+`-joined --tres-bind list from which the gpu part is taken
 * (MU_GPU_BIND_NONE if it has none). *bind is untouched on failure.
 */
int mu_gpu_bind_parse(const char *text, struct mu_gpu_bind *bind, struct mu_err *err);

/* What stands behind "gres/gpu:", "gres:gpu:" or "gpu:"; NULL: nothing of these. */
char *mu_gpu_bind_behind(char *text);
/* The gpu part of a '+' list, without its prefix; the list is cut there. A text without
 * any prefix is the part itself; NULL: the list binds other resources only.
 */
char *mu_gpu_bind_part(char *list);

#endif
