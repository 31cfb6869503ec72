/* SPDX-License-Identifier: BSD-3-Clause */
/* self.h - the backend of a world of one rank on the CPU */
#ifndef MU_SELF_H
#define MU_SELF_H

#include "runtime/backend/backend.h"

extern const struct mu_backend_ops mu_backend_self;

#endif
