/* SPDX-License-Identifier: BSD-3-Clause */
/* doctor_list.h - NCCL lists of interfaces and devices: where a value is set, and which
 * names it selects. Shared by the checks of networks.
 */
#ifndef MU_DOCTOR_LIST_H
#define MU_DOCTOR_LIST_H

#include "spank/core/doctor/doctor.h"

#define MU_LIST_NAMES 256

const char *mu_doctor_nccl_value(const struct mu_facts *facts, const char *name,
                                 const char **from);
bool mu_list_takes(const char *list, const char *name);
void mu_list_check(const char *variable, const char *value, const char *from,
                   const char *const *names, int n, struct mu_findings *out);

/* doctor_rdma.c: the part of mu_doctor_network on RDMA devices. */
void mu_doctor_rdma(const struct mu_facts *facts, struct mu_findings *out);

#endif
