/* SPDX-License-Identifier: BSD-3-Clause */
/* hang.h - a file that answers nothing: a FUSE file system whose server takes requests
 * and sends no reply. A process that opens the file waits in the kernel, and SIGKILL
 * does not end it.
 */
#ifndef MU_TEST_HANG_H
#define MU_TEST_HANG_H

#include <stdbool.h>

/* A mount namespace for this process alone, before hang_begin. Both return false, with
 * the reason printed, where they are not permitted.
 */
bool hang_alone(void);
/* Mount it over the regular file or folder `path`. Every user waits, root included. */
bool hang_begin(const char *path);
/* Whoever waits gets an error. The file is as before. */
void hang_end(void);

#endif
