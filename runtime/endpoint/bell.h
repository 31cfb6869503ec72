/* SPDX-License-Identifier: BSD-3-Clause */
/* bell.h - an eventfd, which wakes a thread that polls it */
#ifndef MU_BELL_H
#define MU_BELL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* -1: errno is set. The caller closes it. */
static inline int mu_bell_open(void)
{
    return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
}

static inline void mu_bell_ring(int fd)
{
    uint64_t one = 1;

    if (write(fd, &one, sizeof one) < 0) {
        /* Full means readable, which is all that is needed. */
    }
}

/* Has it been rung since the last look? */
static inline bool mu_bell_rung(int fd)
{
    uint64_t times;

    return read(fd, &times, sizeof times) > 0;
}

#endif
