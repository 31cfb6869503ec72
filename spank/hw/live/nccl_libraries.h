/* SPDX-License-Identifier: BSD-3-Clause */
/* nccl_libraries.h - the libnccl files that a program here would load */
#ifndef MU_NCCL_LIBRARIES_H
#define MU_NCCL_LIBRARIES_H

#include "spank/core/nccl/nccl_variables.h"

/* In the loader's order: the folders of ld_path (LD_LIBRARY_PATH, NULL none), then the
 * usual ones; each file once. Returns their number, at most max. A program may bring
 * its own (a Python wheel, a container), which is not seen. Call with the user's ids.
 */
int mu_nccl_libraries(const char *ld_path, struct mu_library *list, int max);

#endif
