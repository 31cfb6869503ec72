/* SPDX-License-Identifier: BSD-3-Clause */
/* pmix_server.h - PMIx variables are set, but their server cannot be reached: why? */
#ifndef MU_PMIX_SERVER_H
#define MU_PMIX_SERVER_H

#include "runtime/base/err.h"
#include "runtime/core/launch.h"

/* Sets the sentence (MUSTER_ERENDEZVOUS) and returns -1: what the variables name, who
 * owns the directories and what to try. reason: PMIx's word for the failure.
 */
int mu_pmix_server_refuse(const struct mu_launch *launch, const char *reason,
                          struct mu_err *err);

#endif
