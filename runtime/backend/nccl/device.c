/* SPDX-License-Identifier: BSD-3-Clause */
/* device.c - the CUDA device of this rank, by PCI address; no two ranks on one device
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/backend/nccl/nccl.h"

/* "GPU-00112233-4455-..." or "MIG-..." -> 16 bytes. */
static bool uuid_parse(const char *text, uint8_t *uuid)
{
    int n = 0;

    if (strncmp(text, "GPU-", 4) != 0 && strncmp(text, "MIG-", 4) != 0)
        return false;
    text += 4;
    while (*text && n < 16) {
        unsigned v;

        if (*text == '-') {
            text++;
            continue;
        }
        if (sscanf(text, "%2x", &v) != 1)
            return false;
        uuid[n++] = (uint8_t)v;
        text += 2;
    }
    return n == 16 && *text == '\0';
}

static int by_uuid(const char *text, int ndevices)
{
    uint8_t uuid[16];
    struct cudaDeviceProp prop;

    if (!uuid_parse(text, uuid))
        return -1;
    for (int i = 0; i < ndevices; i++)
        if (cudaGetDeviceProperties(&prop, i) == cudaSuccess &&
            memcmp(prop.uuid.bytes, uuid, sizeof(uuid)) == 0)
            return i;
    return -1;
}

/* The first entry of MUSTER_PLAN's gpus -> CUDA index, or -1. */
static int by_plan(const char *gpu, int ndevices)
{
    char pci[128];
    int device;

    if (strncmp(gpu, "GPU-", 4) == 0 || strncmp(gpu, "MIG-", 4) == 0)
        /* A process sees only one MIG device, and the PCI address of its GPU is not
         * unique.
         */
        return ndevices == 1 ? 0 : by_uuid(gpu, ndevices);
    snprintf(pci, sizeof(pci), "%s", gpu);
    pci[strcspn(pci, "/")] = '\0';
    if (cudaDeviceGetByPCIBusId(&device, pci) != cudaSuccess) {
        cudaGetLastError();
        return -1;
    }
    return device;
}

int mu_device_choose(struct mu_nccl_backend *b, struct mu_err *err)
{
    char gpu[128];
    int ndevices = 0;
    cudaError_t rc = cudaGetDeviceCount(&ndevices);

    if (rc != cudaSuccess)
        return mu_cuda_err(err, rc, "no CUDA device can be used");
    snprintf(gpu, sizeof(gpu), "%s", b->env.gpus ? b->env.gpus : "");
    gpu[strcspn(gpu, ",")] = '\0';
    if (gpu[0] && strcmp(gpu, "-") != 0) {
        b->device = by_plan(gpu, ndevices);
        if (b->device < 0)
            return mu_err_set(
                err, MUSTER_EDEVICE,
                "GPU %s of MUSTER_PLAN is not among the %d device%s that CUDA shows "
                "this process: CUDA_VISIBLE_DEVICES was changed after the task started",
                gpu, ndevices, mu_plural(ndevices));
    } else if ((rc = cudaGetDevice(&b->device)) != cudaSuccess) {
        /* No plan: use the program's choice (cudaSetDevice, CUDA_VISIBLE_DEVICES). */
        return mu_cuda_err(err, rc, "cudaGetDevice");
    }
    if ((rc = cudaSetDevice(b->device)) != cudaSuccess ||
        (rc = cudaDeviceGetPCIBusId(b->pci, sizeof(b->pci), b->device)) != cudaSuccess)
        return mu_cuda_err(err, rc, "cannot use the GPU of this rank");
    return 0;
}

/* Several MIG devices of one GPU: NCCL accepts them from 2.30 on, and only by an
 * option.
 */
static int shared_parent(struct mu_nccl_backend *b, int i, int j, struct mu_err *err)
{
    int version = b->records[b->env.rank].nccl;

    if (version < NCCL_VERSION(2, 30, 0))
        return mu_err_set(
            err, MUSTER_EDEVICE,
            "ranks %d and %d use two MIG devices of GPU %s (node %s): NCCL %d.%d "
            "cannot run several ranks on one GPU, 2.30 can",
            i, j, b->records[i].pci, b->env.host_of[i], version / 10000,
            version / 100 % 100);
    setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 0);
    return 0;
}

int mu_device_check(struct mu_nccl_backend *b, struct mu_err *err)
{
    for (int li = 0; li < b->env.local_size; li++)
        for (int lj = li + 1; lj < b->env.local_size; lj++) {
            int i = b->local_ranks[li], j = b->local_ranks[lj];
            const struct mu_nccl_record *x = &b->records[i], *y = &b->records[j];

            if (memcmp(x->uuid, y->uuid, sizeof(x->uuid)) == 0)
                return mu_err_set(
                    err, MUSTER_EDEVICE,
                    "ranks %d and %d both chose GPU %s (node %s): give each task its "
                    "own (Muster's plugin does, or --gpu-bind=single:1), or call "
                    "cudaSetDevice before muster_init",
                    i, j, x->pci, b->env.host_of[i]);
            if (strcmp(x->pci, y->pci) == 0 && shared_parent(b, i, j, err) < 0)
                return -1;
        }
    return 0;
}
