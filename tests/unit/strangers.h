/* SPDX-License-Identifier: BSD-3-Clause */
/* strangers.h - processes of another user that call and listen where ranks do
 *
 * They find the listening sockets of their network namespace in /proc/net, as any user
 * can. All need root, to become that user and to make namespaces.
 */
#ifndef TEST_STRANGERS_H
#define TEST_STRANGERS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* In a child of this process: connect `each` times to each listening socket, and close
 * at once. Returns when it is done, with the number of connections.
 */
int strangers_knock(int each);

/* A process that connects `each` times to each socket that begins to listen. Then it
 * is silent; or some callers claim a service without its secret, end their connection
 * in the middle of a claim by a reset, pass descriptors, or send a byte now and then.
 * Ended with strangers_end.
 */
struct callers {
    _Atomic int known, calls; /* sockets that it has called, connections */
};
pid_t strangers_begin(int each, bool silent, struct callers *callers);

/* A thief listens in a namespace on all ports of first..last, and takes each port and
 * abstract name of a rank there that has died.
 */
struct thief {
    pid_t pid;
    struct loot {
        _Atomic int calls, taken; /* connections; ports and names of dead ranks */
        _Atomic size_t len;
        uint8_t bytes[4 << 20]; /* what callers sent */
    } * loot;
};
void thief_begin(struct thief *t, int netns, int first, int last);
/* Is a run of eight bytes of the secret among what it has read? Empties the loot. */
bool thief_has(struct thief *t, const uint8_t *secret, size_t len);
void thief_end(struct thief *t);

void strangers_end(pid_t pid);

/* Two nodes: network namespaces with a cable between them, and a bridge that has the
 * same address in both. Ports of node k are those from NODES_PORT * (k + 1) on.
 */
#define NODES_PORT 20000
#define NODES_PORTS 256
struct nodes {
    pid_t holder[2];
    int netns[2];
};
/* False: no privilege. */
bool nodes_open(struct nodes *n);
void nodes_close(struct nodes *n);
/* A namespace of this process alone. False: no privilege. */
bool nodes_leave(void);

#endif
