/* SPDX-License-Identifier: BSD-3-Clause */
/* nccl_dialect.h - the limits of NCCL's own reader, and the one attribute we add.
 *
 * Our files have muster="key=value;..." on <cpu> and <pci>, which NCCL keeps and does
 * not read. It holds data for which the format has no place, so that the file and the
 * machine give the same plan:
 *
 *   cpu   package=N      OS index of the package
 *         packages=N:LIST/N:LIST  the CPUs of each, where the node spans several
 *         smt=K;stride=S thread t of a core is CPU c + t*S
 *         cores=A+B,C..  the cores themselves, where smt cannot describe them
 *         cache=N        cores per shared cache, in order, when it is below the node
 *         caches=N:LIST/N:LIST  the CPUs of each cache, where the groups are unequal
 *         distance=A,B.. the row of the NUMA distance table, columns as the elements
 *         memory=0       a node without memory
 *         usable=LIST    the CPUs that may be used, when these are not all of affinity
 *   pci   host=BUS       the host bridge above the device
 *         up=B/B/..      all PCI bridges above the device, outermost first
 *         local=LIST     CPUs of a locality finer than the NUMA node
 *         known=0        the firmware does not report where the device is
 *         known=1        it does, but names no single NUMA node; package=N and local=
 *         nics=NAME,..   RDMA devices of the function
 *         parts=N        compute devices of the function (CPX, MIG)
 */
#ifndef MU_NCCL_DIALECT_H
#define MU_NCCL_DIALECT_H

#include <stdbool.h>
#include <stddef.h>

#include "spank/hw/machine/machine.h"

#define MU_NCCL_STRING_MAX 255
#define MU_NCCL_ATTRS_MAX 16
#define MU_NCCL_NODES_MAX 256
#define MU_GPUS_PER_FUNCTION 64
/* Dumps of whole NVLink domains have some thousands; a larger file is no topology. */
#define MU_NCCL_ELEMENTS_MAX 20000

/* The value of one key in a muster="..." attribute; false and "" when absent. */
bool mu_nccl_note(const char *notes, const char *key, char *buf, size_t len);

/* The same as a number; `none` when absent or out of range. */
long mu_nccl_note_number(const char *notes, const char *key, long min, long max,
                         long none);

/* The cores of one <cpu>: as noted, or from the bare list. */
int mu_nccl_add_cores(struct mu_machine *machine, const char *notes,
                      const struct mu_cpuset *cpus, int numa, int package,
                      struct mu_err *err);

/* The bridge (or host) that the notes of a <pci> give as its parent, added if it is
 * new; cpu_dev is the device of the enclosing element. Returns its index in dev[], -1
 * with err set.
 */
int mu_nccl_noted_parent(struct mu_machine *machine, const char *notes, int cpu_dev,
                         struct mu_err *err);

#endif
