/* SPDX-License-Identifier: BSD-3-Clause */
/* await_stop.h - a process has got SIGSTOP: wait until it has stopped */
#ifndef TEST_AWAIT_STOP_H
#define TEST_AWAIT_STOP_H

#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>

static inline void await_stop(pid_t pid)
{
    char name[64], state = '?';

    snprintf(name, sizeof name, "/proc/%d/stat", (int)pid);
    while (state != 'T') {
        FILE *f = fopen(name, "r");

        if (!f || fscanf(f, "%*d %*s %c", &state) != 1)
            abort();
        fclose(f);
    }
}

#endif
