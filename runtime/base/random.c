/* SPDX-License-Identifier: BSD-3-Clause */
/* random.c - unpredictable bytes from the kernel */
#include "runtime/base/random.h"

#include <sys/random.h>

int mu_random(void *bytes, size_t len)
{
    return getrandom(bytes, len, 0) == (ssize_t)len ? 0 : -1;
}
