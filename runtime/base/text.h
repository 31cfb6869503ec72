/* SPDX-License-Identifier: BSD-3-Clause */
/* text.h - a small text file as a whole */
#ifndef MU_TEXT_H
#define MU_TEXT_H

#include <stddef.h>

#include "runtime/base/err.h"

/* The regular file's text; the caller frees it. NULL: it cannot be read, has more than
 * `most` bytes, or a zero byte.
 */
char *mu_text_read(const char *path, size_t most, struct mu_err *err);

#endif
