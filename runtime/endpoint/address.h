/* SPDX-License-Identifier: BSD-3-Clause */
/* address.h - where an endpoint listens, and which addresses are this host's own */
#ifndef MU_ADDRESS_H
#define MU_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>

#define MU_ADDRESS_HOSTS 512
#define MU_ADDRESS_MACHINE 64
#define MU_ADDRESS_ID 16
#define MU_ADDRESS_ALIKE 12 /* bytes of an id; see mu_address_next */

/* What a rank publishes of its endpoint, once. */
struct mu_address {
    uint32_t magic;            /* changes with this struct and with the hello */
    uint32_t port;             /* TCP */
    uint8_t id[MU_ADDRESS_ID]; /* random; the AF_UNIX name is made from it */
    /* Kernel and network namespace: equal for those that see the same loopback and the
     * same abstract AF_UNIX names.
     */
    char machine[MU_ADDRESS_MACHINE]; /* "": unknown */
    char hosts[MU_ADDRESS_HOSTS];     /* comma separated, best first */
};

/* A new id, this machine and its addresses. `first` (or NULL) is put before them.
 * Returns false when there are no random bytes.
 */
bool mu_address_fill(struct mu_address *a, const char *first);
/* An address that callers compute by themselves; port and hosts are to be set. here: it
 * is on this machine, else on an unknown one.
 */
void mu_address_of_id(struct mu_address *a, const uint8_t id[MU_ADDRESS_ID], bool here);
/* A record that another rank published: false, it is of another release. */
bool mu_address_read(struct mu_address *a, const void *record, size_t len);
bool mu_address_same_machine(const struct mu_address *a, const struct mu_address *b);
/* The abstract AF_UNIX name; returns its length for bind and connect. */
socklen_t mu_address_local(const struct mu_address *a, struct sockaddr_un *out);
/* Any user can hold an abstract name, so a rank that needs one may take another, whose
 * id begins alike. names: /proc/net/unix, open for reading. Sets a's id to that of the
 * next name there, of whichever user; false: there is none.
 */
bool mu_address_next(FILE *names, struct mu_address *a);
/* Is this a loopback address, or one of this host's own? A call to it does not reach
 * another machine.
 */
bool mu_address_is_own(const struct sockaddr *at);

/* The addresses of this host, numeric, comma separated, best first; `first` (or NULL)
 * before all.
 */
void mu_address_hosts(const char *first, char *out, size_t len);

#endif
