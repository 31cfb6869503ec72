/* SPDX-License-Identifier: BSD-3-Clause */
/* nccl_conf_files.h - NCCL's configuration files of this user, in NCCL's order */
#ifndef MU_NCCL_CONF_FILES_H
#define MU_NCCL_CONF_FILES_H

#include "runtime/base/err.h"
#include "spank/core/env/nccl_conf.h"

/* conf_file is the user's NCCL_CONF_FILE (NULL: unset), home the user's directory
 * (NULL: unknown); NCCL reads the former, or else home/.nccl.conf, then etc
 * ("/etc/nccl.conf"). A missing or unreadable file is no error: NCCL skips it as well.
 * Call with the user's ids: the files are theirs, and a child reads them within 2 s. -1
 * after a failure; *conf then has the lines that were read, to be cleared as always.
 */
int mu_conf_load_live(const char *conf_file, const char *home, const char *etc,
                      struct mu_conf *conf, struct mu_err *err);

#endif
