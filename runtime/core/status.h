/* SPDX-License-Identifier: BSD-3-Clause */
/* status.h - the values of enum muster_status */
#ifndef MU_STATUS_H
#define MU_STATUS_H

#include <stdbool.h>

/* Is status a failure that muster.h lists? */
bool mu_status_known(int status);

#endif
