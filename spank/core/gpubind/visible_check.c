/* SPDX-License-Identifier: BSD-3-Clause */
/* visible_check.c - see visible_check.h */
#include "spank/core/gpubind/visible_check.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/parse.h"

#define GPUS 128

/* CUDA has the bus id of a slice's GPU and calls its UUID "GPU-...". */
static bool is_device(const char *gpu, const struct mu_cuda_device *device)
{
    size_t len = strcspn(gpu, "/");

    if (strncmp(gpu, "MIG-", 4) == 0)
        return device->uuid[0] && strcmp(gpu + 4, device->uuid + 4) == 0;
    return strlen(device->pci) == len && strncmp(gpu, device->pci, len) == 0;
}

static int find(const char *gpu, const struct mu_cuda_device *device, int n)
{
    for (int i = 0; i < n; i++)
        if (is_device(gpu, &device[i]))
            return i;
    return -1;
}

static enum mu_visible_verdict missing(const char *gpu,
                                       const struct mu_cuda_device *device, int n,
                                       char *text, size_t len)
{
    if (strncmp(gpu, "MIG-", 4) == 0 || n == 0) {
        snprintf(text, len, "CUDA %s", n ? "shows no UUID of a slice" : "shows no GPU");
        return MU_VISIBLE_UNKNOWN;
    }
    snprintf(text, len, "%s is not among CUDA's devices (device 0 is %s)", gpu,
             device[0].pci);
    return MU_VISIBLE_DIFFERS;
}

/* The task's own GPUs, or all of the step. */
static enum mu_visible_verdict check_order(const struct mu_visible_task *task,
                                           const int *at, int ngpus,
                                           const struct mu_cuda_device *device, int n,
                                           char *text, size_t len)
{
    int want = task->local_rank;

    for (int k = 0; k < ngpus && n == ngpus; k++)
        if (at[k] != k) {
            snprintf(text, len, "CUDA's device %d is %s", k, device[k].pci);
            return MU_VISIBLE_DIFFERS;
        }
    if (n > ngpus && ngpus == 1 && want >= 0 && want < n && task->local_size <= n &&
        at[0] != want) {
        snprintf(text, len, "CUDA's device %d, LOCAL_RANK, is %s", want,
                 device[want].pci);
        return MU_VISIBLE_DIFFERS;
    }
    if (ngpus == 1)
        snprintf(text, len, "device %d", at[0]);
    else
        snprintf(text, len, "devices %d to %d of %d", at[0], at[ngpus - 1], n);
    return MU_VISIBLE_OK;
}

enum mu_visible_verdict mu_visible_check(const struct mu_visible_task *task,
                                         const struct mu_cuda_device *device, int n,
                                         char *text, size_t len)
{
    char list[1024], *rest = list, *gpu;
    int at[GPUS], ngpus = 0;

    mu_copy(list, sizeof list, task->gpus);
    while (ngpus < GPUS && (gpu = mu_parse_next(&rest, ','))) {
        at[ngpus] = find(gpu, device, n);
        if (at[ngpus] < 0)
            return missing(gpu, device, n, text, len);
        ngpus++;
    }
    return check_order(task, at, ngpus, device, n, text, len);
}
