/* SPDX-License-Identifier: BSD-3-Clause */
/* printed.h - what a function prints about a profile, as a string; include cmocka.h
 * before
 */
#ifndef TEST_PRINTED_H
#define TEST_PRINTED_H

#include <stdio.h>
#include <string.h>

#include "runtime/tools/profile.h"

/* The caller frees it. */
static inline char *printed(void (*show)(const struct mu_profile *, FILE *),
                            const struct mu_profile *p)
{
    char *text = NULL;
    size_t size;
    FILE *to = open_memstream(&text, &size);

    show(p, to);
    fclose(to);
    return text;
}

static inline void has(const char *text, const char *want)
{
    if (!strstr(text, want))
        fail_msg("'%s' is not in: %s", want, text);
}

#endif
