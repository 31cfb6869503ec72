/* SPDX-License-Identifier: BSD-3-Clause */
/* run.h - run another program, with a time limit and without a shell */
#ifndef MU_RUN_H
#define MU_RUN_H

#include <stddef.h>

/* Runs argv[0] (searched in PATH) with standard input and error on /dev/null. Puts its
 * standard output, cut to len - 1 bytes and terminated, into buf. Kills it after
 * `timeout` seconds. Returns its exit status; -1 when it could not be started, was
 * killed, or ran out of time.
 */
int mu_run(char *const *argv, double timeout, char *buf, size_t len);

#endif
