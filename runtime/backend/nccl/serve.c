/* SPDX-License-Identifier: BSD-3-Clause */
/* serve.c - what libmuster-nccl takes from this module */
#include <stdio.h>

#include "runtime/backend/nccl/nccl.h"

static int describe(const struct mu_backend *backend, char *text, size_t len,
                    struct mu_err *err)
{
    const struct mu_nccl_backend *b = mu_nccl_of(backend);
    struct cudaDeviceProp prop;
    int driver = 0;
    cudaError_t rc = cudaGetDeviceProperties(&prop, b->device);

    if (rc == cudaSuccess)
        rc = cudaDriverGetVersion(&driver);
    if (rc != cudaSuccess)
        return mu_cuda_err(err, rc, "reading the GPU's name");
    snprintf(text, len, "%s %s, CUDA %d%s", prop.name, b->pci, driver,
             b->ours.open ? "" : ", memory is not mapped");
    return 0;
}

__attribute__((visibility("default"))) const struct mu_nccl_serve mu_nccl_serve = {
    .carry = mu_nccl_carry,
    .measure = mu_nccl_trials,
    .describe = describe,
};
