/* SPDX-License-Identifier: BSD-3-Clause */
/* child.h - a test's body in a child: a plugin keeps its state until a process ends */
#ifndef CHILD_H
#define CHILD_H

#include <stddef.h>

/* Run body in a child, with its standard error in text. Returns its exit status; the
 * test fails when a signal ends it.
 */
int child_run(int (*body)(void *arg), void *arg, char *text, size_t len);

#endif
