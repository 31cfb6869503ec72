/* SPDX-License-Identifier: BSD-3-Clause */
/* peercred.h - the process at the other end of an AF_UNIX connection */
#ifndef MU_PEERCRED_H
#define MU_PEERCRED_H

#include <sys/types.h>

struct mu_peercred {
    uid_t uid; /* -1 unknown: no user has it */
    pid_t pid; /* 0 unknown */
};

/* The process that called connect or listen. Any user can bind an abstract name, or
 * dial it.
 */
struct mu_peercred mu_peercred_of(int fd);

#endif
