/* SPDX-License-Identifier: BSD-3-Clause */
/* forward.c - all other functions of NCCL 2.28, for a library named libnccl.so.2
 *
 * Each of them goes to NCCL's own function of that name. Their arguments are integers
 * and pointers, so a caller's registers and stack hold at most eight words of them, and
 * the function that is called reads as many of them as it has.
 */
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include "runtime/nccl/nccl_abi.h"
#include "runtime/nccl/real.h"

typedef long function(long, long, long, long, long, long, long, long);

static long forward(const char *name, _Atomic(void *) *known, const long *a)
{
    void *at = atomic_load_explicit(known, memory_order_relaxed);
    function *real;

    if (!at) {
        at = mu_real(name);
        atomic_store_explicit(known, at, memory_order_relaxed);
    }
    if (!at)
        return strstr(name, "ErrorString") || strstr(name, "LastError")
                   ? (long)"NCCL is not found"
                   : MU_NCCL_INVALID_USAGE;
    memcpy(&real, &at, sizeof real);
    return real(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7]);
}

#define FORWARD(name)                                                                  \
    __attribute__((visibility("default"))) function name;                              \
    long name(long a, long b, long c, long d, long e, long f, long g, long h)          \
    {                                                                                  \
        static _Atomic(void *) known;                                                  \
                                                                                       \
        return forward(#name, &known, (const long[]){ a, b, c, d, e, f, g, h });       \
    }

FORWARD(ncclMemAlloc)
FORWARD(ncclMemFree)
FORWARD(ncclGetVersion)
FORWARD(ncclGetUniqueId)
FORWARD(ncclCommInitAll)
FORWARD(ncclGetErrorString)
FORWARD(ncclGetLastError)
FORWARD(ncclCommGetAsyncError)
FORWARD(ncclCommCount)
FORWARD(ncclCommCuDevice)
FORWARD(ncclCommUserRank)
FORWARD(ncclCommRegister)
FORWARD(ncclCommDeregister)
FORWARD(ncclCommWindowDeregister)
FORWARD(ncclRedOpCreatePreMulSum)
FORWARD(ncclRedOpDestroy)
FORWARD(ncclReduce)
FORWARD(ncclAlltoAll)
FORWARD(ncclGather)
FORWARD(ncclScatter)
FORWARD(ncclSend)
FORWARD(ncclRecv)
FORWARD(ncclGroupSimulateEnd)
