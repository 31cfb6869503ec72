/* SPDX-License-Identifier: BSD-3-Clause */
/* reserved.c - a struct of a newer muster.h than this library's is refused */
#include "runtime/api/impl.h"

int mu_check_reserved(struct muster *m, const char *call, const char *name,
                      const uint64_t *words, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (words[i] != 0)
            return mu_fail(
                m, MUSTER_EUSAGE,
                "%s: a reserved field of struct %s is not 0: zero-initialise "
                "the struct, or use the library of the program's muster.h "
                "(this one is %s)",
                call, name, muster_version());
    return MUSTER_OK;
}
