/* SPDX-License-Identifier: BSD-3-Clause */
/* hang.h - a file that answers nothing: a FUSE file system whose server takes requests
 * and sends no reply. A process that opens the file waits in the kernel, and SIGKILL
 * does not end it.
 */
#ifndef MU_TEST_HANG_H
#define MU_TEST_HANG_H

#include <stdbool.h>

/* Mount it over the regular file `path`, in a mount namespace of this process; false,
 * with the reason printed, where that is not permitted.
 */
bool hang_begin(const char *path);
/* Whoever waits gets an error. The file is as before. */
void hang_end(void);

#endif
