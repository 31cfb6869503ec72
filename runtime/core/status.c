/* SPDX-License-Identifier: BSD-3-Clause */
#include "runtime/core/status.h"

#include "runtime/muster.h"

bool mu_status_known(int status)
{
    return (status >= MUSTER_EUSAGE && status <= MUSTER_EINTERNAL) ||
           status == MUSTER_ESHRUNK;
}
