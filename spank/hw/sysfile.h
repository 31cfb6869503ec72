/* SPDX-License-Identifier: BSD-3-Clause */
/* sysfile.h - small files, bounded: of /sys and /proc, or of a recorded tree */
#ifndef MU_SYSFILE_H
#define MU_SYSFILE_H

#include <stdbool.h>
#include <stddef.h>

/* Read root/path (printf form) into buf, at most len - 1 bytes, without the final
 * newline and always terminated. root is "" for the live system. Only regular files are
 * read (a FIFO would block). Returns the length, -1 with errno set.
 */
long mu_sysfile_read(const char *root, char *buf, size_t len, const char *path, ...)
    __attribute__((format(printf, 4, 5)));

/* The same as a number; `none` when it cannot be read or is not one. */
long mu_sysfile_number(const char *root, long none, const char *path, ...)
    __attribute__((format(printf, 3, 4)));

#endif
