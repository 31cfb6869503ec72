/* SPDX-License-Identifier: BSD-3-Clause */
/* sysfile.h - reads small files of /sys, /proc or a recorded tree, up to a limit */
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

/* Check a file or folder whose content affects other users. Its owner must be root or
 * the caller, and no other user may write to it. Returns -1 otherwise, with the reason
 * and the command that corrects it. *st is the result of stat or fstat; mu_check_owner
 * calls stat itself and accepts regular files only.
 */
int mu_refuse_foreign(const char *path, const struct stat *st, struct mu_err *err);
int mu_check_owner(const char *path, struct mu_err *err);

/* mu_sysfile_read and mu_sysfile_text of such a file, -1 with the reason; a text of
 * more than max bytes is refused.
 */
long mu_owned_read(const char *path, char *buf, size_t len, struct mu_err *err);
int mu_owned_text(const char *path, size_t max, char **text, struct mu_err *err);

#endif
