/* SPDX-License-Identifier: BSD-3-Clause */
/* secret.h - the job's secret where PMIx does not bring it: a file, or a variable */
#ifndef MU_SECRET_H
#define MU_SECRET_H

#include <stdint.h>

#include "runtime/base/exchange.h"
#include "runtime/core/launch.h"

/* MUSTER_TOKEN_FILE, else MUSTER_TOKEN. 1: neither is set. -1: it is no secret, or
 * others can read the file; err names the variable.
 */
int mu_secret_read(const struct mu_launch *launch, uint8_t out[MU_TOKEN_LEN],
                   struct mu_err *err);
/* A file that holds a secret, open as fd, so that it is the one that is read: is it a
 * regular file of this user, readable by no other? err has name and path.
 */
int mu_secret_check_file(int fd, const char *name, const char *path,
                         struct mu_err *err);

#endif
