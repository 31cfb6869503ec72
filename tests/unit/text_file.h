/* SPDX-License-Identifier: BSD-3-Clause */
/* text_file.h - a file in memory for what several processes print */
#ifndef TEST_TEXT_FILE_H
#define TEST_TEXT_FILE_H

#include <fcntl.h>
#include <sys/mman.h>

/* Below 0: errno. Processes share its position, which Linux does not lock for a file in
 * memory: without O_APPEND, two that write at once lose one of the texts.
 */
static inline int text_file(void)
{
    int fd = memfd_create("text", MFD_CLOEXEC);

    if (fd >= 0)
        fcntl(fd, F_SETFL, O_APPEND);
    return fd;
}

#endif
