/* SPDX-License-Identifier: BSD-3-Clause */
/* recorded.h - a recorded machine that the site file of a test names: a copy, as the
 * plugin refuses a file by owner and mode, and a checkout may have any
 */
#ifndef MU_TEST_RECORDED_H
#define MU_TEST_RECORDED_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char recorded_path[] = "/tmp/muster-test.XXXXXX.xml";
static pid_t recorded_by; /* a child that exits must not remove it */

static void recorded_remove(void)
{
    if (getpid() == recorded_by)
        unlink(recorded_path);
}

/* The copy of tests/data/plugin/two-cpus-four-gpus.xml, made once. */
static inline const char *recorded_machine(void)
{
    char command[4200];

    if (recorded_by)
        return recorded_path;
    close(mkstemps(recorded_path, 4));
    recorded_by = getpid();
    atexit(recorded_remove);
    snprintf(command, sizeof command, "cat '%s'/tests/data/plugin/%s > %s",
             getenv("MUSTER_SRCDIR"), "two-cpus-four-gpus.xml", recorded_path);
    return system(command) == 0 ? recorded_path : "/no-recorded-machine";
}

#endif
