/* SPDX-License-Identifier: BSD-3-Clause */
/* fresh.h - opens files in folders where another user may have put something else */
#ifndef MU_FRESH_H
#define MU_FRESH_H

#include "runtime/base/err.h"

/* A new file of this name, open for writing. What has the name is removed first: an
 * earlier attempt, or a link by which another user of the folder would have a file
 * overwritten. -1: errno.
 */
int mu_fresh_open(const char *path);

/* The regular file of this name, open for reading. Anything else is refused unopened:
 * who opens a fifo waits, and some devices act on that alone (/dev/watchdog).
 */
int mu_regular_open(const char *path, struct mu_err *err);

#endif
