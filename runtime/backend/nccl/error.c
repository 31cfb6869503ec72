/* SPDX-License-Identifier: BSD-3-Clause */
/* error.c - results of CUDA and NCCL, and an abort, as sentences */
#include "runtime/backend/nccl/nccl.h"

int mu_cuda_err(struct mu_err *err, cudaError_t rc, const char *what)
{
    cudaGetLastError();
    return mu_err_set(
        err, rc == cudaErrorMemoryAllocation ? MUSTER_EMEMORY : MUSTER_EDEVICE,
        "%s: %s (%s)", what, cudaGetErrorString(rc), cudaGetErrorName(rc));
}

int mu_nccl_err(struct mu_err *err, const struct mu_nccl_backend *b, ncclResult_t rc,
                const char *what)
{
    const char *more = ncclGetLastError(b->comm);

    return mu_err_set(err, rc == ncclRemoteError ? MUSTER_EPEER : MUSTER_EDEVICE,
                      "%s: %s%s%s", what, ncclGetErrorString(rc),
                      more && *more ? ": " : "", more ? more : "");
}

int mu_nccl_aborted(struct mu_nccl_backend *b, struct mu_err *err)
{
    if (!atomic_load(&b->aborted))
        return 0;
    return mu_err_set(err, b->abort_status, "%s", b->why);
}
