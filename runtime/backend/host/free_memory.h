/* SPDX-License-Identifier: BSD-3-Clause */
/* free_memory.h - how much memory this process can still use before the kernel's OOM
 * killer ends a process: of the node, and of each memory cgroup above the process
 */
#ifndef MU_FREE_MEMORY_H
#define MU_FREE_MEMORY_H

#include <stdint.h>

#include "runtime/base/err.h"

#define MU_FREE_MEMORY_TEXT 512

/* Bytes without limit: UINT64_MAX. limit_by names what limits, with its figures, for a
 * message. Page cache counts as free, swap does not. root: "" this machine, else a
 * recorded tree. No limit is found where there is no memory to look for one.
 */
struct mu_free_memory {
    uint64_t bytes;
    char limit_by[MU_FREE_MEMORY_TEXT];
};
void mu_free_memory(const char *root, struct mu_free_memory *out);

/* MUSTER_EMEMORY with the sentence where `bytes` more do not fit. left, if not NULL,
 * gets what is left.
 */
int mu_free_memory_check(uint64_t bytes, uint64_t *left, struct mu_err *err);

#endif
