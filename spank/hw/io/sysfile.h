/* SPDX-License-Identifier: BSD-3-Clause */
/* sysfile.h - small files, bounded: of /sys and /proc, or of a recorded tree */
#ifndef MU_SYSFILE_H
#define MU_SYSFILE_H

#include <stddef.h>
#include <sys/stat.h>

#include "runtime/base/err.h"

/* The recorded tree that hwloc reads in place of this machine (HWLOC_FSROOT), or "". */
const char *mu_sysfile_root(void);

/* Read root/path (printf form) into buf, at most len - 1 bytes, without the final
 * newline and always terminated. root is "" for the live system. Only regular files are
 * read (a FIFO would block). Returns the length, -1 with errno set.
 */
long mu_sysfile_read(const char *root, char *buf, size_t len, const char *path, ...)
    __attribute__((format(printf, 4, 5)));

/* The same as a text of at most max bytes, which the caller frees; err->code ENOENT
 * when there is no such file.
 */
int mu_sysfile_text(const char *path, size_t max, char **text, struct mu_err *err);

/* The same as a number; `none` when it cannot be read or is not one. */
long mu_sysfile_number(const char *root, long none, const char *path, ...)
    __attribute__((format(printf, 3, 4)));

/* A file or folder whose content counts for other users must belong to root or to who
 * runs this, and be writable by nobody else: -1 with the reason and the command that
 * mends it. *st is what stat or fstat gave; mu_check_owner looks itself and takes
 * regular files only.
 */
int mu_refuse_foreign(const char *path, const struct stat *st, struct mu_err *err);
int mu_check_owner(const char *path, struct mu_err *err);

/* mu_sysfile_read and mu_sysfile_text of such a file, -1 with the reason; a text of
 * more than max bytes is refused.
 */
long mu_owned_read(const char *path, char *buf, size_t len, struct mu_err *err);
int mu_owned_text(const char *path, size_t max, char **text, struct mu_err *err);

#endif
