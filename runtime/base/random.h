/* SPDX-License-Identifier: BSD-3-Clause */
/* random.h - unpredictable bytes from the kernel */
#ifndef MU_RANDOM_H
#define MU_RANDOM_H

#include <stddef.h>

/* Fill len bytes, at most 256. Returns 0, or -1 with errno. */
int mu_random(void *bytes, size_t len);

#endif
