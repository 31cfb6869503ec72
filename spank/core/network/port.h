/* SPDX-License-Identifier: BSD-3-Clause */
/* port.h - the port that the tasks of a step meet at, where Slurm reserved none: hashed
 * from job and step into a range, without the ports that belong to others
 *
 * Every node of a step computes it by itself, so the nodes must agree on the range and
 * on the ports to skip: the kernel's settings of a cluster are alike, or the site
 * states a range.
 */
#ifndef MU_PORT_H
#define MU_PORT_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/err.h"

#define MU_PORTS 65536

/* All zero is the empty set. */
struct mu_port_set {
    uint64_t word[MU_PORTS / 64];
};

bool mu_port_set_has(const struct mu_port_set *set, int port);

/* As /proc/sys/net/ipv4/ip_local_reserved_ports has it: "8080,9148-9150"; "" is empty.
 * On failure *set is untouched.
 */
int mu_port_set_parse(const char *text, struct mu_port_set *set, struct mu_err *err);

/* A range that hashed ports may come from when the site says nothing: outside the
 * kernel's ephemeral range eph_first..eph_last, at least 1024 ports, as near below it
 * as there is room, else above; false if there is none.
 */
bool mu_port_range(int eph_first, int eph_last, int *first, int *last);

/* The ports of first..last that a hash must not give: those the administrator reserved
 * for others, and ephemeral ones, which any outgoing connection may hold. A range that
 * is reserved as a whole was reserved for this: then none of it is skipped.
 */
void mu_port_skip(int first, int last, int eph_first, int eph_last,
                  const struct mu_port_set *reserved, struct mu_port_set *skip);

/* A port from first..last that is not in skip (NULL: none is) for this job, step and
 * het component; `salt` separates uses (0 MASTER_PORT, 1 NCCL_RAS_ADDR): two salts
 * never give the same port. Collisions between jobs are possible, unlike with
 * MpiParams=ports=.
 */
int mu_port_hash(uint32_t job, uint32_t step, uint32_t het, unsigned salt, int first,
                 int last, const struct mu_port_set *skip);

#endif
