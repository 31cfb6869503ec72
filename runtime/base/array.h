/* SPDX-License-Identifier: BSD-3-Clause */
/* array.h - an array that gets longer */
#ifndef MU_ARRAY_H
#define MU_ARRAY_H

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* at: of the pointer to an array from malloc, or to NULL. It gets n elements of `each`
 * bytes; those from `have` on are 0. -1: out of memory, nothing has changed.
 */
static inline int mu_array_extend(void *at, size_t each, int have, int n)
{
    char *array;

    memcpy(&array, at, sizeof array);
    array = realloc(array, each * (size_t)n + 1);
    if (!array)
        return -1;
    memset(array + each * (size_t)have, 0, each * (size_t)(n - have));
    memcpy(at, &array, sizeof array);
    return 0;
}

/* Room for one element more behind the n that are used; unlike above it is not cleared.
 */
static inline int mu_array_room(void *at, size_t each, size_t n)
{
    char *array;

    if ((n & (n - 1)) != 0) /* 0, 1, 2, 4, ...: full */
        return 0;
    memcpy(&array, at, sizeof array);
    array = realloc(array, each * (n ? 2 * n : 1));
    if (!array)
        return -1;
    memcpy(at, &array, sizeof array);
    return 0;
}

#endif
