/* SPDX-License-Identifier: BSD-3-Clause */
/* gpu_bind.h - parses the text of --gpu-bind; see muster(7) */
#ifndef MU_GPU_BIND_H
#define MU_GPU_BIND_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/err.h"
#include "spank/core/node/node.h"

/* The kinds of a GPU binding, with their names in Slurm. */
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
    int n;     /* of single: and per_task: */
    int nlist; /* of map and mask, repeated cyclically */
    /* bit p % 64 of list[i][p / 64]: task i gets the step's GPU at position p */
    uint64_t list[MU_GPUS_MAX][MU_GPUS_MAX / 64];
    bool verbose;
};

/* Parses [verbose,]closest|single:N|per_task:N|none|map_gpu:1,0|map:..|mask_gpu:0x1,..
 * |mask:.., with a prefix "gpu:" or "gres/gpu:" (stored by 22.05 and by 23.11) and with
 * "*N" repetition counts. From a `+`-joined --tres-bind list the GPU part is taken
 * (MU_GPU_BIND_NONE if it has none). *bind is unchanged on failure.
 */
int mu_gpu_bind_parse(const char *text, struct mu_gpu_bind *bind, struct mu_err *err);
/* True if entry i of the list has the GPU at this position of the step. */
bool mu_gpu_bind_has(const struct mu_gpu_bind *bind, int i, int pos);

/* The text after "gres/gpu:", "gres:gpu:" or "gpu:"; NULL if text begins with none of
 * them.
 */
char *mu_gpu_bind_skip_prefix(char *text);
/* The GPU part of a '+' list, without its prefix. The list is modified: it ends after
 * that part. A text without a prefix is itself the GPU part. NULL if the list binds
 * other resources only.
 */
char *mu_gpu_bind_part(char *list);

#endif
