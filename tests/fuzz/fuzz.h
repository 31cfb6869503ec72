/* SPDX-License-Identifier: BSD-3-Clause */
/* fuzz.h - one target: called with arbitrary bytes, must not crash, leak or hang */
#ifndef MU_FUZZ_H
#define MU_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The bytes as a string, without NULs; the caller frees it. */
static inline char *fuzz_text(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);

    memcpy(text, data, size);
    text[size] = '\0';
    for (size_t i = 0; i < size; i++)
        if (!text[i])
            text[i] = '\n';
    return text;
}

#endif
