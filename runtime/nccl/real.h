/* SPDX-License-Identifier: BSD-3-Clause */
/* real.h - NCCL's own functions, behind those that libmuster-nccl interposes */
#ifndef MU_NCCL_REAL_H
#define MU_NCCL_REAL_H

/* The function of that name in the program's NCCL, or in the first libnccl.so.2 that is
 * not this library. NULL: there is none. From any thread.
 */
void *mu_real(const char *name);

#endif
