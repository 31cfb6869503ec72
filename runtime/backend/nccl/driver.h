/* SPDX-License-Identifier: BSD-3-Clause */
/* driver.h - calls of CUDA's driver by name: nothing is linked with libcuda */
#ifndef MU_NCCL_DRIVER_H
#define MU_NCCL_DRIVER_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <string.h>

/* Writes the call's address to *at, a pointer to its PFN_ type. version: the first with
 * that interface, as 10020 for 10.2. False: the driver lacks it.
 */
static inline bool mu_driver_find(const char *name, unsigned version, void *at)
{
    enum cudaDriverEntryPointQueryResult found;
    void *call = NULL;

    if (cudaGetDriverEntryPointByVersion(name, &call, version, cudaEnableDefault,
                                         &found) != cudaSuccess ||
        !call) {
        cudaGetLastError();
        return false;
    }
    memcpy(at, &call, sizeof call);
    return true;
}

#endif
