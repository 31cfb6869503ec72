/* SPDX-License-Identifier: BSD-3-Clause */
/* fuzz_conf.c - nccl.conf */
#include "spank/core/env/nccl_conf.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mu_conf conf = { 0 };

    mu_conf_add(&conf, "nccl.conf", (const char *)data, size, NULL);
    mu_conf_find(&conf, "NCCL_DEBUG");
    mu_conf_clear(&conf);
    return 0;
}
