/* SPDX-License-Identifier: BSD-3-Clause */
/* port.h - the rendezvous port of a step where Slurm reserved none: a hash of job and
 * step into a range, without reserved and ephemeral ports
 *
 * Every node of a step computes the port, so all nodes need the same range and the same
 * ports to skip: either their kernels have equal settings, or the site gives a range.
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

/* Parse the format of /proc/sys/net/ipv4/ip_local_reserved_ports: "8080,9148-9150"; ""
 * is empty. On failure *set is unchanged.
 */
int mu_port_set_parse(const char *text, struct mu_port_set *set, struct mu_err *err);

/* The default range for hashed ports, at least 1024 ports: directly below the kernel's
 * ephemeral range eph_first..eph_last if there is room, otherwise above it. False if
 * there is room in neither place.
 */
bool mu_port_range(int eph_first, int eph_last, int *first, int *last);

/* The ports of first..last that a hash must skip: ports that the administrator reserved
 * for other services, and ephemeral ports, which any outgoing connection may use. If
 * the whole range is reserved, it was reserved for Muster and is not skipped.
 */
void mu_port_skip(int first, int last, int eph_first, int eph_last,
                  const struct mu_port_set *reserved, struct mu_port_set *skip);

/* A port from first..last that is not in skip (NULL: skip none) for this job and step.
 * seed: 32 bits that other users do not know, so that they cannot compute the port of
 * the next job; 0: there are none. `salt` separates uses (0 MASTER_PORT, 1
 * NCCL_RAS_ADDR): two salts never give the same port. Two jobs can get the same port;
 * with MpiParams=ports= they cannot.
 */
int mu_port_hash(uint32_t job, uint32_t step, uint32_t seed, unsigned salt, int first,
                 int last, const struct mu_port_set *skip);

#endif
