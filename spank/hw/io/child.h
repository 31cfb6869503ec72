/* SPDX-License-Identifier: BSD-3-Clause */
/* child.h - work that may hang or crash (a user's file, a vendor's library, a name
 * service), in child processes with a deadline
 *
 * A child that waits in the kernel does not die of SIGKILL. The parent never waits for
 * such a child but leaves it behind. A later wait for any child of this process reaps
 * it, or init does.
 */
#ifndef MU_CHILD_H
#define MU_CHILD_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "runtime/base/err.h"

#define MU_CHILDREN_MAX 8

/* Children that share one pipe. */
struct mu_children {
    int fd; /* the parent reads here */
    int n;
    pid_t pid[MU_CHILDREN_MAX];
};

/* In child number `index`: write the answer to fd, return the exit status. */
typedef int mu_child_work(void *arg, int index, int fd);

/* In the child: write all of it; false where that fails. */
bool mu_child_write(int fd, const void *data, size_t len);

/* Deadlines are times of mu_clock_s. */

/* Start `want` children, or fewer where the system refuses more; -1: none. A child
 * keeps the caller's effective ids for good. It has /dev/null as standard files, and fd
 * as its only other descriptor. Call mu_children_end afterwards, in all cases.
 */
int mu_children_start(struct mu_children *children, int want, mu_child_work *work,
                      void *arg, struct mu_err *err);

/* Read len bytes before `deadline`. Returns len, fewer if all children closed the pipe
 * before, or -1 at the deadline (*buf may then hold a part).
 */
ssize_t mu_children_read(const struct mu_children *children, void *buf, size_t len,
                         double deadline);

/* Close the pipe, let the children end by themselves until `deadline` (0: kill them at
 * once), kill the others. Takes at most 0.2 s more. Returns the exit status of the last
 * child, -1 where it did not exit by itself.
 */
int mu_children_end(struct mu_children *children, double deadline);

/* One child's answer of len bytes, within `seconds`. -1: it did not come whole; *answer
 * may then hold a part.
 */
int mu_child_ask(mu_child_work *work, void *arg, void *answer, size_t len, int seconds,
                 struct mu_err *err);

#endif
