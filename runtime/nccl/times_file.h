/* SPDX-License-Identifier: BSD-3-Clause */
/* times_file.h - the file with the times of one machine (times.h has its format) */
#ifndef MU_NCCL_TIMES_FILE_H
#define MU_NCCL_TIMES_FILE_H

#include "runtime/base/log.h"
#include "runtime/nccl/times.h"

#define MU_TIMES_PATH 1024 /* bytes */

/* MUSTER_NCCL_TIMES, else a name made of the machine in the user's cache, whose folder
 * is made.
 */
int mu_times_path(const char *machine, char *path, size_t len, struct mu_err *err);
/* The file's text, which mu_times_parse takes; the caller frees it. NULL: there is
 * none, or not for this machine; a wrong one is logged.
 */
char *mu_times_load(const char *path, const char *machine, const struct mu_log *log);
/* All of it at once: other jobs of the node may read it. A failure is logged. */
void mu_times_store(const char *path, const char *machine, const struct mu_times *t,
                    const struct mu_log *log);

#endif
