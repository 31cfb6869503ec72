/* SPDX-License-Identifier: BSD-3-Clause */
/* fds.h - send descriptors to a process of this machine, over AF_UNIX */
#ifndef MU_HOST_FDS_H
#define MU_HOST_FDS_H

#include <stddef.h>
#include <sys/types.h>

#define MU_FDS_MOST 129 /* of one message; the kernel takes up to 253 */

/* The message is len bytes of data with nfds descriptors. 0, or -1 with errno. */
int mu_fds_send(int to, const void *data, size_t len, const int *fds, int nfds);
/* Does not wait. Returns the bytes received, like recvmsg, with up to max descriptors
 * in fds: the caller closes them.
 */
ssize_t mu_fds_recv(int from, void *data, size_t len, int *fds, int max, int *nfds);

#endif
