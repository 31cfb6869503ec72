/* SPDX-License-Identifier: BSD-3-Clause */
/* fuzz_profile.c - platform profiles */
#include "spank/core/nccl/profile.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mu_profiles profiles = { 0 };
    char *text = fuzz_text(data, size);
    struct mu_err err;

    mu_profiles_parse(&profiles, "profile.ini", text, &err);
    mu_profiles_clear(&profiles);
    free(text);
    return 0;
}
