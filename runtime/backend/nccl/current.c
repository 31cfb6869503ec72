/* SPDX-License-Identifier: BSD-3-Clause */
/* current.c - the rank's device is current during a call, then the caller's again */
#include "runtime/backend/nccl/nccl.h"

cudaError_t mu_device_enter(const struct mu_nccl_backend *b, int *callers)
{
    cudaError_t rc;

    *callers = b->device;
    rc = cudaGetDevice(callers);
    return rc == cudaSuccess && *callers != b->device ? cudaSetDevice(b->device) : rc;
}

void mu_device_leave(const struct mu_nccl_backend *b, int callers)
{
    if (callers != b->device)
        cudaSetDevice(callers);
}
